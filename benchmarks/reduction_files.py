"""Twenty real files and one of JSON lines, each with a failure in it, given to Aorta's subset search, to picire and to
lithium.

The files are those that every installation of Aorta's extras has: Python's own library and headers,
packages, logs of Debian. A failure is what a tool does with the lines that are left: it refuses
them, or it reads them and trips over something. Runs are counted as each reducer makes them; an
answer that a reducer asked for before is not counted again.
"""

import ast
import csv
import importlib
import io
import json
import logging
import sys
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from aorta.core.axis import Point, subset
from aorta.core.trial import Verdict
from aorta.reduce.structure import pieces_of
from aorta.search.subset import SubsetSearch

WORST = 1.2
Fails = Callable[[str], bool]


@dataclass(frozen=True)
class Case:
    """A file below one of the roots, what is put into it at which share of it, and when the rest of
    it fails.
    """

    name: str
    file: str
    fails: Fails
    planted: tuple[tuple[float, str], ...] = ()

    def lines(self) -> list[str] | None:
        if self.file.endswith(".jsonl"):
            return [json.dumps({"text": f"ticket {n}", "id": n}) + "\n" for n in range(2000)]
        path = next((root / self.file for root in _ROOTS if (root / self.file).is_file()), None)
        if path is None:
            return None
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        for share, line in sorted(self.planted, reverse=True):
            lines.insert(round(share * len(lines)), line)
        return lines


@dataclass(frozen=True)
class Reduced:
    runs: int
    size: int


class Counted:
    """The test that a reducer runs, with a memory."""

    def __init__(self, lines: Sequence[str], fails: Fails) -> None:
        self._lines, self._fails = lines, fails
        self._known: dict[tuple[int, ...], bool] = {}

    def __call__(self, kept: Sequence[int]) -> bool:
        key = tuple(kept)
        if key not in self._known:
            self._known[key] = self._fails("".join(self._lines[i] for i in key))
        return self._known[key]

    @property
    def runs(self) -> int:
        return len(self._known)


def by_aorta(name: str, lines: Sequence[str], fails: Fails) -> Reduced:
    """As `aorta reduce` takes the file apart: by its structure, else by lines."""
    pieces = pieces_of(name, "".join(lines).encode())
    axis = subset("items", pieces.items)
    search = SubsetSearch(Point.of({axis.name: axis.initial}), axis)
    runs: dict[bytes, bool] = {}

    def written(point: Point) -> bytes:
        kept = point[axis.name]
        return pieces.without_all_but(set(kept) if isinstance(kept, tuple) else ())

    while asked := search.ask(1):
        text = written(asked[0])
        if text not in runs:
            runs[text] = fails(text.decode())
        search.tell(asked[0], Verdict(runs[text]))
    return Reduced(len(runs), len(written(search.best).decode().splitlines()))


def by_picire(lines: Sequence[str], fails: Fails) -> Reduced:
    library = importlib.import_module("picire")
    logging.getLogger("picire").setLevel(logging.ERROR)
    test = Counted(lines, fails)

    def outcome(config: list[int], _config_id: object) -> object:
        return library.Outcome.FAIL if test(config) else library.Outcome.PASS

    split = library.config_splitters.ZellerSplit(n=2)
    dd = library.DD(outcome, split=split, cache=library.ConfigCache())
    kept = dd(list(range(len(lines))))
    return Reduced(test.runs, len(kept))


def by_lithium(lines: Sequence[str], fails: Fails) -> Reduced:
    strategies = importlib.import_module("lithium.strategies")
    testcase = importlib.import_module("lithium.testcases").TestcaseLine()
    logging.getLogger("lithium").setLevel(logging.ERROR)
    testcase.parts = [b"%d\n" % item for item in range(len(lines))]
    testcase.reducible = [True] * len(lines)
    test = Counted(lines, fails)
    reduction = strategies.Minimize().reduce(testcase)
    best = testcase.parts
    for attempt in reduction:
        parts = list(attempt.parts)
        found = test([int(part) for part in parts])
        best = parts if found else best
        reduction.feedback(found)
    return Reduced(test.runs, len(best))


# -- what tools do with what is left


def refused_by_python(text: str) -> bool:
    """A formatter that cannot parse it says so, whatever is wrong."""
    return _tree(text) is None


def refused_for(words: str) -> Fails:
    def fails(text: str) -> bool:
        try:
            compile(text, "x.py", "exec", ast.PyCF_ONLY_AST)
        except (SyntaxError, ValueError) as wrong:
            return words in str(wrong)
        return False

    return fails


def parsed_with(*wanted: Callable[[ast.AST], bool]) -> Fails:
    """A linter that trips over something in a file that it can parse."""

    def fails(text: str) -> bool:
        tree = _tree(text)
        if tree is None:
            return False
        nodes = list(ast.walk(tree))
        return all(any(want(node) for node in nodes) for want in wanted)

    return fails


def _tree(text: str) -> ast.AST | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def function(name: str) -> Callable[[ast.AST], bool]:
    return lambda node: isinstance(node, ast.FunctionDef) and node.name == name


def calls(name: str) -> Callable[[ast.AST], bool]:
    return lambda node: isinstance(node, ast.Call) and ast.unparse(node.func).endswith(name)


def json_with(*path: str) -> Fails:
    return lambda text: _has(_loaded(json.loads, text), path)


def refused_by_json(text: str) -> bool:
    return bool(text.strip()) and _loaded(json.loads, text) is None


def yaml_with(*path: str) -> Fails:
    return lambda text: _has(_loaded(yaml.safe_load, text), path)


def _loaded(load: Callable[[str], Any], text: str) -> Any:
    try:
        return load(text)
    except (ValueError, yaml.YAMLError, RecursionError):
        return None


def _has(document: Any, path: Sequence[str]) -> bool:
    """Whether the keys of the path stand below each other, anywhere."""
    if not path:
        return True
    inside = list(document.values()) if isinstance(document, dict) else document
    if isinstance(document, dict) and path[0] in document and _has(document[path[0]], path[1:]):
        return True
    return isinstance(inside, list) and any(_has(each, path) for each in inside)


def rows_with(header: bool, *wanted: str) -> Fails:
    def fails(text: str) -> bool:
        rows = list(csv.reader(io.StringIO(text)))
        cells = {cell.strip() for row in rows for cell in row}
        return (
            bool(rows)
            and (not header or "dtype" in text.split("\n", maxsplit=1)[0])
            and set(wanted) <= cells
        )

    return fails


def balanced_with(*wanted: str) -> Fails:
    """A compiler that gets past its parser only if every brace and every conditional is closed."""

    def fails(text: str) -> bool:
        opened = text.count("{") - text.count("}") or text.count("(") - text.count(")")
        lines = [line.strip() for line in text.splitlines()]
        begun = sum(line.startswith(("#if", "# if")) for line in lines)
        ended = sum(line.startswith(("#endif", "# endif")) for line in lines)
        comments = text.count("/*") - text.count("*/")
        return not opened and begun == ended and not comments and all(w in text for w in wanted)

    return fails


def in_order(*wanted: str) -> Fails:
    """A log reader that trips over one line after another."""

    def fails(text: str) -> bool:
        at = 0
        for words in wanted:
            at = text.find(words, at)
            if at < 0:
                return False
        return True

    return fails


_PATHS = sysconfig.get_paths()
_ROOTS = tuple(map(Path, (_PATHS["stdlib"], *sys.path[1:], _PATHS["include"], "/")))
_BROKEN = "    value = call(first,, second)\n"
CASES = (
    Case("py refused, 2600 lines", "argparse.py", refused_by_python, ((0.4, _BROKEN),)),
    Case("py refused, 970 lines", "tempfile.py", refused_by_python, ((0.7, _BROKEN),)),
    Case("py refused for one reason", "shutil.py", refused_for("invalid syntax"), ((0.5, _BROKEN),)),
    Case("py trips over a method", "argparse.py", parsed_with(function("_get_nargs_pattern"))),
    Case("py trips over two calls", "shutil.py", parsed_with(calls("unlink"), calls("chown"))),
    Case("py trips over one call", "json/decoder.py", parsed_with(calls("scan_once"))),
    Case("py trips over three", "zipfile.py", parsed_with(calls("crc32"), calls("seek"), function("testzip"))),
    Case("yaml trips over a key", "torch/_export/serde/schema.yaml", yaml_with("GraphModule", "fields", "signature", "type")),
    Case("yaml trips over two", "torch/_export/serde/schema.yaml", lambda t: yaml_with("Layout", "fields", "Strided")(t) and yaml_with("Node", "kind")(t)),
    Case("json trips over a key", "ray/autoscaler/ray-schema.json", json_with("properties", "provider", "properties", "region")),
    Case("json trips over a deep key", "jsonschema/benchmarks/issue232/issue.json", json_with("schema")),
    Case("json refused", "ray/autoscaler/ray-schema.json", refused_by_json, ((0.6, '    "x": 1,,\n'),)),
    Case("json of packages", "schemathesis/config/schema.json", json_with("properties", "reports", "properties", "directory", "type")),
    Case("csv, three rows and the header", "numpy/_core/tests/data/umath-validation-set-tanh.csv", rows_with(True, "bad1", "bad2"), ((0.3, "np.float32,bad1,0x1,2\n"), (0.8, "np.float32,bad2,0x1,2\n"))),
    Case("csv, one row", "numpy/random/tests/data/pcg64-testset-1.csv", rows_with(False, "500")),
    Case("c, a struct", "cpython/unicodeobject.h", balanced_with("PyASCIIObject;", "unsigned int ascii:1;")),
    Case("c, one declaration", "object.h", balanced_with("Py_SET_REFCNT(PyObject *ob, Py_ssize_t "
                                                         "refcnt)")),
    Case("css, one rule", "usr/share/gitweb/static/gitweb.css", balanced_with("table.diff_tree span.file_status.new", "color: #008000;")),
    Case("log, two lines", "var/log/dpkg.log", in_order("lost interrupt", "reset failed"), ((0.35, "lost interrupt\n"), (0.8, "reset failed\n"))),
    Case("json lines, two records", "var/log/records.jsonl", in_order('"id": 700}', '"id": 1400}')),
    Case("log, one line", "var/log/alternatives.log", in_order("link is down"), ((0.6, "link is down\n"),)),
)  # fmt: skip


def main() -> None:
    print(
        "\nTwenty real files and one of JSON lines: runs and final lines (target: at most 1.2 times the better of the "
        "two)"
    )
    print(f"  {'file':32s} {'lines':>6s} {'aorta':>12s} {'picire':>12s} {'lithium':>12s}   worst")
    over = 0
    for case in CASES:
        lines = case.lines()
        if lines is None or not case.fails("".join(lines)):
            print(
                f"  {case.name:32s} {'not here' if lines is None else 'does not fail'}: {case.file}"
            )
            continue
        ours = by_aorta(case.file, lines, case.fails)
        theirs = [by(lines, case.fails) for by in (by_picire, by_lithium)]
        runs = ours.runs / min(one.runs for one in theirs)
        size = ours.size / max(1, min(one.size for one in theirs))
        over += max(runs, size) > WORST
        shown = "".join(f"{one.runs:6d} ->{one.size:4d}" for one in (ours, *theirs))
        print(f"  {case.name:32s} {len(lines):6d} {shown}   {runs:.2f}, {size:.2f}", flush=True)
    print(f"  {over} of {len(CASES)} above {WORST}")


if __name__ == "__main__":
    main()
