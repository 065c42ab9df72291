"""From a request to a trial's command line, variables and files; and what is refused before
anything runs.
"""

import json
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from aorta.core.axis import Point
from aorta.core.errors import RegistryError, SpecError, UsageError
from aorta.core.oracle import ExitCodeOracle, PythonOracle, RegexOracle
from aorta.core.trial import Environment, RuntimeKind
from aorta.workloads.trial import WorkloadRequest, workload_experiment

NOWHERE = Point.of({})


def _order(trial_dir: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((trial_dir / "order.json").read_text())
    return content


def test_a_registered_workload_runs_in_a_child_and_leaves_its_result(tmp_path: Path) -> None:
    experiment = workload_experiment(WorkloadRequest("half_nan", steps=200))
    trial = experiment.trial(Point.of({"BATCH_SIZE": 1024}), 0, tmp_path)
    ended = subprocess.run(trial.argv, cwd=trial.cwd, env=dict(trial.env), capture_output=True)
    result = json.loads((tmp_path / "result.json").read_text())
    assert ended.returncode == 1
    assert result["failure_details"][0]["hint"] == "NaN detected at step 137"
    assert result["configured_iterations"] == 200
    assert trial.env == {"BATCH_SIZE": "1024"}
    assert experiment.oracle == PythonOracle()


def test_the_child_needs_nothing_but_an_interpreter(tmp_path: Path) -> None:
    trial = workload_experiment(WorkloadRequest("half_nan")).trial(NOWHERE, 0, tmp_path)
    bare = [trial.argv[0], "-S", "-E", *trial.argv[1:]]  # no site-packages, no PYTHONPATH
    ended = subprocess.run(bare, cwd=tmp_path, env={}, capture_output=True, text=True)
    assert ended.returncode == 1, ended.stderr
    assert "NaN detected" in (tmp_path / "result.json").read_text()


def test_what_lies_beside_aorta_is_not_exposed_to_the_workload(tmp_path: Path) -> None:
    (tmp_path / "looking.py").write_text(
        "import sys\n"
        "from aorta.workloads.base import Workload, WorkloadResult\n"
        "class Looking(Workload):\n"
        "    def setup(self): ...\n"
        "    def run(self): return WorkloadResult(passed=True, metrics={'path': sys.path})\n"
    )
    request = WorkloadRequest("looking:Looking", base=tmp_path)
    trial = workload_experiment(request).trial(NOWHERE, 0, tmp_path)
    subprocess.run([trial.argv[0], "-S", "-E", *trial.argv[1:]], cwd=trial.cwd, env={}, check=True)
    path = json.loads((tmp_path / "result.json").read_text())["metrics"]["path"]
    assert path[0] == ""
    assert not [entry for entry in path if entry.endswith(("aorta", "src", "workloads"))]


def test_in_a_container_aorta_is_mounted_alone_and_read_only(tmp_path: Path) -> None:
    image = Environment("nightly", RuntimeKind.DOCKER, image="some/image:1", mounts=("/d:/d",))
    trial = workload_experiment(WorkloadRequest("half_nan", environment=image)).trial(
        NOWHERE, 0, tmp_path
    )
    source = Path(sys.modules["aorta"].__file__ or "").parent
    assert trial.environment.mounts == ("/d:/d", f"{source}:/opt/aorta/aorta:ro")
    assert trial.argv == (
        "python3",
        "/opt/aorta/aorta/workloads/bootstrap.py",
        str(tmp_path / "order.json"),
    )


def test_a_command_is_run_as_it_is_in_its_own_directory(tmp_path: Path) -> None:
    config = {"command": ["./run"], "cwd": "sub", "oracle": {"kind": "regex", "pattern": "NaN"}}
    request = WorkloadRequest("command", config, base=tmp_path, steps=9)
    experiment = workload_experiment(request)
    trial = experiment.trial(NOWHERE, 0, tmp_path)
    assert (trial.argv, trial.cwd) == (("./run",), tmp_path / "sub")
    assert trial.env == {"AORTA_STEPS": "9"}
    assert experiment.oracle == RegexOracle(pattern="NaN")
    assert trial.watch == experiment.oracle.watch()
    assert not (tmp_path / "order.json").exists()


def test_an_oracle_given_by_hand_wins_over_the_workload_s_own() -> None:
    oracle = ExitCodeOracle(codes=(7,))
    config = {"command": "x", "oracle": {"kind": "regex", "pattern": "NaN"}}
    assert workload_experiment(WorkloadRequest("command", config, oracle=oracle)).oracle == oracle
    assert workload_experiment(WorkloadRequest("half_nan", oracle=oracle)).oracle == oracle


def test_layers_are_environment_mitigations_recipe_cell_and_the_point(tmp_path: Path) -> None:
    names = ("A", "B", "C", "D", "E")
    request = WorkloadRequest(
        "command",
        {"command": "x"},
        environment=Environment("e", env=dict.fromkeys(names, "environment")),
        mitigations=[("m", dict.fromkeys(names[1:], "mitigation"))],
        extra_env=[dict.fromkeys(names[2:], "recipe"), dict.fromkeys(names[3:], "cell")],
    )
    trial = workload_experiment(request).trial(Point.of({"E": 1}), 0, tmp_path)
    assert trial.env == {
        "A": "environment",
        "B": "mitigation",
        "C": "recipe",
        "D": "cell",
        "E": "1",
    }


def test_the_order_holds_names_of_variables_and_never_their_values(tmp_path: Path) -> None:
    request = WorkloadRequest("half_nan", {"LEARNING_RATE": 0.01}, extra_env=[{"TOKEN": "s3cret"}])
    workload_experiment(request).trial(NOWHERE, 4, tmp_path)
    order = _order(tmp_path)
    assert order["trial_env"] == ["TOKEN"]
    assert order["config"] == {"LEARNING_RATE": 0.01}
    assert order["given"]["_aorta_trial_index"] == 4
    assert order["given"]["_aorta_environment"]["name"] == "local"
    assert "s3cret" not in (tmp_path / "order.json").read_text()


def test_trials_of_one_point_have_ids_of_their_own(tmp_path: Path) -> None:
    experiment = workload_experiment(WorkloadRequest("command", {"command": "x"}))
    ids = {experiment.trial(NOWHERE, index, tmp_path).id for index in range(3)}
    assert len(ids) == 3


@pytest.mark.parametrize(
    ("request_", "error", "message"),
    [
        (
            WorkloadRequest("unheard_of"),
            RegistryError,
            "expected one of: command, fsdp, half_nan",
        ),
        (WorkloadRequest("half_nan", {"steps": 3}), SpecError, "workload_config.steps: steps has"),
        (WorkloadRequest("half_nan", {"_aorta_x": 3}), SpecError, "_aorta_ are reserved"),
        (
            WorkloadRequest("half_nan", {"day": date(2026, 1, 1)}),
            SpecError,
            "workload_config.day: the value cannot be given to a process",
        ),
        (WorkloadRequest("half_nan", steps=0), UsageError, "steps is 0"),
        (WorkloadRequest("half_nan", extra_env=[{"1X": "a"}]), UsageError, "not a variable name"),
        (
            WorkloadRequest("half_nan", mitigations=[("a", {"X": "1"}), ("b", {"X": "2"})]),
            UsageError,
            "mitigations 'a' and 'b' set X to different values",
        ),
        (
            WorkloadRequest("command", {"command": "x"}, oracle=PythonOracle()),
            UsageError,
            "no Workload object for a python oracle",
        ),
    ],
)
def test_a_wrong_request_is_refused_before_anything_runs(
    request_: WorkloadRequest, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as wrong:
        workload_experiment(request_)
    assert message in str(wrong.value)


def test_a_subset_is_no_variable(tmp_path: Path) -> None:
    experiment = workload_experiment(WorkloadRequest("command", {"command": "x"}))
    with pytest.raises(UsageError, match="ITEMS is a subset"):
        experiment.trial(Point.of({"ITEMS": (1, 2)}), 0, tmp_path)
