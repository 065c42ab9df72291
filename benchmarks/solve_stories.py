"""Failing jobs with a known truth, for `aorta solve`: each is laid out in a directory, and says
what is true of it.
"""

import importlib
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHANCE = '''\
def chance() -> float:
    """The next number of a row that is the same every time the story is told; elsewhere, any."""
    try:
        with open({counter!r}, "a") as counter:
            counter.write(".")
        told = os.stat({counter!r}).st_size
    except OSError:
        return random.SystemRandom().random()
    return random.Random(f"{seed}:{{told}}").random()


'''

NAN = '''\
"""A loss that overflows once three rows have met in at least three layers for 438 steps."""
import argparse
import math

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="rows.txt")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--width", type=int, default=8)
given = parser.parse_args()
rows = [line.split() for line in open(given.data)]
gain = {name: float(value) for name, value in rows}
poison = [gain.get(name, 1.0) for name in ("row_071", "row_203", "row_388")]
depth = min(given.layers, 3)
scale = math.prod(poison) if depth == 3 and min(poison) > 1.0 else 1.0
loss = 1.0
for step in range(1, given.steps + 1):
    loss = loss * scale if loss * scale < 1e300 else math.inf
    if math.isinf(loss):
        print(f"step {step} loss {loss - loss}", flush=True)
        raise FloatingPointError(f"loss is nan at step {step}")
print(f"done, loss {loss}")
'''

RACE = '''\
"""Two writers of one total. They meet in every second run, unless there is only one of them."""
import os
import random
import sys


CHANCE
rounds = int(sys.argv[sys.argv.index("--rounds") + 1])
threads = int(os.environ.get("OMP_NUM_THREADS", "4"))
if threads > 1 and rounds >= 7 and chance() < RATE:
    raise RuntimeError("lost update: the total is 41, expected 42")
print("total 42")
'''

FLAKY_COMMIT = '''\
"""A model whose blend went wrong in one commit; it shows in every second run."""
import os
import random
import sys

import model


CHANCE
steps = int(sys.argv[sys.argv.index("--steps") + 1])
if model.BLEND > 1 and steps >= 5 and chance() < RATE:
    raise ValueError("blend weights do not add up")
print("trained")
'''

HOG = '''\
"""A batch that is kept in memory as a whole."""
import sys

batch = int(sys.argv[sys.argv.index("--batch") + 1])
held = []
for _ in range(batch):
    held.append(bytearray(b"x") * (EACH << 20))
print("fits")
'''

HANG = '''\
"""Two gloo ranks that add up a number in every step; from step 5 on the last rank does not come."""
import argparse
import os
import tempfile
import threading
import time

parser = argparse.ArgumentParser()
parser.add_argument("--ranks", type=int)
parser.add_argument("--steps", type=int)
given = parser.parse_args()
ready = threading.Event()


def show_life() -> None:
    while not ready.wait(0.5):
        print("loading", flush=True)


threading.Thread(target=show_life, daemon=True).start()
import torch
import torch.distributed as dist

ready.set()


def train(rank: int, place: str) -> None:
    store = dist.FileStore(place, given.ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=given.ranks)
    for step in range(1, given.steps + 1):
        if rank == 1 and step == 5:
            time.sleep(10_000)
        dist.all_reduce(torch.ones(1))
        print(f"rank {rank} step {step}", flush=True)


with tempfile.TemporaryDirectory() as folder:
    children = []
    for rank in range(given.ranks):
        child = os.fork()
        if child == 0:
            train(rank, f"{folder}/store")
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
print("done")
'''

MISTAKE = "import modul_that_nobody_has\n"
HEALTHY = "print('loss 0.25')\n"


@dataclass(frozen=True)
class Story:
    """What to type, and what must come out of it."""

    name: str
    directory: Path
    command: tuple[str, ...]
    options: tuple[str, ...] = ()
    truth: dict[str, Any] = field(default_factory=dict)


def nan_of_three_rows(
    directory: Path, harmless: int = 397, steps: int = 5000, layers: int = 12
) -> Story:
    """(a) A NaN that needs 3 data rows, of 400 where nothing else is said, 3 layers and 438
    steps.
    """
    poison = {"row_071", "row_203", "row_388"}
    factor = 10 ** (300 / 437.5 / 3)
    others = [f"row_{number:03d}" for number in range(400)]
    names = sorted({*[name for name in others if name not in poison][:harmless], *poison})
    rows = [f"{name} {factor if name in poison else 1.0:.12g}" for name in names]
    (directory / "rows.txt").write_text("\n".join(rows) + "\n")
    (directory / "train.py").write_text(NAN)
    return Story(
        "nan",
        directory,
        (
            *("python", "train.py", "--data", "rows.txt"),
            *("--steps", str(steps), "--layers", str(layers)),
        ),
        truth={
            "class": "nan",
            "axes": {"DATA": 3, "STEPS": 438, "LAYERS": 3, "WIDTH": 1},
            "rows": sorted(poison),
        },
    )


def _with_chance(script: str, directory: Path, seed: int) -> str:
    counter = str(directory.parent / f"{directory.name}.told")
    return script.replace("CHANCE\n", CHANCE.format(counter=counter, seed=seed))


def race_of_threads(
    directory: Path, seed: int = 1, rate: float = 0.5, useless: int = 8, rounds: int = 900
) -> Story:
    """(e) A race at a rate of .5 that one thread cures, with eight useless mitigations beside
    it.
    """
    script = _with_chance(RACE, directory, seed).replace("RATE", str(rate))
    (directory / "train.py").write_text(script)
    lines = ["version: 1", "mitigations:"]
    for number in range(useless):
        lines += [f"  useless_{number}:", f"    USELESS_{number}: '1'"]
    (directory / "useless.yaml").write_text("\n".join(lines) + "\n")
    return Story(
        "race",
        directory,
        ("python", "train.py", "--rounds", str(rounds)),
        ("--mitigations-file", "useless.yaml"),
        {"cure": ["omp_one_thread"], "axes": {"ROUNDS": 7}, "rate": rate},
    )


def missing_module(directory: Path) -> Story:
    """(g) A mistake of its user's."""
    (directory / "train.py").write_text(MISTAKE)
    return Story("mistake", directory, ("python", "train.py"), truth={"class": "import_error"})


def never_fails(directory: Path) -> Story:
    """(h) A failure that does not show here."""
    (directory / "train.py").write_text(HEALTHY)
    return Story("healthy", directory, ("python", "train.py"))


def commit_of_the_users_own(
    directory: Path, seed: int = 1, behind: int = 300, before: int = 30, rate: float = 0.5
) -> Story:
    """(d) A commit of the user's own repository so far behind, failing now and then; nobody knows a
    good one.
    """
    stream = [b"feature done\n"]
    train = _with_chance(FLAKY_COMMIT, directory, seed).replace("RATE", str(rate))
    total = before + behind
    for number in range(total):
        blend = 1 + (number >= before)
        stream.append(_commit(number, {"train.py": train, "model.py": _model(blend, number)}))
    stream.append(b"done\n")
    git = ("git", "-C", str(directory))
    subprocess.run((*git, "init", "-q", "--initial-branch=main"), check=True)
    subprocess.run((*git, "fast-import", "--quiet"), input=b"".join(stream), check=True)
    subprocess.run((*git, "reset", "-q", "--hard", "main"), check=True)
    culprit = subprocess.run(
        (*git, "rev-parse", f"main~{behind - 1}"), check=True, capture_output=True, text=True
    )
    return Story(
        "commit",
        directory,
        ("python", "train.py", "--steps", "400"),
        truth={"culprit": culprit.stdout.strip(), "axes": {"STEPS": 5}},
    )


def _model(blend: int, number: int) -> str:
    return f"BLEND = {blend}\nTOUCHED = {number}\n"


def _commit(number: int, files: dict[str, str]) -> bytes:
    title = f"change {number}"
    lines = [
        "commit refs/heads/main",
        f"committer Ann <ann@example.com> {1_700_000_000 + 60 * number} +0000",
        f"data {len(title)}",
        title,
    ]
    for name, content in files.items():
        lines += [f"M 644 inline {name}", f"data {len(content)}", content]
    return ("\n".join(lines) + "\n").encode()


def batch_too_large(directory: Path, each: int = 8) -> Story:
    """(b) Killed by the memory cgroup it is started in; the truth is for a limit of 300 MiB, or of
    160 for half of each.
    """
    (directory / "train.py").write_text(HOG.replace("EACH", str(each)))
    return Story(
        "memory",
        directory,
        ("python", "train.py", "--batch", "64", "--epochs", "9"),
        truth={"class": "host_oom", "batch": (20, 36)},
    )


@contextmanager
def limited_memory(mebibytes: int = 300) -> Iterator[Path]:
    """A control group of the kernel's whose processes may use so much together."""
    rows = [row.split(":", 2) for row in Path("/proc/self/cgroup").read_text().splitlines()]
    older = [group for _, controllers, group in rows if "memory" in controllers.split(",")]
    root = Path("/sys/fs/cgroup/memory" if older else "/sys/fs/cgroup")
    ours = (older or [group for _, controllers, group in rows if not controllers])[0].lstrip("/")
    group = root / ours / f"aorta-{uuid.uuid4().hex[:8]}"
    group.mkdir()
    limit = "memory.limit_in_bytes" if older else "memory.max"
    (group / limit).write_text(str(mebibytes << 20))
    try:
        yield group
    finally:
        group.rmdir()


DEPENDENCY = '''\
"""A release of one of three dependencies broke the reader."""
import sys

import alpha
import beta
import gamma

rows = int(sys.argv[sys.argv.index("--rows") + 1])
if beta.broken and rows >= 4:
    raise ValueError("reader gave back too few rows")
print(alpha.version, gamma.version)
'''


def release_of_a_dependency(directory: Path, python: str, releases: int = 20) -> Story:
    """(f) A dependency's release: a local index with so many of 3 packages; `python` has the newest
    of them.
    """
    good, bad = (f"1.{releases * 2 // 3 - more}" for more in (1, 0))
    planted = importlib.import_module("support.planted_index")  # of the tests, wherever they are
    index = planted.PlantedIndex(directory / "wheels")
    newest = {}
    for name, broken_from in (("alpha", None), ("beta", bad), ("gamma", None)):
        index.releases(name, [f"1.{minor}" for minor in range(releases)], broken_from)
        newest[name] = f"1.{releases - 1}"
    (directory / "good.txt").write_text("".join(f"{name}==1.0\n" for name in newest))
    venv = directory / "venv"
    # Without pip, and so without what pip brings, which is on no index of ours.
    subprocess.run((python, "-m", "venv", "--without-pip", str(venv)), check=True)
    wheels = ("--find-links", str(directory / "wheels"))
    pip = (python, "-m", "pip", "--python", str(venv / "bin/python"), "install", "-q", "--no-index")
    subprocess.run((*pip, *wheels, *(f"{n}=={v}" for n, v in newest.items())), check=True)
    work = directory / "work"
    work.mkdir()
    (work / "train.py").write_text(DEPENDENCY)
    return Story(
        "dependency",
        work,
        (str(venv / "bin/python"), "train.py", "--rows", "500"),
        ("--good", str(directory / "good.txt"), "--no-index", *wheels),
        {"culprit": ("beta", good, bad), "axes": {"ROWS": 4}},
    )


def rank_that_does_not_come(
    directory: Path, script: str = HANG, steps: int = 60, silence: float = 6
) -> Story:
    """(c) Two gloo ranks, or those of another script, one of which waits in a collective for
    ever.
    """
    (directory / "train.py").write_text(script)
    return Story(
        "hang",
        directory,
        ("python", "train.py", "--ranks", "2", "--steps", str(steps)),
        ("--oracle", "hang", "--silent-for", f"{silence:.1f}s", "--skip", "triage"),
        {"classes": {"hang", "collective_timeout"}, "axes": {"RANKS": 2, "STEPS": 5}},
    )


def parts_right(story: str, document: dict[str, Any]) -> dict[str, bool]:
    """Every part of the answer that has a truth, by the name of the function that tells the
    story.
    """
    failure, cure = document["failure"] or {}, document["cure"] or {}
    reproducer = document["reproducer"] or {}
    axes = {axis["name"]: axis["final"] for axis in reproducer.get("axes", [])}
    culprits = [(c["package"], c["good"], c["bad"], c.get("title")) for c in document["culprits"]]
    ships = (reproducer.get("elsewhere") or {}).get("reproduced") == 1
    told: dict[str, dict[str, bool]] = {
        "missing_module": {
            "said": document["status"] == "user_error",
            "one run": document["trials"] == 1,
        },
        "never_fails": {"said": document["status"] == "did_not_reproduce"},
        "nan_of_three_rows": {
            "class": failure.get("class") == "nan",
            "smallest": axes == {"DATA": 3, "STEPS": 438, "LAYERS": 3, "WIDTH": 1},
            "ships": ships,
        },
        "batch_too_large": {
            "class": failure.get("class") == "host_oom",
            "smallest": 20 <= axes.get("BATCH", 0) <= 36,
        },
        "rank_that_does_not_come": {
            "class": failure.get("class") in {"hang", "collective_timeout"},
            "smallest": axes == {"RANKS": 2, "STEPS": 5},
            "ships": ships,
        },
        "race_of_threads": {
            "cure": cure.get("mitigations") == ["omp_one_thread"],
            "on the original": cure.get("verified_on") == "original",
            "smallest": axes == {"ROUNDS": 7},
            "ships": ships,
        },
        "commit_of_the_users_own": {
            "culprit": [c[3] for c in culprits] == ["change 30"],
            "smallest": axes == {"STEPS": 5},
            "ships": ships,
        },
    }
    dependency = {
        "culprit": [c[:3] for c in culprits] == [("beta", "1.12", "1.13")],
        "smallest": axes == {"ROWS": 4},
    }
    return told.get(story, dependency)
