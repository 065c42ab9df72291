"""Warm trials beside cold ones: a start, a trial, a reduction, a matrix; and pairs with the same
seed.

`python -m benchmarks warm`, or alone, where only the base packages and torch are: `PYTHONPATH=src:.
python3 -m benchmarks.warm [PAIRS]`. Uses a GPU where torch sees one. Each figure is printed as soon
as it is known, the slow cold ones late: a limit of time costs the last alone.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from aorta.core.trial import Start, TrialEnd, TrialSpec
from aorta.executors.local import LocalExecutor

PAIRS = 1000
STARTS = 7
OPTIONS: dict[str, list[str]] = {"cold": [], "warm": ["--warm"]}
_SLOW_IMPORT = 0.35

JOB = """
import time
began = time.monotonic()
import os, sys, torch
try:
    import tqdm  # as most training programs do; it goes through all variables when it is imported
except ImportError:
    pass
print("began", began, flush=True)
device = "cuda" if torch.cuda.is_available() else "cpu"
width, steps = int(os.environ.get("JOB_WIDTH", "64")), int(os.environ.get("JOB_STEPS", "5"))
torch.manual_seed(0)
weight = torch.randn(width, width, device=device)
x = torch.randn(8, width, device=device)
for step in range(steps):
    x = torch.tanh(x @ weight)
total = float(x.abs().sum())
print("sum", total)
if steps >= 37 and width >= 5 and not os.environ.get("JOB_IS_CURED"):
    raise RuntimeError("NaN detected at step 36")
"""

BARE = """
import os, sys, time, torch
for _ in range(int(sys.argv[1])):
    read, write = os.pipe()
    before = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.write(write, str(time.monotonic()).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    print(float(os.read(read, 100)) - before)
    os.close(read), os.close(write)
"""

FLAKY = """
import os, random, sys
import slow_library
random.seed(int(os.environ["PAIR_SEED"]))
sys.exit(sum(random.random() for _ in range(40)) > 20)
"""

SPEC = """
workload: {{command: "{python} job.py", cwd: ./}}
oracle: {{kind: regex, pattern: "NaN detected", stream: stderr}}
axes:
  - {{name: JOB_STEPS, kind: env, type: int, initial: 1000, floor: 1, strategy: binary}}
  - {{name: JOB_WIDTH, kind: env, type: int, initial: 100, floor: 1, strategy: binary}}
"""

SIDECAR = """
version: 1
mitigations:
  job_cure: {JOB_IS_CURED: "1"}
  job_nothing: {JOB_NOTHING: "1"}
"""


def main(pairs: int = PAIRS) -> None:
    with tempfile.TemporaryDirectory(prefix="aorta-warm-") as folder:
        scratch = Path(folder)
        (scratch / "job.py").write_text(JOB)
        _starts(scratch)
        reduced, cells = _reduction(scratch, "warm"), _matrix(scratch, "warm")
        assert _matrix(scratch, "cold") == cells, "another answer"
        assert _reduction(scratch, "cold") == reduced, "another answer"
        _pairs(scratch, pairs)


def _say(line: str) -> None:
    print(line, flush=True)


class _Trials:
    def __init__(self, scratch: Path, executor: LocalExecutor) -> None:
        self.scratch, self.executor, self.count = scratch, executor, 0

    def run(self, start: Start, *argv: str, **env: str) -> TrialEnd:
        self.count += 1
        name = f"trial-{self.count}"
        trial = TrialSpec(
            argv,
            self.scratch / name,
            self.scratch,
            id=name,
            env=env,
            start=start,
            varied=frozenset(env),
        )
        self.executor.start(trial)
        while not (ended := self.executor.wait()):
            pass
        return ended[0]


def _starts(scratch: Path) -> None:
    """From the order to the program's first line, and the whole trial."""
    bare = _bare_fork()
    executor = LocalExecutor(1, warm=True)
    trials = _Trials(scratch, executor)
    times: dict[Start, list[tuple[float, float]]] = {Start.COLD: [], Start.WARM: []}
    saved = 0.0
    try:
        # Imports are seen, then the server is started.
        for start in (Start.WATCHED, Start.WARM):
            trials.run(start, sys.executable, "job.py")
        for _ in range(STARTS):
            for start, found in times.items():
                before = time.monotonic()
                end = trials.run(start, sys.executable, "job.py")
                whole = time.monotonic() - before
                saved = max(saved, end.saved)
                assert bool(end.saved) == (start is Start.WARM), "it did not start as asked"
                words = end.stdout.path.read_text().split()
                found.append((float(words[1]) - before, whole))
    finally:
        executor.close()
    cold, warm = (
        [statistics.median(each) for each in zip(*times[start], strict=True)]
        for start in (Start.COLD, Start.WARM)
    )
    over = 1000 * (warm[0] - bare)
    _say(f"bare fork with torch imported   {1000 * bare:7.1f} ms to the first instruction")
    _say(f"warm start                      {1000 * warm[0]:7.1f} ms to the program's first line")
    _say(f"warm start over bare fork       {over:7.1f} ms   (target: at most 30)")
    _say(f"imports hidden                  {saved:7.2f} s")
    _say(f"one trial of a small torch job  {cold[1]:7.2f} s cold, {warm[1]:.2f} s warm")


def _bare_fork() -> float:
    done = subprocess.run(
        [sys.executable, "-c", BARE, str(STARTS)], check=True, capture_output=True, text=True
    )
    return statistics.median(map(float, done.stdout.split()))


def _reduction(scratch: Path, name: str) -> dict[str, Any]:
    (scratch / "aorta.yaml").write_text(SPEC.format(python=sys.executable))
    output = scratch / f"reduce-{name}"
    spent, report = _aorta(
        scratch, "reduce", "--spec", "aorta.yaml", "--output", output, *OPTIONS[name]
    )
    finals = {axis["name"]: axis["final"] for axis in report["axes"]}
    warm = _warmth(report, output)
    _say(f"reduction, {name:4}  {spent} {report['trials']} trials, {warm}; {finals}")
    return finals


def _matrix(scratch: Path, name: str) -> dict[str, int]:
    (scratch / "cures.yaml").write_text(SIDECAR)
    output = scratch / f"triage-{name}"
    spent, report = _aorta(
        scratch, "triage", "run", "--mitigation-axis", "none,job_cure,job_nothing",
        "--environment-axis", "local", "--mitigations-file", "cures.yaml", "--trials", "6",
        "--output-dir", output, *OPTIONS[name], "--", "env", "JOB_STEPS=40", sys.executable, "job.py",
    )  # fmt: skip
    rates = {cell["name"]: cell["failed_count"] for cell in report["cells"]}
    trials = sum(cell["trials"] for cell in report["cells"])
    _say(f"matrix, {name:4}     {spent} {trials} trials, {_warmth(report, output)}; {rates}")
    return rates


def _warmth(report: dict[str, Any], output: Path) -> str:
    """How many trials were warm, and from how many servers."""
    journals = [journal.read_text() for journal in output.rglob("journal.jsonl")]
    trials = [json.loads(line) for text in journals for line in text.splitlines()]
    servers = {trial["server"] for trial in trials if trial.get("server")}
    return f"{report['warm']['trials']} of them warm, from {len(servers)} servers"


def _aorta(cwd: Path, *words: str | Path) -> tuple[str, dict[str, Any]]:
    split = words.index("--") if "--" in words else len(words)
    line = [*words[:split], "--json", "-q", *words[split:]]
    before, used = time.monotonic(), _cpu_of_children()
    done = subprocess.run(
        [sys.executable, "-m", "aorta", *map(str, line)],
        cwd=cwd, capture_output=True, text=True, check=False, env=_environment(),
    )  # fmt: skip
    spent = f"{time.monotonic() - before:7.1f} s, {_cpu_of_children() - used:.1f} s of CPU;"
    if not done.stdout:
        raise SystemExit(done.stderr)
    content: dict[str, Any] = json.loads(done.stdout)
    return spent, content


def _cpu_of_children() -> float:
    """On a busy machine the fairer figure: others can take the time, but not the work."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _environment() -> dict[str, str]:
    source = str(Path(__file__).resolve().parents[1] / "src")
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path}


def _pairs(scratch: Path, pairs: int) -> None:
    """A flaky program with the same seed, cold and warm. Its library does nothing but take its
    time.
    """
    venv = scratch / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    site = next(venv.glob("lib/python*/site-packages"))
    (site / "slow_library.py").write_text(f"import time\ntime.sleep({_SLOW_IMPORT})\n")
    (scratch / "flaky.py").write_text(FLAKY)
    executor = LocalExecutor(1, warm=True)
    trials = _Trials(scratch, executor)
    command = (str(venv / "bin/python"), "flaky.py")
    differ = failed = 0
    memory: list[int] = []
    try:
        for start in (Start.WATCHED, Start.WARM):
            trials.run(start, *command, PAIR_SEED="0")
        for seed in range(pairs):
            ends = [trials.run(s, *command, PAIR_SEED=str(seed)) for s in (Start.COLD, Start.WARM)]
            assert not ends[0].saved, "a cold trial"
            assert ends[1].saved, "a warm trial"
            differ += ends[0].exit_code != ends[1].exit_code
            failed += ends[0].exit_code == 1
            memory.append(_resident_kib())
            if (seed + 1) % 200 == 0:
                _say(f"  {seed + 1} pairs so far, {differ} end differently")
    finally:
        executor.close()
    _say(
        f"{pairs} pairs with the same seed    {differ} end differently ({failed} of the cold ones "
        "failed)"
    )
    _say(f"growth over {pairs} warm trials      {memory[-1] - memory[len(memory) // 10]} KiB")


def _resident_kib() -> int:
    """Of this process and everything below it: the supervisor and the server among them."""
    from aorta.executors.process_tree import descendants

    page = os.sysconf("SC_PAGE_SIZE") // 1024
    total = 0
    for pid in (os.getpid(), *descendants(os.getpid())):
        try:
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page
        except OSError:
            continue
    return total


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:2]))
