"""Reductions of a registered workload: what ships is evidence only where the workload can be loaded,
and stands for one failure of it.
"""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from aorta.core.documents import dump_yaml, parse_document
from support.aorta_cli import aorta, environ
from support.reductions import run_dir_of, with_trials

DETECTOR = """
import sys
from aorta.workloads.base import Workload, WorkloadResult

class Detector(Workload):
    axes = ({"name": "N", "kind": "env", "type": "int", "initial": 40, "floor": 1},)
    predicates = {"ended_in_nan": lambda result: result.metrics["nan"]}

    def setup(self): ...

    def run(self):
        bad = int(self.variables()["N"]) >= 7
        if bad and self.config.get("raises"):
            raise ArithmeticError("loss is nan")
        hint = "loss is nan"
        details = [{"hint": hint}] if bad else []
        return WorkloadResult(
            passed=not bad, failure_count=int(bad), failure_details=details, metrics={"nan": bad}
        )
"""


def detector(folder: Path) -> str:
    """The file of a workload class, and its name."""
    (folder / "detector.py").write_text(DETECTOR)
    return "detector:Detector"


def reduced(folder: Path, path: Path | str, **spec: Any) -> tuple[Any, Path]:
    """The report of a reduction in the folder, with `path` as PYTHONPATH, and the run directory."""
    workload = {"name": detector(folder), **spec.pop("workload", {})}
    (folder / "a.yaml").write_text(dump_yaml({"workload": workload, **spec}))
    paths = os.pathsep.join([environ()["PYTHONPATH"], str(path)])
    done = aorta(
        "reduce", "--spec", "a.yaml", "--output", "o", "--json", "-q",
        cwd=folder, env={"PYTHONPATH": paths},
    )  # fmt: skip
    report = done.json()
    assert "run_dir" in report, done
    return report, run_dir_of(report, folder)


def recipe_of(run_dir: Path) -> Any:
    place = run_dir / "shrunken" / "recipe.resolved.yaml"
    return parse_document(place.read_text(), "yaml", where=str(place))


def test_a_copy_that_cannot_load_its_workload_did_not_fail_the_same_way(tmp_path: Path) -> None:
    report, run_dir = reduced(tmp_path, ".")  # relative: the copy runs elsewhere
    assert report["status"] == "partial", report
    assert report["search"] == "reduced"
    assert report["shipped_copy"]["reproduced"] == report["shipped_copy"]["of"] == 0
    ship = (run_dir / "SHIP.md").read_text()
    assert "failed the same way" not in ship
    assert "No module named 'detector'" in ship


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"workload": {"config": {"raises": True}}},
        {"oracle": {"kind": "python", "predicate": "ended_in_nan"}},
        {"oracle": {"kind": "exit_code"}},
        {
            "oracle": {"kind": "regex", "pattern": "Error|nan"},
            "workload": {"config": {"raises": True}},
        },
    ],
    ids=["result", "raises", "predicate", "exit code", "regex"],
)
def test_where_its_workload_is_missing_a_recipe_could_not_tell(
    tmp_path: Path, spec: dict[str, Any]
) -> None:
    report, run_dir = reduced(tmp_path, tmp_path, **spec)
    assert report["shipped_copy"]["self_contained"] is True, report
    recipe = run_dir / "shrunken" / "recipe.resolved.yaml"
    oracle = recipe_of(run_dir)["workload_config"]["oracle"]
    assert oracle["kind"] == "regex" or "nan" in oracle["failure"]["message"]
    with_trials(recipe, 2)
    words = ("triage", "run", "--recipe", recipe, "--json", "-q", "--output-dir")
    there = aorta(*words, "there", cwd=tmp_path, env={"PYTHON": sys.executable})
    counts = [(cell["failed_count"], cell["other_count"]) for cell in there.json()["cells"]]
    assert set(counts) == {(0, 0)}, there.json()["cells"][0]
    assert {cell["call"] for cell in there.json()["cells"]} == {"did not run"}
    assert there.exit_code == 5
    paths = os.pathsep.join([environ()["PYTHONPATH"], str(tmp_path)])
    here = aorta(*words, "here", cwd=tmp_path, env={"PYTHON": sys.executable, "PYTHONPATH": paths})
    baseline = here.json()["cells"][0]
    assert baseline["failed_count"] == baseline["trials"] > 0, baseline


def test_another_failure_of_the_workload_is_not_that_of_its_recipe(tmp_path: Path) -> None:
    _, run_dir = reduced(tmp_path, tmp_path)
    worse = DETECTOR.replace('hint = "loss is nan"', 'hint = "no rank answered in time"')
    (tmp_path / "detector.py").write_text(worse)
    paths = os.pathsep.join([environ()["PYTHONPATH"], str(tmp_path)])
    recipe = run_dir / "shrunken" / "recipe.resolved.yaml"
    with_trials(recipe, 3)
    done = aorta(
        "triage", "run", "--recipe", recipe, "--json", "-q",
        cwd=tmp_path, env={"PYTHON": sys.executable, "PYTHONPATH": paths},
    )  # fmt: skip
    baseline = done.json()["cells"][0]
    assert (baseline["failed_count"], baseline["other_count"]) == (0, baseline["trials"])


@pytest.mark.parametrize(
    ("oracle", "said", "where"),
    [
        (
            {"kind": "python", "predicate": "ended_in_nann"},
            "did you mean 'ended_in_nan'?",
            "oracle.predicate",
        ),
        ({"kind": "python", "predicate": "x"}, "it has: ended_in_nan", "oracle.predicate"),
        ({"kind": "exit_code", "codes": []}, "names no code", "oracle.codes"),
    ],
)
def test_an_oracle_that_can_never_fire_is_refused_before_anything_runs(
    tmp_path: Path, oracle: dict[str, Any], said: str, where: str
) -> None:
    """Without PYTHONPATH: the trials' Python finds the class in the directory of the spec."""
    document = {"workload": {"name": detector(tmp_path)}, "oracle": oracle}
    (tmp_path / "a.yaml").write_text(dump_yaml(document))
    done = aorta("reduce", "--spec", "a.yaml", "--output", "o", "--json", "-q", cwd=tmp_path)
    assert done.exit_code == 2, done
    assert said in done.json()["error"]["message"]
    assert done.json()["error"]["where"] == f"a.yaml: {where}"
    assert not (tmp_path / "o").exists()


def test_a_workload_that_cannot_be_loaded_is_said_in_one_line(tmp_path: Path) -> None:
    done = aorta("reduce", "--workload", "nowhere:Nothing", "--output", "o", "-q", cwd=tmp_path)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done
    assert "No module named 'nowhere'" in done.stderr
