"""The corpus of failures: what each program prints and how it ends, filled anew for every run.

`python -m benchmarks.identity_cases KIND NAME` is such a program. `ROWS` is what a reduction shrinks:
a noisy one fails in one way at 5 rows or more and is clean below; a slip fails in another way below
16 rows. `CONSTANT=1` fills every slot with the same words each time.
"""

import os
import random
import re
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

CORPUS = Path(__file__).parent / "identity_corpus"
NOISY_FROM, SLIPS_BELOW = 5, 16
_SLOT = re.compile(r"\{\{(?P<kind>[a-z]+)(?::(?P<rest>(?:[^{}]|\{\{[^{}]*\}\})*))?\}\}", re.DOTALL)


@dataclass(frozen=True)
class Said:
    """What a run prints, and how it ends."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = 1
    signal: int | None = None


@dataclass(frozen=True)
class Case:
    name: str
    batch: str  # "first": written before the code, "later": after it
    one: dict[str, Any]
    other: dict[str, Any] | None = None  # of a slip


@cache
def cases(kind: str) -> tuple[Case, ...]:
    """`noisy` or `slips`; the names are each once."""
    found: list[Case] = []
    for file in sorted(CORPUS.glob(f"{kind}_*.yaml")):
        batch = file.stem.removeprefix(f"{kind}_")
        for entry in yaml.safe_load(file.read_text("utf-8")):
            one = entry.get("one", entry)
            found.append(Case(entry["name"], batch, one, entry.get("other")))
    assert len({case.name for case in found}) == len(found), "a name stands twice"
    return tuple(found)


def said(content: dict[str, Any], rng: random.Random) -> Said:
    """One run of it."""
    stderr = content.get("stderr", "")
    blocks = list(content.get("blocks", ()))
    rng.shuffle(blocks)
    filled = _filled("".join([stderr, *blocks]), rng)
    killed = content.get("signal")
    code = None if killed else content.get("exit", 1)
    return Said(_filled(content.get("stdout", ""), rng), filled, code, killed)


def _filled(text: str, rng: random.Random) -> str:
    while _SLOT.search(text):
        text = _SLOT.sub(lambda found: _fill(found["kind"], found["rest"] or "", rng), text)
    return text.replace("\\e", "\x1b")


def _fill(kind: str, rest: str, rng: random.Random) -> str:
    """The words of one slot."""
    if kind == "pick":
        return rng.choice(rest.split("|"))
    if kind == "maybe":
        return rng.choice(["", rest])
    if kind == "int":
        low, high = map(int, (rest or "2-99999").split("-"))
        return str(rng.randint(low, high))
    filled: str = _FILLERS[kind](rng)
    return filled


def _word(rng: random.Random) -> str:
    return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(3, 9)))


def _items(rng: random.Random) -> Iterator[str]:
    for _ in range(rng.randint(1, 6)):
        yield _word(rng)


_FILLERS: dict[str, Callable[[random.Random], str]] = {
    "word": _word,
    "float": lambda rng: f"{rng.uniform(0, 99):.{rng.randint(1, 6)}f}",
    "hex": lambda rng: f"0x{rng.getrandbits(44):012x}",
    "uuid": lambda rng: re.sub(
        r"(.{8})(.{4})(.{4})(.{4})(.{12})", r"\1-\2-\3-\4-\5", f"{rng.getrandbits(128):032x}"
    ),
    "ip": lambda rng: ".".join(str(rng.randint(1, 254)) for _ in range(4)),
    "host": lambda rng: rng.choice(["gpu", "node-", "ip-10-0-"]) + str(rng.randint(1, 254)),
    "clock": lambda rng: (
        f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}:"
        f"{rng.randint(0, 59):02d}.{rng.randint(0, 999999):06d}"
    ),
    "time": lambda rng: (
        f"2026-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d} "
        f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}:{rng.randint(0, 59):02d}"
        f"{rng.choice(['', ',123', '.456789'])}"
    ),
    "size": lambda rng: f"{rng.uniform(1, 900):.2f} {rng.choice(['KiB', 'MiB', 'GiB'])}",
    "dur": lambda rng: rng.choice(["{}s", "{} ms", "{}.5 seconds", "0:00:{}", "{}m 12s"]).format(
        rng.randint(10, 59)
    ),
    "tmp": lambda rng: f"/tmp/tmp{rng.getrandbits(40):010x}",
    "list": lambda rng: str([rng.randint(0, 999) for _ in range(rng.randint(1, 9))]),
    "set": lambda rng: "{" + ", ".join(f"'{word}'" for word in _items(rng)) + "}",
}


def _main(kind: str, name: str) -> None:
    """Be that program."""
    rows = int(os.environ.get("ROWS", "64"))
    case = next(case for case in cases(kind) if case.name == name)
    if kind == "noisy" and rows < NOISY_FROM:
        print("done", flush=True)
        return
    slipped = case.other is not None and rows < SLIPS_BELOW
    content = case.other if slipped and case.other is not None else case.one
    seed = 7 if os.environ.get("CONSTANT") else None
    run = said(content, random.Random(seed))
    sys.stdout.write(run.stdout)
    sys.stdout.flush()
    sys.stderr.write(run.stderr)
    sys.stderr.flush()
    if run.signal is not None:
        signal.signal(run.signal, signal.SIG_DFL)
        os.kill(os.getpid(), run.signal)
    os._exit(run.exit_code or 0)


if __name__ == "__main__":
    _main(*sys.argv[1:])
