"""What share of small faults the tests of the pure rooms catch.

One fault at a time is put into a copy of a room: a comparison turned, an operator exchanged, a number moved by one, a condition
negated, a result dropped. The room's own tests run until the first failure. A fault that fails none of them has survived; so
has one that nobody could see from outside, and those are counted against us too.

    python -m benchmarks.mutation [--each N] [--seed N] [ROOM ...]
"""

import argparse
import ast
import copy
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = {
    "core": ("core", "registry", "scrub/test_scrubber.py", "search"),
    "search": ("search",),
    "engine": ("engine",),
}
_TIMES_LONGER = 10  # than without any fault: nothing but an endless loop takes that
_TURNED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """The `number`th place of a file where something can be exchanged."""

    path: Path
    number: int
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.what}"


def places(tree: ast.Module) -> Iterator[tuple[int, str, Callable[[], None]]]:
    """Every place, in the order of the file: its line, what changes, and the change itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            for index, operator in enumerate(node.ops):
                yield _exchange(node.lineno, operator, node.ops, index)
        elif (
            isinstance(node, ast.BinOp) and type(node.op) in _TURNED and not _is_annotation(node)
        ) or isinstance(node, ast.BoolOp):
            yield node.lineno, _named(node.op), _setter(node, "op", _TURNED[type(node.op)]())
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield node.lineno, f"not {node.value}", _setter(node, "value", not node.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            yield node.lineno, f"{node.value} + 1", _setter(node, "value", node.value + 1)
        elif isinstance(node, ast.If | ast.While | ast.IfExp):
            negated = ast.UnaryOp(ast.Not(), node.test)
            yield node.lineno, "condition negated", _setter(node, "test", negated)
        elif isinstance(node, ast.Return) and node.value is not None:
            yield node.lineno, "returns None", _setter(node, "value", ast.Constant(None))


def _exchange(
    line: int, operator: ast.cmpop, operators: list[ast.cmpop], index: int
) -> tuple[int, str, Callable[[], None]]:
    def change() -> None:
        turned = _TURNED[type(operator)]()
        assert isinstance(turned, ast.cmpop)
        operators[index] = turned

    return line, _named(operator), change


def _setter(node: ast.AST, name: str, value: object) -> Callable[[], None]:
    return lambda: setattr(node, name, value)


def _named(operator: ast.AST) -> str:
    return f"{type(operator).__name__} -> {_TURNED[type(operator)].__name__}"


def _is_annotation(node: ast.BinOp) -> bool:
    """`str | None` is an operation to the parser."""
    return isinstance(node.op, ast.BitOr)


def faults_of(room: str) -> list[Fault]:
    found = []
    for path in sorted((ROOT / "src" / "aorta" / room).rglob("*.py")):
        inside = path.relative_to(ROOT / "src")
        tree = ast.parse(path.read_text())
        found += [
            Fault(inside, number, line, what) for number, (line, what, _) in enumerate(places(tree))
        ]
    return found


def with_fault(fault: Fault) -> str:
    tree = copy.deepcopy(ast.parse((ROOT / "src" / fault.path).read_text()))
    for number, (_, _, change) in enumerate(places(tree)):
        if number == fault.number:
            change()
            break
    return ast.unparse(ast.fix_missing_locations(tree))


def ending(room: str, fault: Fault | None, seconds: float | None = None) -> str:
    """How the tests of a copy with this fault end: "passed", "failed" or "did not end"."""
    with tempfile.TemporaryDirectory(prefix="aorta-mutant-") as folder:
        place = Path(folder)
        for name in ("src", "tests", "benchmarks", "pyproject.toml"):
            _copy(ROOT / name, place / name)
        if fault is not None:
            (place / "src" / fault.path).write_text(with_fault(fault))
        return _tests_end(place, room, seconds)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        ignored = shutil.ignore_patterns("__pycache__", "corpus", "results")
        shutil.copytree(source, target, ignore=ignored)
    else:
        shutil.copy(source, target)


def _tests_end(place: Path, room: str, seconds: float | None) -> str:
    tests = [str(place / "tests" / name) for name in ROOMS[room]]
    words = (sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "0")
    search_path = os.pathsep.join((str(place / "src"), os.environ.get("PYTHONPATH", "")))
    environ = {**os.environ, "PYTHONPATH": search_path, "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        (*words, *tests),
        cwd=place,
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            return "passed" if process.wait(seconds) == 0 else "failed"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return "did not end"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--each", type=int, default=60, help="faults for each room")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("rooms", nargs="*", default=list(ROOMS))
    asked = parser.parse_args(arguments or [])
    for room in asked.rooms:
        began = time.monotonic()
        assert ending(room, None) == "passed", f"the tests of {room} fail without any fault"
        seconds = _TIMES_LONGER * (time.monotonic() - began)
        known = faults_of(room)
        drawn = random.Random(asked.seed).sample(known, min(asked.each, len(known)))
        counts: Counter[str] = Counter()
        with ThreadPoolExecutor(asked.jobs) as pool:
            ends = pool.map(lambda fault: ending(room, fault, seconds), drawn)  # noqa: B023 - used up here
            for fault, end in zip(drawn, ends, strict=True):
                counts[end] += 1
                if end != "failed":
                    print(f"  {'survived' if end == 'passed' else end}: {fault}", flush=True)
        _say(room, counts, len(known))


def _say(room: str, counts: Counter[str], known: int) -> None:
    """A run that did not end in ten times its usual time is caught too, and said."""
    tried = counts.total()
    caught = tried - counts["passed"]
    print(
        f"{room}: {caught} of {tried} faults caught ({100 * caught / tried:.0f} %), "
        f"{counts['did not end']} of them because a test did not end; drawn of {known}",
        flush=True,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
