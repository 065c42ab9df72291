"""`aorta solve --stages source`: the failing program as one short script, at the end of a solve."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.aorta_cli import aorta
from support.git_repositories import Repository

PROGRAM = {
    "train.py": "from model import step\n\nfor n in range(20):\n    step(n, [0, 2])\n",
    "model.py": """\
import json


def report(n):
    return json.dumps({"step": n})


def step(n, config):
    report(n)
    if n == 7:
        return config.index(n)
    return config[0]
""",
}


def test_the_program_becomes_one_script_that_fails_alone(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name, text in PROGRAM.items():
        (project / name).write_text(text)
    words = ("solve", "--json", "-q", "--stages", "source", "--", sys.executable, "train.py")
    done = aorta(*words, cwd=project)
    assert done.exit_code == 0, done.stderr
    stages = {row["name"]: row for row in done.json()["stages"]}
    assert stages["reproduce"]["status"] == "done"
    assert stages["source"]["status"] == "done"
    (axis,) = done.json()["reproducer"]["axes"]
    assert (axis["kind"], axis["initial"]) == ("source", 11)
    assert axis["final"] <= 8
    script = Path(project, stages["source"]["run_dir"], "shrunken", "repro.py")
    (tmp_path / "empty").mkdir()
    ran = subprocess.run(
        [sys.executable, script.rename(tmp_path / "empty" / "repro.py")],
        cwd=tmp_path / "empty",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (1, "ValueError: 7 is not in list")
    lines = (tmp_path / "empty" / "repro.py").read_text().splitlines()
    assert len([line for line in lines if not line.startswith("#")]) <= 8


PRICES = """
RATES = {"de": 1.0, "fr": 1.1}


class Totals:
    def add(self, row):
        return RATES[row["country"]] * float(row["price"])
"""
ORDERS = """
import argparse, csv, logging
from prices import Totals

parser = argparse.ArgumentParser()
parser.add_argument("--orders")
options = parser.parse_args()
for row in csv.DictReader(open(options.orders)):
    try:
        Totals().add(row)
    except KeyError as wrong:
        logging.error("cannot price order %s", row["id"])
        raise RuntimeError("pricing failed") from wrong
"""


def test_the_script_reads_what_is_left_of_the_data_and_ships(tmp_path: Path) -> None:
    (tmp_path / "prices.py").write_text(PRICES)
    (tmp_path / "orders.py").write_text(ORDERS)
    rows = [f"{number},{'uk' if number == 70 else 'de'},3.5" for number in range(100)]
    (tmp_path / "orders.csv").write_text("\n".join(["id,country,price", *rows, ""]))
    words = ("solve", "--json", "-q", "--stages", "reduce,source,bundle", "--", sys.executable)
    done = aorta(*words, "orders.py", "--orders", "orders.csv", cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    stages = {row["name"]: row for row in done.json()["stages"]}
    assert stages["bundle"]["status"] == "done", stages["bundle"]
    script = Path(tmp_path, stages["source"]["run_dir"], "shrunken", "repro.py").read_text()
    code = [line for line in script.splitlines() if line.strip() and line[0] != "#"]
    assert len(code) <= 9, script
    assert "uk" in script
    failed = subprocess.run(
        (sys.executable, "-c", script), capture_output=True, text=True, check=False
    )
    assert "KeyError: 'uk'" in failed.stderr


CONFIGURED = """
import sys, yaml

config = yaml.safe_load(open(sys.argv[1]))


def split(width, heads):
    if width % heads:
        raise ValueError(f"{width} channels, {heads} heads")


for layer in range(config["layers"]):
    split(config["width"], config["heads"] - (layer > 4))
"""


def test_a_configuration_is_reduced_without_another_cause_and_then_stands_in_the_script(
    tmp_path: Path,
) -> None:
    (tmp_path / "net.py").write_text(CONFIGURED)
    (tmp_path / "net.yaml").write_text("layers: 24\nwidth: 64\nheads: 8\ntags: [a, b]\n")
    words = ("solve", "--json", "-q", "--stages", "reduce,source", "--", sys.executable)
    done = aorta(*words, "net.py", "net.yaml", cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    axes = {axis["name"]: axis["final"] for axis in done.json()["reproducer"]["axes"]}
    assert (axes["CONFIG_LAYERS"], axes["CONFIG_HEADS"]) == (6, 8), axes
    assert axes["source"] <= 9, axes
    # Of the directory that it was reduced in, nothing ships beside the script.
    source = next(row for row in done.json()["stages"] if row["name"] == "source")
    shipped = Path(tmp_path, source["run_dir"], "shrunken")
    assert [str(f.relative_to(shipped)) for f in shipped.rglob("*.py")] == ["repro.py"]


SPLIT = """
import sys, struct
from sizes import width

for step in range(int(sys.argv[2])):
    struct.unpack("%ds" % width(step), bytes(8))
"""


@pytest.mark.parametrize("stages", ["bisect,source", "reduce,bisect,source"])
def test_the_commit_that_brought_it_is_undone_in_the_script_which_then_ends_well(
    stages: str, tmp_path: Path
) -> None:
    repository = Repository.create(tmp_path / "repository")
    for number, size in enumerate(["8", "4 * 2", "4 * 2 + (step > 2)", "4 * 2 + (step > 2)"]):
        sizes = f"def width(step):\n    return {size}\n"
        files = {"train.py": SPLIT, "sizes.py": sizes, "other.py": f"{number < 2}\n"}
        repository.commit(f"change {number}", files)
    words = ("solve", "--json", "-q", "--output", tmp_path / "solve", "--stages", stages, "--")
    done = aorta(*words, sys.executable, "train.py", "--steps", "40", cwd=repository.path)
    assert done.exit_code == 0, done.stderr
    assert [culprit["title"] for culprit in done.json()["culprits"]] == ["change 2"]
    (axis,) = [a for a in done.json()["reproducer"]["axes"] if a["kind"] == "source"]
    assert axis["ends_well_repaired"] is True
