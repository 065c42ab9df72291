"""The shipped workload on the real executor, in every place a trial can run, up to its record."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aorta.core.axis import Point
from aorta.core.oracle import Classified, classify
from aorta.core.trial import Environment, Outcome, RuntimeKind, TrialEnd
from aorta.executors.local import LocalExecutor
from aorta.workloads.results import TrialLabel, read_trial, trial_document
from aorta.workloads.trial import WorkloadRequest, workload_experiment
from support.services.engines import Engine
from support.services.images import Rootfs
from support.waiting import patience

IMAGE = "aorta-test/python:workloads"


@pytest.fixture
def executor() -> Iterator[LocalExecutor]:
    executor = LocalExecutor()
    yield executor
    executor.close()


def run(
    executor: LocalExecutor, request: WorkloadRequest, folder: Path
) -> tuple[TrialEnd, Classified]:
    experiment = workload_experiment(request)
    executor.start(experiment.trial(Point.of({}), 0, folder))
    deadline = time.monotonic() + patience()
    while time.monotonic() < deadline:
        for end in executor.wait(1.0):
            return end, classify(experiment.oracle, end)
    raise AssertionError("the trial did not end")


def check_nan(end: TrialEnd, found: Classified) -> None:
    assert found.outcome is Outcome.REPRODUCED, (found.why, end.stderr.tail)
    assert found.why == "NaN detected at step 137"


def test_the_whole_way_from_a_request_to_the_record_of_its_trial(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    request = WorkloadRequest("half_nan", {"LEARNING_RATE": 0.02}, steps=200, base=tmp_path)
    end, found = run(executor, request, tmp_path)
    check_nan(end, found)
    label = TrialLabel("half_nan", trial=0)
    path = tmp_path / label.relative_path.name
    path.write_text(trial_document(label, request, end, found, env={}).to_json())
    record = read_trial(path)
    assert record.exit_status == "workload_failed"
    assert record.workload_result.first_failure_iteration == 137
    assert record.process.exit_code == 1


@pytest.mark.parametrize(
    ("workload", "outcome", "why"),
    [
        ("Healthy", Outcome.CLEAN, "passed"),
        ("Segfaults", Outcome.REPRODUCED, "signal 11 (SIGSEGV)"),
        ("RunRaises", Outcome.REPRODUCED, "ArithmeticError: lost a bit"),
        ("SetupRaises", Outcome.ERROR, "set-up failed: RuntimeError: no device"),
        ("LeavesWithZero", Outcome.ERROR, "the workload ended without a result"),
        ("CleanupSegfaults", Outcome.CLEAN, "passed"),
    ],
)
def test_each_way_to_end_has_its_outcome(
    executor: LocalExecutor, tmp_path: Path, workload: str, outcome: Outcome, why: str
) -> None:
    tests = Path(__file__).resolve().parents[1]
    request = WorkloadRequest(f"support.ailing_workloads:{workload}", base=tests)
    _, found = run(executor, request, tmp_path)
    assert (found.outcome, found.why) == (outcome, why)


def test_a_workload_that_hangs_is_ended_by_the_timeout_and_is_no_evidence(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    tests = Path(__file__).resolve().parents[1]
    request = WorkloadRequest("support.ailing_workloads:Hangs", base=tests, timeout=3.0)
    end, found = run(executor, request, tmp_path)
    assert end.timed_out
    assert found.outcome is Outcome.ERROR
    assert not (tmp_path / "result.json").exists()


def test_in_a_virtual_environment_that_has_no_aorta(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    environment = Environment("bare", RuntimeKind.VENV, venv=str(venv))
    check_nan(*run(executor, WorkloadRequest("half_nan", environment=environment), tmp_path))


@pytest.mark.parametrize(
    "engine_fixture",
    [
        pytest.param("docker_engine", marks=pytest.mark.xdist_group("docker")),
        pytest.param("podman_engine", marks=pytest.mark.xdist_group("podman")),
    ],
)
def test_in_a_container_that_has_no_aorta(
    executor: LocalExecutor,
    tmp_path: Path,
    engine_fixture: str,
    request: pytest.FixtureRequest,
    busybox_python: Rootfs,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine: Engine = request.getfixturevalue(engine_fixture)
    for name, value in engine.environ.items():
        monkeypatch.setenv(name, value)
    engine.import_image(busybox_python, IMAGE)
    wanted = WorkloadRequest("half_nan", environment=engine.environment(IMAGE), base=tmp_path)
    check_nan(*run(executor, wanted, tmp_path))
