"""Run directories that the verbs themselves wrote, of workloads that say private things wherever
they can.

Each is made once for all workers of a run. Packing never changes one, so it is packed where it
lies; a test that must change one takes a copy.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from support.aorta_cli import Finished, aorta
from support.hermetic import SHARED
from support.planted import CORPUS
from support.reductions import numeric, write_spec

USER, HOST, TICKET = "jdoe77", "hgx-node-12", "GPU-7"
HF = next(planted.value for planted in CORPUS if planted.name == "hugging face")
PRIVATE_VALUES = (USER, HOST, HF, "10.11.12.13", "/home/", "hunter2-abc", "acme-train-data")
LOG = (
    f"starting on {HOST}, user {USER}\n"
    f"{HOST}:4711:4800 [0] NCCL INFO Bootstrap\n"
    f'  File "/home/{USER}/proj/train.py", line 3, in main\n'
    "connect 10.11.12.13:29500, password=hunter2-abc\n"
    f"login with {HF} for s3://acme-train-data/x\n"
)
SPOKEN = [
    planted for planted in CORPUS if "acme" not in planted.line
]  # some tests look for that word
PLANTED = "".join(f"{planted.line}\n" for planted in SPOKEN)
TRAIN = f"""import os, sys
sys.stdout.write({LOG!r})
sys.stderr.write({PLANTED!r})
if int(os.environ.get("N", "9")) >= 5:
    raise RuntimeError("loss is nan at step 137")
"""
NORM = """from torch import nn

class Norm(nn.Module):
    def forward(self, x):
        return nn.functional.layer_norm(x, x.shape[-1:], eps={epsilon})  # parts here
"""
# Neither looking for garbage nor taking torch apart at the end, which is half the CPU of so short a
# run.
QUICKLY = "import gc\ngc.disable()\n"
AND_OUT = "import atexit, os, sys\natexit._run_exitfuncs()\nsys.stdout.flush()\nos._exit(0)\n"
PARTS = """import fastnorm, pathlib, sys, torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 16)
        self.norm = fastnorm.Norm()

    def forward(self, x):
        return self.norm(torch.relu(self.up(x)))

model = nn.Sequential(Block(), Block())
model(torch.randn(8, 16)).square().mean().backward()
pathlib.Path("compiler").write_text(str("torch._dynamo" in sys.modules))
"""
NEEDS_A_SHARD = """import os, pathlib
pathlib.Path(os.environ["S"], "one.txt").read_text()
"""


def _once(make: Callable[[], Path]) -> Callable[[], Path]:
    """By the worker that asks first; the others wait for it."""

    @cache
    def made() -> Path:
        with Path(os.environ[SHARED], make.__name__).open("a+") as note:
            fcntl.flock(note, fcntl.LOCK_EX)
            note.seek(0)
            if not (where := note.read()):
                where = str(make())
                note.write(where)
        return Path(where)

    return made


def _made(verb: str) -> Path:
    root = Path(tempfile.mkdtemp(prefix=f"aorta-{verb}-", dir=os.environ[SHARED]))
    (root / "work").mkdir()
    (root / "work" / "train.py").write_text(TRAIN)
    return root


def _finished(*arguments: str | Path, cwd: Path, codes: tuple[int, ...] = (0,)) -> None:
    done = aorta(*arguments, cwd=cwd, timeout=170)
    assert done.exit_code in codes, done.stderr


@_once
def run_dir() -> Path:
    root = _made("run")
    command = ("--", "python3", "train.py")
    _finished(
        "run",
        "--trials",
        "2",
        "--results-dir",
        root / "out",
        *command,
        cwd=root / "work",
        codes=(1,),
    )
    return root / "out" / "command"


@_once
def reduce_dir() -> Path:
    root = _made("reduce")
    (root / "work" / "shards").mkdir()
    for name in ("one.txt", "two.txt", "three.txt"):
        (root / "work" / "shards" / name).write_text(f"rows of {name}\n")
    (root / "work" / "train.py").write_text(f"{NEEDS_A_SHARD}{TRAIN}")
    axes = [numeric("N", 40, 1), {"name": "S", "kind": "dir_subset", "initial": "shards"}]
    spec = write_spec(
        root / "work", "", axes, ticket=TICKET, oracle={"kind": "exit_code"},
        workload={"command": "python3 train.py"}, extra_env={"HF_HOME": f"/home/{USER}/hf"},
    )  # fmt: skip
    _finished("reduce", "--spec", spec, "--output", root / "out", cwd=root / "work")
    return next((root / "out").glob("2*"))


@_once
def triage_dir() -> Path:
    root = _made("triage")
    _finished(
        "triage", "run", "--mode", "matrix", "--mitigation-axis", "none,nccl_algo_ring", "--environment-axis", "local",
        "--trials", "2", "--output-dir", root / "out", "--ticket", TICKET, "--", "python3", "train.py",
        cwd=root / "work",
    )  # fmt: skip
    return next((root / "out" / TICKET / "command").glob("2*"))


@_once
def optimize_dir() -> Path:
    root = _made("optimize")
    mitigations = {"fewer": {"N": "3"}, "quiet": {"QUIET": f"/home/{USER}/quiet"}}
    sidecar = root / "work" / "more.json"
    sidecar.write_text(json.dumps({"version": 1, "mitigations": mitigations}))
    _finished(
        "triage", "run", "--mode", "optimize", "--mitigation-axis", "fewer,quiet", "--mitigations-file", sidecar,
        "--output-dir", root / "out", "--ticket", TICKET, "--", "python3", "train.py", cwd=root / "work",
    )  # fmt: skip
    return next((root / "out" / TICKET / "command").glob("2*"))


@_once
def diverge_dir() -> Path:
    """Of two releases of one library; what else it left lies in `work`, `old` and `new` beside
    it.
    """
    root = _made("diverge")
    for release, epsilon in (("old", "1e-5"), ("new", "0.1")):
        (root / release).mkdir()
        (root / release / "fastnorm.py").write_text(NORM.format(epsilon=epsilon))
    (root / "work" / "parts.py").write_text(
        f"{QUICKLY}import sys\nsys.stdout.write({LOG + PLANTED!r})\n{PARTS}{AND_OUT}"
    )
    _finished(
        "diverge", "--good-set", f"PYTHONPATH={root / 'old'}", "--bad-set", f"PYTHONPATH={root / 'new'}",
        "--output", root / "out", "--", sys.executable, "parts.py", cwd=root / "work",
    )  # fmt: skip
    return next((root / "out").glob("2*"))


@_once
def bisect_dir() -> Path:
    root = _made("bisect")
    repository = root / "jax"
    repository.mkdir()
    git = ("git", "-c", f"user.email={USER}@corp.example", "-c", "user.name=Jane Doe")
    subprocess.run(["git", "init", "-q", "."], cwd=repository, check=True)
    for number in range(6):
        (repository / "train.py").write_text(
            TRAIN.replace('"9"', str(2 * number)).replace('get("N", ', 'get("M", ')
        )
        subprocess.run(["git", "add", "."], cwd=repository, check=True)
        subprocess.run(
            [*git, "commit", "-q", "-m", f"version 12.4.131.{number}"], cwd=repository, check=True
        )
    _finished(
        "bisect", "--good", "HEAD~5", "--bad", "HEAD", "--output-prefix", root / "out", "--", "python3", "train.py",
        cwd=repository,
    )  # fmt: skip
    return root / "out"


@_once
def launch_dir() -> Path:
    root = _made("launch")
    _finished(
        "launch", "--nproc-per-node", "1", "--max-restarts", "0", "--log-dir", root / "out", "train.py",
        cwd=root / "work", codes=(1, 93),
    )  # fmt: skip
    return root / "out"


MAKERS: Mapping[str, Callable[[], Path]] = {
    "run": run_dir,
    "reduce": reduce_dir,
    "triage": triage_dir,
    "optimize": optimize_dir,
    "diverge": diverge_dir,
    "bisect": bisect_dir,
    "launch": launch_dir,
}


@dataclass(frozen=True)
class Packed:
    """What `aorta bundle` made of a run, and whether the run was the same afterwards."""

    said: Finished
    run_is_untouched: bool

    @property
    def bundle(self) -> Path:
        return Path(self.said.json()["path"])


@cache
def packed_run(verb: str) -> Packed:
    """Under the ticket, not run from where it is unpacked. Once a worker, for all who only look at
    it.
    """
    run = MAKERS[verb]()
    before = _state_of(run)
    output = tempfile.mkdtemp(prefix=f"aorta-{verb}-packed-", dir=os.environ[SHARED])
    said = aorta("bundle", run, "--output", output, "--ticket", TICKET, "--no-check", "--json")
    assert said.exit_code == 0, said.stderr
    return Packed(said, _state_of(run) == before)


def _state_of(run: Path) -> dict[str, tuple[int, bytes | None]]:
    return {
        str(path): (path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else None)
        for path in sorted(run.rglob("*"))
    }


def copied(run: Path, where: Path) -> Path:
    """A copy that a test may change, with its private state."""
    shutil.copytree(run.parent, where / run.parent.name, symlinks=True, dirs_exist_ok=True)
    return where / run.parent.name / run.name
