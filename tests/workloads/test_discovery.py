"""Workloads of installed distributions: found by name, checked without being imported, run by the
child.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aorta.core.axis import Point
from aorta.core.errors import RegistryError
from aorta.registry.workloads import check_workload
from aorta.workloads.base import load_workload
from aorta.workloads.half_nan import HalfNan
from aorta.workloads.trial import WorkloadRequest, workload_experiment
from support.waiting import patience

MODULE = """
from aorta.workloads.base import Workload, WorkloadResult

class Gadget(Workload):
    def setup(self): ...
    def run(self): return WorkloadResult(passed=True, metrics={"from": __name__})
"""


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A real distribution as pip leaves it: a module and its metadata, on the path."""
    site = tmp_path / "site"
    info = site / "gadgets-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "gadgets.py").write_text(MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gadgets\nVersion: 1.0\n")
    points = "gadget = gadgets:Gadget\nbroken = no_such_module:Nothing\n"
    (info / "entry_points.txt").write_text(f"[aorta.workloads]\n{points}")
    monkeypatch.syspath_prepend(str(site))
    return site


def test_a_plugin_workload_is_found_by_name_and_run_in_the_child(
    distribution: Path, tmp_path: Path
) -> None:
    trial = workload_experiment(WorkloadRequest("gadget")).trial(Point.of({}), 0, tmp_path)
    env = {**os.environ, "PYTHONPATH": str(distribution)}
    subprocess.run(trial.argv, env=env, check=True, timeout=patience())
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["metrics"] == {"from": "gadgets"}


def test_checking_a_name_does_not_import_the_workload(distribution: Path) -> None:
    check_workload("gadget")
    check_workload("broken")
    assert "gadgets" not in sys.modules


def test_a_plugin_that_cannot_be_imported_is_named_with_its_distribution(
    distribution: Path,
) -> None:
    with pytest.raises(RegistryError, match=r"gadgets: entry point aorta\.workloads:broken: could"):
        load_workload("broken")


def test_a_class_can_be_named_without_being_registered() -> None:
    assert load_workload("aorta.workloads.half_nan:HalfNan") is HalfNan


@pytest.mark.parametrize("name", ["command", "json:JSONDecoder", "json:nothing", "json:dumps"])
def test_what_is_no_workload_class_is_refused(name: str) -> None:
    with pytest.raises(RegistryError, match=f"workload '{name}' is no subclass"):
        load_workload(name)


def test_a_misspelt_name_gets_a_suggestion() -> None:
    with pytest.raises(RegistryError, match="did you mean half_nan"):
        check_workload("half_man")
