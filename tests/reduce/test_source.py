"""`aorta reduce --source`: a program of several files becomes one short script that fails the same
way, alone, in an empty directory.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from aorta.core.trial import Verdict
from aorta.reduce import source
from aorta.reduce.source.calls import calls_inlined
from aorta.reduce.source.passes import (
    configurations_as_seen,
    integers_smaller,
    modules_as_identity,
    never_executed,
    parts_left_out,
    values_as_seen,
)
from aorta.reduce.source.program import (
    Pass,
    Program,
    TraceFacts,
    UserFrame,
    UserModule,
    candidates,
    must_hold,
    read_facts,
)
from aorta.reduce.source.search import AXIS, Candidate, SourceSearch
from aorta.reduce.source.tree import tidy
from aorta.reduce.source.trials import FailingStatement, failing_statement
from support.aorta_cli import aorta, environ, start_aorta
from support.waiting import patience, wait_until


def lay(place: Path, program: dict[str, str]) -> Path:
    for name, text in program.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return place


def reduced(place: Path, *words: str, options: Sequence[Any] = ()) -> tuple[dict[str, Any], str]:
    """The result, and the script that ships."""
    given = ("reduce", "--source", "--json", "-q", *options, "--", sys.executable, *words)
    done = aorta(*given, cwd=place)
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    return result, (place / result["run_dir"] / "shrunken" / "repro.py").read_text()


def alone(script: str, place: Path) -> str:
    """What the script says, by itself, in an empty directory."""
    place.mkdir()
    (place / "repro.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "repro.py"],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        env=environ({}),
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr


CHECKED = {
    "train.py": """\
from app.loop import run

if __name__ == "__main__":
    run(10)
""",
    "app/__init__.py": "",
    "app/config.py": 'START = 1.0\nRATE = 0.5\nUNUSED = {"a": 1}\n',
    "app/loop.py": """\
import math

from . import config as settings


class Meter:
    def __init__(self):
        self.values = []

    def add(self, value):
        self.values.append(value)


def check(loss, step):
    if loss != loss:
        raise ValueError(f"loss is nan at step {step}")


def run(steps):
    meter = Meter()
    weight = settings.START
    for step in range(steps):
        weight = weight * settings.RATE
        loss = weight - weight if step < 3 else math.inf - math.inf
        meter.add(loss)
        check(loss, step)
""",
}


WRONG_WIDTH = {
    "train.py": """\
import struct

from sizes import make_config


def check(params):
    return params["scale"] + params["offset"]


def run(cfg, data):
    params = {}
    params["scale"] = 2
    params["shift"] = 1
    if cfg["strict"]:
        check(params)
    return struct.unpack("%ds" % cfg["width"], data)


run(make_config(4, strict=__STRICT__), bytes(8))
""",
    "sizes.py": """\
def make_config(base, strict):
    return {"width": base * 2 + 1, "name": "x", "strict": strict}
""",
}


def test_a_known_fix_is_still_one_for_the_script(tmp_path: Path) -> None:
    """A constant in the place of what computes it fails the same way, and can not be repaired."""
    train = WRONG_WIDTH["train.py"].replace("__STRICT__", "False")
    place = lay(tmp_path / "project", {**WRONG_WIDTH, "train.py": train})
    (tmp_path / "fix.patch").write_text(
        "--- a/sizes.py\n+++ b/sizes.py\n@@ -1,2 +1,2 @@\n def make_config(base, strict):\n"
        '-    return {"width": base * 2 + 1, "name": "x", "strict": strict}\n'
        '+    return {"width": base * 2, "name": "x", "strict": strict}\n'
    )
    result, script = reduced(place, "train.py", options=("--fixed-by", tmp_path / "fix.patch"))
    assert result["axes"][0]["ends_well_repaired"] is True
    assert "* 2 + 1" in script
    said = alone(script, tmp_path / "empty")
    assert said.endswith("struct.error: unpack requires a buffer of 9 bytes\n")


def test_a_function_that_is_called_like_its_module_is_what_a_package_gives(tmp_path: Path) -> None:
    """`from .solve import solve` in a package hides the module of that name."""
    files = {
        "train.py": "from solver import solve\n\nprint(solve([1, 2]))\n",
        "solver/__init__.py": "from .impl import solve\n",
        "solver/impl/__init__.py": "from .solve import solve\n",
        "solver/impl/solve.py": "def solve(rows):\n    return rows[len(rows)]\n",
    }
    result, script = reduced(lay(tmp_path / "project", files), "train.py")
    assert result["axes"][0]["final_files"] == 1
    assert alone(script, tmp_path / "empty").endswith("IndexError: list index out of range\n")


def test_what_was_stored_under_a_wrong_name_stays(tmp_path: Path) -> None:
    """Without that line the failure has the same words, and another cause."""
    train = WRONG_WIDTH["train.py"].replace("__STRICT__", "True")
    place = lay(tmp_path / "project", {**WRONG_WIDTH, "train.py": train})
    result, script = reduced(place, "train.py")
    assert result["axes"][0]["final_lines"] <= 12
    assert '["shift"] = 1' in script
    assert alone(script, tmp_path / "empty").endswith("KeyError: 'offset'\n")


DYNAMIC = {
    "main.py": """\
import importlib
import sys

from pkg.registry import MODELS


def load(name):
    importlib.import_module("pkg.models." + name)
    return MODELS[name]


def main(argv):
    model = load(argv[0])()
    print(model.predict([1, 2, 3]))


if __name__ == "__main__":
    main(sys.argv[1:])
""",
    "pkg/registry.py": """\
MODELS = {}


def register(name):
    def note(cls):
        MODELS[name] = cls
        return cls

    return note
""",
    "pkg/models/tiny.py": """\
from pkg.registry import register


@register("tiny")
class Tiny:
    def __init__(self):
        self.weights = [1, 2]

    def predict(self, rows):
        return [self.weights[index] * row for index, row in enumerate(rows)]
""",
}


def test_a_module_that_is_imported_by_its_text_stays_beside_and_is_named(tmp_path: Path) -> None:
    """Without its argument the program says the same words for another reason: `argv[0]`."""
    place = lay(tmp_path / "project", DYNAMIC)
    result, script = reduced(place, "main.py", "tiny")
    (row,) = result["axes"]
    assert row["beside"] == ["pkg/models/tiny.py", "pkg/registry.py"]
    assert row["final_files"] == 3
    run = place / result["run_dir"] / "shrunken" / "run_repro.sh"
    done = subprocess.run(["bash", run], capture_output=True, text=True, check=False, cwd="/")
    assert done.stderr.endswith("IndexError: list index out of range\n")
    assert "self.weights[index]" in done.stderr
    assert "predict" in script


WORKERS = {
    "work.py": """\
from dataclasses import dataclass
from multiprocessing import Pool

import parts
from parts import scale as scaled


@dataclass
class Item:
    key: str
    value: int = 0


def scale(x):
    return x + 1


def job(item):
    return parts.TABLE[item.key] * scaled(scale(item.value))


if __name__ == "__main__":
    with Pool(1) as pool:
        print(pool.map(job, [Item("a", 1), Item("zz", 3)]))
""",
    "parts.py": """\
TABLE = {"a": 1, "b": 2}


def scale(x):
    return x * 10


if __name__ == "__main__":
    print("not this")
""",
}


def test_what_fails_in_a_worker_process_is_found_there(tmp_path: Path) -> None:
    """Both modules define `scale`; a guarded part of a module that is imported never runs."""
    result, script = reduced(lay(tmp_path / "project", WORKERS), "work.py")
    assert result["axes"][0]["final_lines"] <= 16
    assert "not this" not in script
    assert alone(script, tmp_path / "empty").endswith("KeyError: 'zz'\n")


CONFIGURED = {
    "run.py": """\
from lab import plugins
from lab.config import main
from lab.registry import STEPS


def train(cfg):
    total = 0
    for batch in plugins.Loader(cfg.data.size):
        total += STEPS[cfg.model.step](batch, cfg.optim.rate)
    return total


@main("conf.json")
def app(cfg):
    train(cfg)


if __name__ == "__main__":
    app()
""",
    "conf.json": '{"data": {"size": 4}, "model": {"step": "scaled"}, "optim": {"rate": 1}}',
    "lab/__init__.py": "",
    "lab/registry.py": """\
STEPS = {}


def step(function):
    STEPS[function.__name__] = function
    return function
""",
    "lab/plugins.py": """\
import os

from .registry import step

os.environ["LAB_READY"] = "1"


def load(number):
    return [number] * 3


class Loader:
    def __init__(self, size):
        self.size = size

    def __iter__(self):
        yield from map(load, range(self.size))


@step
def scaled(batch, rate):
    if os.environ["LAB_READY"] != "1":
        raise RuntimeError("the plugins were not imported")
    return sum(batch) / (rate - 2)
""",
    "lab/config.py": """\
import json
import sys
from dataclasses import dataclass


@dataclass
class Node:
    def __init__(self, content):
        for name, value in content.items():
            setattr(self, name, Node(value) if isinstance(value, dict) else value)


def main(file):
    def decorated(function):
        def run():
            with open(file) as opened:
                content = json.load(opened)
            for word in sys.argv[1:]:
                path, value = word.split("=")
                group, name = path.split(".")
                content[group][name] = int(value)
            return function(Node(content))

        return run

    return decorated
""",
}


def test_overrides_side_effects_and_loaders_become_one_script(tmp_path: Path) -> None:
    """A decorated entry with overrides, a registry filled by an import, a loader."""
    place = lay(tmp_path / "project", CONFIGURED)
    result, script = reduced(place, "run.py", "optim.rate=2")
    (row,) = result["axes"]
    assert (result["status"], result["shipped_copy"]["self_contained"]) == ("reduced", True)
    assert (row["kind"], row["initial_files"], row["final_files"]) == ("source", 6, 1)
    assert row["final_lines"] <= 30 < row["initial_lines"]
    assert result["trials"] <= 400
    assert script.startswith("# Made by aorta reduce from run.py")
    assert "rate - 2" in script
    assert alone(script, tmp_path / "empty").endswith("ZeroDivisionError: division by zero\n")
    run = place / result["run_dir"] / "shrunken" / "run_repro.sh"
    done = subprocess.run(["bash", run], capture_output=True, text=True, check=False, cwd="/")
    assert done.stderr.splitlines()[-1] == "ZeroDivisionError: division by zero"


def test_stopped_in_the_middle_it_goes_on_to_a_script_whose_check_stays_under_its_condition(
    tmp_path: Path,
) -> None:
    """The words alone are no answer: what makes them true stays too."""
    place = lay(tmp_path / "project", CHECKED)
    words = ("reduce", "--source", "-q", "--", sys.executable, "train.py")
    process = start_aorta(*words, cwd=place)
    wait_until(lambda: bool(list(place.glob("reduce/2*/shrunken/repro.py"))), "a first script")
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=patience())
    (run_dir,) = (place / "reduce").glob("2*")
    assert json.loads((run_dir / "result.json").read_text())["status"] == "partial"
    first = (run_dir / "shrunken" / "repro.py").read_text()
    done = aorta("reduce", "--resume", run_dir, "--json", "-q", cwd=place)
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["resumed_trials"] > 3
    script = (run_dir / "shrunken" / "repro.py").read_text()
    assert len(script.splitlines()) < len(first.splitlines())
    assert alone(script, tmp_path / "empty").endswith("ValueError: loss is nan at step 3\n")
    assert "if loss != loss:" in script
    assert "math.inf - math.inf" in script


MIRRORED = {
    "mirror.py": """\
class Kind:
    def __init__(self, name):
        self.name = name


def opposite_of(pairs):
    table = {}
    for one, other in pairs:
        table[one] = other
        table[other] = one
    return table


SMALL, LARGE, SLOW, FAST = map(Kind, ["small", "large", "slow", "fast"])
OPPOSITES = opposite_of([(SMALL, LARGE), (SLOW, FAST)])


def mirrored(kinds):
    seen = {"start": 0}
    for kind in kinds:
        if kind.name:
            found = (OPPOSITES[kind].name, seen[kind.name])
            seen[kind.name] = found
    return seen


exec(open("options.py").read())
print(mirrored(list(OPPOSITES)[:COUNT]))
""",
    "options.py": "COUNT = 2\nVERBOSE = False\n",
}


def test_objects_that_are_keys_and_a_file_that_is_executed_as_text(tmp_path: Path) -> None:
    """Such a key is written with its address, which is another one in every run."""
    result, script = reduced(lay(tmp_path / "project", MIRRORED), "mirror.py")
    (row,) = result["axes"]
    assert (row["final_files"], result["status"]) == (1, "reduced")
    assert row["final_lines"] <= 24
    assert "seen[kind.name]" in script
    assert alone(script, tmp_path / "empty").endswith("KeyError: 'small'\n")


ROWS = "".join(f"{number},{'oops' if number == 17 else number / 4}\n" for number in range(30))
FIT = """\
import argparse

from rows import Rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    rows = Rows(args.data)
    weight = 0.0
    for epoch in range(args.epochs):
        for index in range(len(rows)):
            x, y = rows[index]
            weight += 0.01 * (y - weight * x)
        print(epoch, weight)


if __name__ == "__main__":
    main()
"""
TABLE = """\
import csv


class Rows:
    def __init__(self, path):
        with open(path) as lines:
            self.rows = list(csv.DictReader(lines))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        x, y = float(row["x"]), row["y"]
        if not y.replace(".", "").isdigit():
            raise ValueError("row %d has no target: %r" % (index, row))
        return x, float(y)
"""


def test_a_small_file_stands_in_the_script_as_text_with_its_reader(tmp_path: Path) -> None:
    files = {"fit.py": FIT, "rows.py": TABLE, "rows.csv": f"x,y\n{ROWS}"}
    place = lay(tmp_path / "project", files)
    result, script = reduced(place, "fit.py", "--data", "rows.csv")
    (row,) = result["axes"]
    assert (row["initial_files"], row["final_files"]) == (3, 1)
    assert "csv.DictReader(" in script
    assert 'if not y.replace(".", "").isdigit():' in script
    last = "ValueError: row 17 has no target: {'x': '17', 'y': 'oops'}\n"
    assert alone(script, tmp_path / "empty").endswith(last)


def test_a_reader_that_fails_at_the_first_row_stays(tmp_path: Path) -> None:
    """Nothing says that it is the data: a wrong delimiter fails like this."""
    reader = TABLE.replace("DictReader(lines)", 'DictReader(lines, ["x", "y"], delimiter=";")')
    files = {"fit.py": FIT, "rows.py": reader, "rows.csv": "1,2\n3,4\n"}
    _, script = reduced(lay(tmp_path / "project", files), "fit.py", "--data", "rows.csv")
    assert "delimiter" in script
    said = alone(script, tmp_path / "empty")
    assert said.endswith("ValueError: could not convert string to float: '1,2'\n")


LEDGER = """\
import os, sys

def check(rows):
    print(f"{len(rows)} rows")
    if len(rows) < 6:
        print("ERROR: ledger is too short", file=sys.stderr)
        sys.exit(1)
    if any(row < 0 for row in rows):
        print(f"ERROR: ledger {os.getpid()} is out of balance", file=sys.stderr)
        sys.exit(1)

check([int(line) for line in open("rows.txt")])
"""


def test_an_exit_after_an_error_stays_under_its_condition_with_the_error(tmp_path: Path) -> None:
    rows = "".join(f"{row if row != 13 else -13}\n" for row in range(20))
    result, script = reduced(
        lay(tmp_path / "app", {"check.py": LEDGER, "rows.txt": rows}), "check.py"
    )
    assert result["status"] == "reduced"
    assert "< 0 for row in" in script
    assert "out of balance" in script
    well = script.replace("-13", "13")
    assert well != script
    done = subprocess.run([sys.executable, "-c", well], capture_output=True, check=False)
    assert done.returncode == 0


SHORT_TABLE = """\
text = "the cat and the dog and the bird saw the fish near the old stone bridge over the river"
words = text.split()
words = sorted(set(words))
numbers = {word: at for at, word in enumerate(words)}
rows = [0.5] * (len(numbers) - 1)
for word in text.split():
    index = numbers[word]
    rows[index] += 1
"""


@pytest.mark.parametrize(
    ("failing", "stays"),
    [
        ("if sum(widths) > 3: raise ValueError('too wide')", "raise ValueError("),
        ("rows = widths[9]; total = sum(widths)", "[9]"),
        ("first = widths[0]; rows = widths[9]", "[9]"),
        ("for width in widths: assert width < 4, 'too wide'", "assert"),
        ("class Rows: total = widths[9]", "[9]"),
    ],
)
def test_of_several_statements_in_one_line_it_is_the_one_that_failed(
    failing: str, stays: str, tmp_path: Path
) -> None:
    text = f"import os\nnames = os.listdir('.')\nwidths = [2, 3, 4]\nprint(len(names))\n{failing}\n"
    lay(tmp_path, {"train.py": text})
    _, script = reduced(tmp_path, "train.py")
    assert stays in script
    assert "names" not in script


def test_what_a_check_asks_for_its_type_keeps_it(tmp_path: Path) -> None:
    """An object with the same attributes would fail the same check for another reason."""
    text = """\
class Owner:
    def rename(self):
        self.name = 'x'
class Part:
    def __init__(self, owner):
        self.owner = owner
    def check(self):
        assert isinstance(self.owner, Owner) and self.owner.ready, 'the owner is not ready'
owner = Owner()
owner.ready = False
print('made')
part = Part(owner)
part.check()
"""
    _, script = reduced(lay(tmp_path, {"train.py": text}), "train.py")
    assert "owner = Owner()" in script
    assert "rename" not in script


def test_what_is_no_program_without_a_statement_is_no_candidate(tmp_path: Path) -> None:
    counter = """\
def counter(names):
    total = len(names)
    def add(more):
        nonlocal total
        total += more
        assert total < 9, 'too many'
        return total
    return add
"""
    text = f"{counter}add = counter('abc')\nprint([1, 2])\nfor more in range(9): add(more)\n"
    _, script = reduced(lay(tmp_path, {"train.py": text}), "train.py")
    assert "nonlocal total" in script
    assert "print" not in script


def test_an_index_that_is_further_out_of_range_is_another_failure(tmp_path: Path) -> None:
    """Without the set the same statement fails, but one row more would not be enough."""
    _, script = reduced(lay(tmp_path, {"train.py": SHORT_TABLE}), "train.py")
    well = script.replace("len(numbers) - 1", "len(numbers)")
    assert well != script
    done = subprocess.run([sys.executable, "-c", well], capture_output=True, check=False)
    assert done.returncode == 0, script


SPAN = {
    "report.py": """\
from functools import reduce

from spans import widened

low, high = reduce(widened, [[1, 2], [0, 4]], (9, 0))
print(high - low)
""",
    "spans.py": """\
def widened(span, row):
    low = min(span[0], row[0])
    high = max(span[1], row[len(row)])
    return low, high
""",
}


def test_a_function_that_fails_in_its_middle_still_returns_once_repaired(tmp_path: Path) -> None:
    """What it would have returned never ran, and its caller takes it apart."""
    _, script = reduced(lay(tmp_path, SPAN), "report.py")
    well = script.replace("[len(row)]", "[len(row) - 1]")
    assert well != script
    done = subprocess.run([sys.executable, "-c", well], capture_output=True, check=False)
    assert done.returncode == 0, script


@pytest.mark.parametrize(
    ("returned", "stays"),
    [
        ("first, rows", True),
        ("{'first': first}", True),
        ("later", False),  # nothing binds it any more
        ("len(first)", False),  # it could fail itself, without what stood before it
    ],
)
def test_of_returns_that_never_ran_those_stay_that_cannot_fail(returned: str, stays: bool) -> None:
    text = f"""\
class Table:
    def __init__(self):
        self.size = 2

    def read(self, rows):
        with rows:
            first = rows[self.size]
            later = self.later = first
        return {returned}

    def unused(self):
        return 1

Table().read([1])
"""
    frames = (UserFrame("a.py", "<module>", 14, {}), UserFrame("a.py", "read", 7, {}))
    ran = frozenset({1, 2, 3, 5, 6, 7, 11, 14})
    program = Program(text, TraceFacts(lines={"a.py": ran}, frames=frames))
    [(_, made)] = candidates(program, (never_executed,), set())
    assert ("return " in made) is stays


def test_of_operands_those_that_two_runs_had_must_stay() -> None:
    def facts(*operands: str) -> TraceFacts:
        frame = UserFrame("train.py", "<module>", 1, {}, operands=operands, largest=len(operands))
        return TraceFacts(frames=(frame,))

    def failing(first: TraceFacts, second: TraceFacts) -> FailingStatement:
        return failing_statement(first, second, lambda _: "total += a[i]")

    found = failing(facts("int", "list of 1"), facts("float", "list of 1"))
    assert found.operands == ("list of 1",)
    assert found.largest == 2
    assert failing(facts("int"), facts("int", "int")).largest is None


def test_a_file_that_is_read_no_more_does_not_lie_beside_the_script() -> None:
    text = "rows = open('rows').read()\nnames = open('names').read()\nmodel = []\nmodel[0]\n"

    def facts_of(candidate: Candidate) -> TraceFacts:
        lines = candidate.text.splitlines()
        frame = UserFrame("repro.py", "<module>", len(lines), {})
        opened = tuple(name for name in ("names", "rows") if f"'{name}'" in candidate.text)
        return TraceFacts((UserModule("__main__", "repro.py", ""),), (), {}, opened, "", (frame,))

    first = iter([Candidate(text, ("names", "rows"))])
    search = SourceSearch(first, facts_of, lambda _: None, lambda _: False, {})
    while not search.done:
        [point] = search.ask(1)
        asked = search.known[str(point[AXIS])]
        fails = "model = []" in asked.text and set(facts_of(asked).opened) <= set(asked.beside)
        search.tell(point, Verdict(fails))
    assert search.accepted[-1].text == "model = []\nmodel[0]\n"
    assert search.accepted[-1].beside == ()


def test_of_two_that_are_tried_side_by_side_the_one_that_saves_more_is_taken() -> None:
    text = "first = 1\nsecond = [first]\nsecond.sort()\nmodel = []\nmodel[0]\n"

    def facts_of(candidate: Candidate) -> TraceFacts:
        frame = UserFrame("repro.py", "<module>", len(candidate.text.splitlines()))
        return TraceFacts(frames=(frame,))

    search = SourceSearch(iter([Candidate(text)]), facts_of, lambda _: None, lambda _: False, {})
    search.tell(search.ask(1)[0], Verdict(True))
    asked = 0
    while not search.done:
        points = search.ask(2)
        asked += len(points)
        assert asked < 100
        before = len(search.accepted)
        fails = ["model = []" in search.known[str(point[AXIS])].text for point in points]
        for point, failed in reversed(list(zip(points, fails, strict=True))):
            if search.wants(point):
                search.tell(point, Verdict(failed))
        if any(fails):
            taken = search.known[str(points[fails.index(True)][AXIS])]
            assert search.accepted[before:] == [taken]
    assert search.accepted[-1].text == "model = []\nmodel[0]\n"


def test_a_command_without_a_program_of_the_users_is_refused(tmp_path: Path) -> None:
    done = aorta("reduce", "--source", "--", "false", cwd=tmp_path)
    assert done.exit_code == 2
    assert "expected such as: python train.py" in done.stderr


def candidates_of(text: str, step: Pass = parts_left_out, *frames: UserFrame) -> set[str]:
    edits = step(Program(text, TraceFacts(frames=frames)))
    return {made for _, make in edits if (made := make()) is not None}


def test_one_entry_of_a_short_list_goes_alone() -> None:
    found = candidates_of("layers = [one, two, three]\nlayers[0]()\n")
    kept = {text.partition("\n")[0] for text in found}
    for wanted in ("[two, three]", "[one, three]", "[one, two]"):
        assert f"layers = {wanted}" in kept


def test_a_return_that_never_ran_keeps_its_entries() -> None:
    text = "def read(a, b):\n    a[b]\n    return [a, b]\n\nread([1], 1)\n"
    found = candidates_of(text)
    assert any("read([], 1)" in made for made in found)
    assert all("[a, b]" in made for made in found)


def test_a_function_that_is_called_once_becomes_statements_of_its_caller() -> None:
    """Its variables are called otherwise where the caller has such names; what it returns stays."""
    text = """\
def scaled(row, by=2):
    total = sum(row)
    return total * by
total = 1
rows = [1, 2]
print(scaled(rows), total)
"""
    assert candidates_of(text, calls_inlined) == {
        """\
total = 1
rows = [1, 2]
by = 2
scaled_total = sum(rows)
print(scaled_total * by, total)
"""
    }


def test_of_methods_of_one_name_the_one_that_failed_becomes_statements() -> None:
    text = """\
class First:
    def step(self, row):
        return row
class Second:
    def step(self, row):
        self.rows[row]
        return row
def run(model, row):
    row = First().step(row)
    row = model.step(row)
run(Second(), 3)
"""
    caller = UserFrame("train.py", "run", 10, position=(10, 10, 10, 25))
    found = candidates_of(text, calls_inlined, caller, UserFrame("train.py", "step", 6))
    assert any("    model.rows[row]\n    row = row\nrun(Second" in made for made in found)


@pytest.mark.parametrize(
    "function",
    [
        "def read(row):\n    if row:\n        return 1\n    return row",
        "def read(row):\n    yield row",
        "def read(*row):\n    return row",
        "@cached\ndef read(row):\n    return row",
    ],
)
def test_a_function_that_is_not_plain_stays_one(function: str) -> None:
    assert not candidates_of(f"{function}\nread(1)\n", calls_inlined)


def test_a_large_integer_becomes_two_or_its_half() -> None:
    assert candidates_of("rows = [8] * 100\n", integers_smaller) == {
        "rows = [8] * 2\n",
        "rows = [8] * 50\n",
    }


def test_a_module_of_torchs_or_of_the_users_becomes_one_that_does_nothing() -> None:
    text = """\
import torch
class Norm(torch.nn.Module):
    pass
layers = [torch.nn.Linear(2, 3), Norm(), torch.nn.Identity()]
"""
    found = candidates_of(text, modules_as_identity)
    kept = {made.splitlines()[-1] for made in found}
    nothing = "torch.nn.Identity()"
    assert kept == {
        f"layers = [{nothing}, Norm(), {nothing}]",
        f"layers = [torch.nn.Linear(2, 3), {nothing}, {nothing}]",
    }


def test_a_configuration_stands_as_it_was_and_another_value_only_in_a_long_program() -> None:
    text = "config = read()\nrows = load(config)\nrows[config.at]\n"
    seen = {"config": "types.SimpleNamespace(at=3)", "rows": "[1, 2]"}
    frame = UserFrame("train.py", "<module>", 3, seen)
    (as_it_was,) = candidates_of(text, configurations_as_seen, frame)
    assert "config = types.SimpleNamespace(at=3)\nrows = load(config)" in as_it_was
    found = candidates_of(text, values_as_seen, frame)
    assert any("config = read()\nrows = [1, 2]" in made for made in found)


def test_annotations_go_but_for_fields_of_a_class() -> None:
    text = (
        "class Rows:\n    size: int = 3\n\n    def __init__(self):\n        self.all: Dict = {}\n"
    )
    tidied = tidy(f"from typing import Dict\n{text}Rows()\n")
    assert "size: int = 3" in tidied
    assert "self.all = {}" in tidied
    assert "Dict" not in tidied


def test_annotations_of_a_function_that_is_decorated_stay() -> None:
    text = "@show.register\ndef _(x: int) -> str:\n    return 'int'\n"
    assert "def _(x: int) -> str:" in tidy(f"show = made()\n{text}")


@pytest.mark.parametrize(
    ("bases", "stays"),
    [
        ("", False),
        ("(nn.Module)", False),
        ("(Plain)", False),
        ("(Plain, ValueError)", False),
        ("(Registered)", True),
        ("(Below)", True),
        ("(Plain, metaclass=Checked)", True),
        ("(Enum)", True),
    ],
)
def test_a_class_that_nothing_names_goes_unless_something_hears_of_it(
    bases: str, stays: bool
) -> None:
    text = f"""\
class Plain:
    pass
class Registered:
    def __init_subclass__(cls):
        known.append(cls)
class Below(Registered):
    pass
class Net{bases}:
    size = 3
run(Plain, Below)
"""
    assert ("class Net" in tidy(text)) is stays


def test_a_store_that_never_ran_does_not_have_to_stay() -> None:
    text = "def other(table):\n    table['c'] = 3\n\ntable = {}\ntable['a'] = 1\ntable['b']\n"
    frame = UserFrame("repro.py", "<module>", 6, {}, position=[6, 6, 0, 10])
    facts = TraceFacts(lines={"repro.py": frozenset({1, 4, 5, 6})}, frames=(frame,))
    assert must_hold(Program(text, facts)).kept == ("table['a'] = 1",)


TRACED = """\
import threading
class Rows:
    def __init__(self, count):
        self.count = count
    def each(self):
        for row in range(self.count):
            if row > 9:
                print(row)
            yield row
    def __repr__(self):
        return "only looked at"
def work(rows):
    print(len(list(rows.each())))
thread = threading.Thread(target=work, args=(Rows(3),))
thread.start()
thread.join()
[].pop()
"""


def starts(python: str) -> bool:
    found = shutil.which(python)
    return bool(found) and not subprocess.run([python, "-c", ""], capture_output=True).returncode


# Whichever are installed besides the suite's own.
PYTHONS = [sys.executable, *filter(starts, ("python3.9", "python3.12", "python3.13"))]


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lines_that_ran_are_seen_by_each_way_to_trace(python: str, tmp_path: Path) -> None:
    """`sys.monitoring` from Python 3.12 on, `sys.settrace` before."""
    lay(tmp_path, {"train.py": TRACED})
    variables = {
        "AORTA_TRIAL_DIR": str(tmp_path),
        "AORTA_SOURCE_FACTS": "facts.jsonl",
        "AORTA_SOURCE_ROOT": ".",
        "PYTHONPATH": str(Path(source.__file__).parent / "hook"),
    }
    subprocess.run([python, "train.py"], cwd=tmp_path, env=environ(variables), check=False)
    facts = read_facts(tmp_path / "facts.jsonl")
    assert sorted(facts.executed) == [1, 2, 3, 4, 5, 6, 7, 9, 10, 12, 13, 14, 15, 16, 17]
    assert facts.message == "pop from empty list"
