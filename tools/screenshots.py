"""`make docs`: the pages of real runs, made by the verbs themselves, photographed for the README.

Each run is small enough for a laptop without a GPU, and seeded where chance is part of it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from support.services.chromium import Chromium, tab

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
_WIDTH, _TALLEST = 1100, 1180

_FLAKY = """\
import os, random, sys, time
random.seed(int.from_bytes(os.urandom(4)))
if os.environ.get("NEW_ALLOCATOR"): sys.exit(127)
for step in range(20):
    time.sleep(0.004 if os.environ.get("SYNC_EACH_STEP") else 0.002)
if not os.environ.get("CALM") and random.random() < 0.85:
    print("RuntimeError: loss is nan at step", random.randrange(20), file=sys.stderr); sys.exit(1)
"""
_MITIGATIONS = """\
{"version": 1, "mitigations": {"calm_queues": {"CALM": "1"}, "sync_each_step": {"SYNC_EACH_STEP": "1"},
 "new_allocator": {"NEW_ALLOCATOR": "1"}, "bigger_pool": {"POOL_MB": "512"}}}
"""
_HISTORY_TEST = """\
. ./version.sh
echo "step 1 loss 2.31"; echo "step 2 loss 2.27"
if [ $n -ge 143 ] && [ $((RANDOM % 6)) -lt 5 ]; then
  echo "FloatingPointError: loss is nan at step 3" >&2; exit 1
fi
echo "step 3 loss 2.22"
"""
_JOB = """\
import os, time
rank, cycle = int(os.environ["RANK"]), int(os.environ.get("AORTA_CYCLE", 0))
for step in range(3 + 2 * rank % 3 - cycle):
    print(f"step {step} loss {2.3 - step / 10:.2f}", flush=True); time.sleep(0.3)
if rank == 5 and cycle < 2:
    raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
if rank == 2 and cycle >= 2:
    open("/data/shards/shard-0107.bin")
time.sleep(20)
"""


def main() -> None:
    """Every page anew; the directory of the runs is gone afterwards."""
    DOCS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="aorta-docs-") as scratch:
        browser = Chromium()
        try:
            for name, run in _runs(Path(scratch)):
                page = Path(scratch) / f"{name}.html"
                _aorta(Path(scratch), "report", str(run), "-o", str(page))
                _photograph(browser, name, page)
        finally:
            browser.close()


def _photograph(browser: Chromium, name: str, page: Path) -> None:
    for suffix, width, dark in (("", _WIDTH, False), ("-dark", _WIDTH, True)):
        if suffix and name != "bisect":
            continue  # one is enough to show that there is a dark side
        with tab(browser, width, dark=dark) as shown:
            shown.open(page.as_uri())
            assert not shown.complaints, shown.complaints
            picture = DOCS / f"{name}{suffix}.png"
            shown.screenshot(picture, most=_TALLEST)
            print(f"{picture.relative_to(ROOT)}: {picture.stat().st_size // 1000} kB")


def _runs(scratch: Path) -> Iterator[tuple[str, Path]]:
    (scratch / "train.py").write_text(_FLAKY)
    (scratch / "mitigations.json").write_text(_MITIGATIONS)
    train = (sys.executable, str(scratch / "train.py"))
    _aorta(scratch, "run", "--trials", "40", "--jobs", "2", "-q", "--", *train, allowed=(0, 1))
    yield "run", scratch / "results" / "command"
    spec = ROOT / "examples" / "half_nan" / "aorta.yaml"
    _aorta(scratch, "reduce", "--spec", str(spec), "--output", "reduce/GPU-7", "--jobs", "2", "-q")
    yield "reduce", _newest(scratch / "reduce" / "GPU-7")
    axis = "none,calm_queues,sync_each_step,bigger_pool,new_allocator,tf32_off"
    sidecar = ("--mitigations-file", str(scratch / "mitigations.json"))
    matrix = ("--mitigation-axis", axis, "--environment-axis", "local", "--trials", "12", *sidecar)
    _aorta(scratch, "triage", "run", *matrix, "--ticket", "GPU-7", "-q", "--", *train)
    yield "triage", _newest(scratch / "triage_results" / "GPU-7" / "command")
    yield "bisect", _bisected(scratch)
    (scratch / "job.py").write_text(_JOB)
    words = (
        "launch",
        "--nproc-per-node",
        "8",
        "--log-dir",
        "logs",
        "--max-restarts",
        "5",
        "job.py",
    )
    _aorta(scratch, *words, allowed=(1, 93))
    yield "launch", scratch / "logs"


def _bisected(scratch: Path) -> Path:
    repository = scratch / "nanotrain"
    repository.mkdir()
    git = (
        "git",
        "-C",
        str(repository),
        "-c",
        "user.name=Ada Author",
        "-c",
        "user.email=ada@example.com",
    )
    subprocess.run((*git, "init", "--quiet"), check=True)
    for number in range(200):
        (repository / "version.sh").write_text(f"n={number}\n")
        subprocess.run((*git, "add", "."), check=True)
        title = "Fuse the scatter into the reduction" if number == 143 else f"Change {number}"
        subprocess.run((*git, "commit", "--quiet", "--message", title), check=True)
    (scratch / "test.sh").write_text(_HISTORY_TEST)
    words = ("bisect", "--good", "HEAD~199", "--bad", "HEAD", "-q", "--output-prefix")
    _aorta(repository, *words, str(scratch / "bisected"), "--", "bash", str(scratch / "test.sh"))
    return scratch / "bisected"


def _newest(folder: Path) -> Path:
    return max(folder.iterdir())


def _aorta(where: Path, *words: str, allowed: tuple[int, ...] = (0,)) -> None:
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PATH": _path()}
    done = subprocess.run(
        (sys.executable, "-m", "aorta", *words),
        cwd=where,
        env=environ,
        capture_output=True,
        check=False,
        text=True,
    )
    if done.returncode not in allowed:
        raise SystemExit(
            f"aorta {' '.join(words[:2])} ended with {done.returncode}:\n{done.stderr}"
        )


def _path() -> str:
    """The workloads' own `python` is the one that runs this."""
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))


if __name__ == "__main__":
    assert shutil.which("chromium"), "make docs needs chromium: apt-get install chromium"
    main()
