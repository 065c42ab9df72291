"""What share of small faults the tests of the pure rooms catch.

One fault at a time is put into a copy of a room: a comparison turned, an operator exchanged, a
number moved by one, a condition negated, a result dropped. First run the tests that name the faulty
module, then the others of the room, until one fails. A fault that fails none of them has survived;
so has one that nobody could see from outside, and those are counted against us too. Nothing is
changed in what only declares: annotations, decorators, what is imported for annotations alone, and
`strict` of `zip`.

    python -m benchmarks.mutation [--each N] [--seed N] [--jobs N] [--seconds S] [--only PATH]
    [--own] [ROOM ...]
"""

import argparse
import ast
import math
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.faulty_copy import DID_NOT_END, TIMES

ROOT = Path(__file__).resolve().parents[1]
ROOMS = {
    "core": ("core", "registry", "scrub/test_scrubber.py", "search", "engine/test_sequential.py"),
    "search": ("search",),
    "engine": ("engine",),
}
_COPIED = ("src", "tests", "benchmarks", "pyproject.toml")
_PLUGINS = ("xdist.plugin", "pytest_timeout", "_hypothesis_pytestplugin", "benchmarks.faulty_copy")
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


def places(tree: ast.AST) -> Iterator[tuple[int, str, Callable[[], None]]]:
    """Every place, in the order of the file: its line, what changes, and the change itself."""
    yield from _changes(tree)
    for name, value in ast.iter_fields(tree):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _only_declares(tree, name, child):
                yield from places(child)


def _only_declares(parent: ast.AST, field: str, child: ast.AST) -> bool:
    if isinstance(child, ast.If):
        return isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING"
    return field in {"annotation", "returns", "decorator_list"} or (
        isinstance(child, ast.keyword)
        and child.arg == "strict"
        and isinstance(parent, ast.Call)
        and isinstance(parent.func, ast.Name)
        and parent.func.id == "zip"
    )


def _changes(node: ast.AST) -> Iterator[tuple[int, str, Callable[[], None]]]:
    if isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            yield _exchange(node.lineno, operator, node.ops, index)
    elif isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in _TURNED:
        yield node.lineno, _named(node.op), _setter(node, "op", _TURNED[type(node.op)]())
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield node.lineno, f"not {node.value}", _setter(node, "value", not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield node.lineno, f"{node.value} + 1", _setter(node, "value", node.value + 1)
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        negated = ast.UnaryOp(ast.Not(), node.test)
        yield node.lineno, "condition negated", _setter(node, "test", negated)
    elif isinstance(node, ast.Return) and not _is_plain(node.value):
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


def _is_plain(value: ast.expr | None) -> bool:
    """Nothing, or a boolean or a number, which is changed as such."""
    return value is None or (
        isinstance(value, ast.Constant) and isinstance(value.value, int | float | None)
    )


def faults_of(room: str, only: str = "") -> list[Fault]:
    found = []
    for path in sorted((ROOT / "src" / "aorta" / room).rglob("*.py")):
        inside = path.relative_to(ROOT / "src")
        if only in str(path):
            tree = ast.parse(path.read_text())
            found += [
                Fault(inside, number, line, what)
                for number, (line, what, _) in enumerate(places(tree))
            ]
    return found


def with_fault(fault: Fault) -> str:
    tree = ast.parse((ROOT / "src" / fault.path).read_text())
    for number, (_, _, change) in enumerate(places(tree)):
        if number == fault.number:
            change()
            break
    return ast.unparse(ast.fix_missing_locations(tree))


def tests_of(room: str) -> list[Path]:
    """Every file of tests of a room, inside the repository."""
    found = []
    for name in ROOMS[room]:
        place = ROOT / "tests" / name
        found += sorted(place.rglob("test_*.py")) if place.is_dir() else [place]
    return [path.relative_to(ROOT) for path in found]


def that_name(module: Path, tests: Sequence[Path]) -> list[Path]:
    """Of these files of tests those which are called after a module or import it."""
    dotted = ".".join(module.with_suffix("").parts)
    return [
        path
        for path in tests
        if path.stem.startswith(f"test_{module.stem}") or dotted in _imported(ROOT / path)
    ]


def _imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found


class Copies:
    """Copies of the repository, one for each job: what Python has compiled there is compiled
    once.
    """

    def __init__(self, jobs: int, folder: Path) -> None:
        self._times = folder / "times.json"
        self._faults = 0
        self._free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        ignored = shutil.ignore_patterns("__pycache__", "corpus", "results")
        for job in range(jobs):
            place = folder / str(job)
            for name in _COPIED:
                if (ROOT / name).is_dir():
                    shutil.copytree(ROOT / name, place / name, ignore=ignored)
                else:
                    shutil.copy(ROOT / name, place / name)
            self._free.put(place)

    def measure(self, tests: Sequence[Path], jobs: int) -> None:
        """Without any fault all pass, and what each takes is known from now on."""
        self._times.unlink(missing_ok=True)
        place = self._free.get()
        code = self._run(place, tests, "-n", str(jobs), "--dist", "loadgroup")
        assert code == 0, "the tests fail without any fault"
        self._free.put(place)

    def ending(self, fault: Fault, stages: Sequence[Sequence[Path]]) -> str:
        """How the tests end with this fault: "passed", "failed" or "did not end"."""
        place = self._free.get()
        faulty = place / "src" / fault.path
        right = faulty.read_bytes()
        try:
            self._write(faulty, with_fault(fault).encode())
            for tests in filter(None, stages):
                code = self._run(place, tests, "-x", "-n", "0")
                if code:
                    return "did not end" if code == DID_NOT_END else "failed"
            return "passed"
        finally:
            self._write(faulty, right)
            self._free.put(place)

    def _write(self, path: Path, source: bytes) -> None:
        """With a date that no other had: what was compiled from another is not taken for this
        one.
        """
        path.write_bytes(source)
        self._faults += 1
        os.utime(path, (self._faults, self._faults))

    def _run(self, place: Path, tests: Sequence[Path], *options: str) -> int:
        plugins = [word for name in _PLUGINS for word in ("-p", name)]
        words = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugins)
        search_path = os.pathsep.join((str(place / "src"), os.environ.get("PYTHONPATH", "")))
        environ = {
            **os.environ,
            "PYTHONPATH": search_path,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "TMPDIR": str(place / "t"),
            TIMES: str(self._times),
        }
        (place / "t").mkdir()
        with subprocess.Popen(
            (*words, *options, *map(str, tests)),
            cwd=place,
            env=environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            try:
                return process.wait()
            finally:
                _end(process.pid)
                shutil.rmtree(place / "t", ignore_errors=True)


def _end(group: int) -> None:
    """What the tests started and a sudden end left behind."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--each", type=int, default=60, help="faults for each room")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=math.inf, help="for each room")
    parser.add_argument("--only", default="", help="faults in files with this in their path")
    parser.add_argument("--own", action="store_true", help="only tests that name the module")
    parser.add_argument("rooms", nargs="*", default=list(ROOMS))
    asked = parser.parse_args(arguments or [])
    for room in asked.rooms:
        with tempfile.TemporaryDirectory(prefix="aorta-") as folder:
            _try_room(room, asked, Copies(asked.jobs, Path(folder)))


def _try_room(room: str, asked: argparse.Namespace, copies: Copies) -> None:
    began = time.monotonic()
    known = faults_of(room, asked.only)
    drawn = random.Random(asked.seed).sample(known, min(asked.each, len(known)))
    stages = {fault.path: _stages(fault.path, room, own=asked.own) for fault in drawn}
    copies.measure(
        sorted({test for both in stages.values() for one in both for test in one}), asked.jobs
    )
    counts: Counter[str] = Counter()

    def tried(fault: Fault) -> tuple[Fault, str]:
        spent = time.monotonic() - began
        return fault, copies.ending(
            fault, stages[fault.path]
        ) if spent < asked.seconds else "not tried"

    with ThreadPoolExecutor(asked.jobs) as pool:
        for fault, end in pool.map(tried, drawn):
            counts[end] += 1
            if end in {"passed", "did not end"}:
                print(f"  {'survived' if end == 'passed' else end}: {fault}", flush=True)
    _say(room, counts, len(known))


def _stages(module: Path, room: str, *, own: bool) -> tuple[list[Path], list[Path]]:
    tests = tests_of(room)
    first = that_name(module, tests)
    return first, [] if own else [path for path in tests if path not in first]


def _say(room: str, counts: Counter[str], known: int) -> None:
    """A test that does not end in ten times its usual time has caught a fault too, and it is
    said.
    """
    tried = counts.total() - counts["not tried"]
    caught = tried - counts["passed"]
    unspent = (
        f"; {counts['not tried']} more not tried for want of time" if counts["not tried"] else ""
    )
    print(
        f"{room}: {caught} of {tried} faults caught ({100 * caught / max(tried, 1):.0f} %), "
        f"{counts['did not end']} of them because a test did not end; drawn of {known}{unspent}",
        flush=True,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
