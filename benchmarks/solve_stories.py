"""Failing jobs with a known truth, for `aorta solve`: each is laid out in a directory, and says what is true of it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
scale = math.prod(poison) if depth == 3 else 1.0
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
import argparse
import os
import random

parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int, default=100)
given = parser.parse_args()
threads = int(os.environ.get("OMP_NUM_THREADS", "4"))
if threads > 1 and given.rounds >= 7 and random.SystemRandom().random() < 0.5:
    raise RuntimeError("lost update: the total is 41, expected 42")
print("total 42")
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


def nan_of_three_rows(directory: Path) -> Story:
    """(a) A NaN that needs 3 data rows of 400, 3 layers and 438 steps."""
    poison = {"row_071", "row_203", "row_388"}
    factor = 10 ** (300 / 437.5 / 3)
    names = [f"row_{number:03d}" for number in range(400)]
    rows = [f"{name} {factor if name in poison else 1.0:.12g}" for name in names]
    (directory / "rows.txt").write_text("\n".join(rows) + "\n")
    (directory / "train.py").write_text(NAN)
    return Story(
        "nan",
        directory,
        ("python", "train.py", "--data", "rows.txt", "--steps", "5000", "--layers", "12"),
        truth={
            "class": "nan",
            "axes": {"DATA": 3, "STEPS": 438, "LAYERS": 3},
            "rows": sorted(poison),
        },
    )


def race_of_threads(directory: Path) -> Story:
    """(e) A race at a rate of .5 that one thread cures, with eight useless mitigations beside it."""
    (directory / "train.py").write_text(RACE)
    lines = ["version: 1", "mitigations:"]
    for number in range(8):
        lines += [f"  useless_{number}:", f"    USELESS_{number}: '1'"]
    (directory / "useless.yaml").write_text("\n".join(lines) + "\n")
    return Story(
        "race",
        directory,
        ("python", "train.py", "--rounds", "900"),
        ("--mitigations-file", "useless.yaml"),
        {"cure": ["omp_one_thread"], "axes": {"ROUNDS": 7}, "rate": 0.5},
    )


def missing_module(directory: Path) -> Story:
    """(g) A mistake of its user's."""
    (directory / "train.py").write_text(MISTAKE)
    return Story("mistake", directory, ("python", "train.py"), truth={"class": "import_error"})


def never_fails(directory: Path) -> Story:
    """(h) A failure that does not show here."""
    (directory / "train.py").write_text(HEALTHY)
    return Story("healthy", directory, ("python", "train.py"))
