"""The corpus of failures: what each program prints and how it ends, filled anew for every run.

`program(case, folder)` writes a shell script that is such a program. `ROWS` is what a reduction
shrinks: a noisy one fails in one way at 5 rows or more and is clean below; a slip fails in another
way below 16 rows. `CONSTANT=1` says the same words each time.
"""

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

CORPUS = Path(__file__).parent / "identity_corpus"
NOISY_FROM, SLIPS_BELOW, ROWS = 5, 16, 64
_RENDERED = 40  # different runs of each program
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
    names = [case.name for case in found]
    if len(set(names)) != len(names):
        raise ValueError("a name stands twice in the corpus")
    return tuple(found)


def said(content: dict[str, Any], rng: random.Random) -> Said:
    """One run of it."""
    blocks = list(content.get("blocks", ()))
    rng.shuffle(blocks)
    stderr = _filled("".join([content.get("stderr", ""), *blocks]), rng)
    killed = content.get("signal")
    code = None if killed else content.get("exit", 1)
    return Said(_filled(content.get("stdout", ""), rng), stderr, code, killed)


def program(case: Case, folder: Path) -> list[str]:
    """The command that is this program; its runs lie in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for side, content in (("one", case.one), ("other", case.other)):
        if content is not None:
            rng = random.Random(f"{case.name}/{side}")
            for number in range(_RENDERED):
                run = said(content, rng)
                (folder / f"{side}{number}.out").write_text(run.stdout)
                (folder / f"{side}{number}.err").write_text(run.stderr)
    least = NOISY_FROM if case.other is None else SLIPS_BELOW
    script = f"""side=one; end() {{ {_end(case.one)}; }}
if [ "${{ROWS:-{ROWS}}}" -lt {least} ]; then {_below(case)} fi
if [ -n "$CONSTANT" ]; then n=0; else n=$((RANDOM % {_RENDERED})); fi
cat {folder}/$side$n.out; cat {folder}/$side$n.err >&2; end
"""
    (folder / "program.sh").write_text(script)
    return ["bash", str(folder / "program.sh")]


def _below(case: Case) -> str:
    if case.other is None:
        return "echo done; exit 0;"
    return f"side=other; end() {{ {_end(case.other)}; }};"


def _end(content: dict[str, Any]) -> str:
    if content.get("signal"):
        return f"kill -{content['signal']} $$"
    return f"exit {content.get('exit', 1)}"


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
    return _FILLERS[kind](rng)


def _word(rng: random.Random) -> str:
    return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(3, 9)))


def _words(rng: random.Random) -> Iterator[str]:
    for _ in range(rng.randint(1, 6)):
        yield _word(rng)


def _uuid(rng: random.Random) -> str:
    digits = f"{rng.getrandbits(128):032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _clock(rng: random.Random) -> str:
    return f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}:{rng.randint(0, 59):02d}"


def _time(rng: random.Random) -> str:
    day = f"2026-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
    return f"{day} {_clock(rng)}{rng.choice(['', ',123', '.456789'])}"


_DURATIONS = ("{}s", "{} ms", "{}.5 seconds", "0:00:{}", "{}m 12s")
_FILLERS: dict[str, Callable[[random.Random], str]] = {
    "word": _word,
    "float": lambda rng: f"{rng.uniform(0, 99):.{rng.randint(1, 6)}f}",
    "hex": lambda rng: f"0x{rng.getrandbits(44):012x}",
    "uuid": _uuid,
    "ip": lambda rng: ".".join(str(rng.randint(1, 254)) for _ in range(4)),
    "host": lambda rng: rng.choice(["gpu", "node-", "ip-10-0-"]) + str(rng.randint(1, 254)),
    "clock": lambda rng: f"{_clock(rng)}.{rng.randint(0, 999999):06d}",
    "time": _time,
    "size": lambda rng: f"{rng.uniform(1, 900):.2f} {rng.choice(['KiB', 'MiB', 'GiB'])}",
    "dur": lambda rng: rng.choice(_DURATIONS).format(rng.randint(10, 59)),
    "tmp": lambda rng: f"/tmp/tmp{rng.getrandbits(40):010x}",
    "list": lambda rng: str([rng.randint(0, 999) for _ in range(rng.randint(1, 9))]),
    "set": lambda rng: "{" + ", ".join(f"'{word}'" for word in _words(rng)) + "}",
}
