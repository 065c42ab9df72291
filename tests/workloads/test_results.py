"""The record of one trial: what it says about each way to end, and what its reader refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aorta.core.errors import SpecError
from aorta.core.oracle import ExitCodeOracle, Oracle, PythonOracle, RegexOracle, classify
from aorta.core.trial import Environment, Match, StreamEnd, TrialEnd
from aorta.workloads.base import WorkloadResult
from aorta.workloads.child import RESULT_SCHEMA
from aorta.workloads.results import (
    TrialDocument,
    TrialLabel,
    read_trial,
    trial_document,
)
from aorta.workloads.trial import WorkloadRequest

LABEL = TrialLabel("half_nan", trial=3, mitigation=1)
REQUEST = WorkloadRequest(
    "half_nan",
    {"LEARNING_RATE": 0.1},
    environment=Environment("local", env={"TOKEN": "s3cret"}),
    mitigations=[("tf32_off", {"NVIDIA_TF32_OVERRIDE": "0"})],
    steps=50,
)


def _end(result: WorkloadResult | None = None, phase: str = "finished", **facts: Any) -> TrialEnd:
    stream = StreamEnd(Path("stdout.log"))
    left = None
    if result is not None:
        left = {"schema": RESULT_SCHEMA, **result.to_dict(), "phase": phase, "predicates": {}}
    return TrialEnd("t", stream, stream, result=left, duration=1.5, started_at=1e9, **facts)


def _document(end: TrialEnd, oracle: Oracle) -> TrialDocument:
    return trial_document(LABEL, REQUEST, end, classify(oracle, end), env={"partial": False})


def _failed(**more: Any) -> WorkloadResult:
    return WorkloadResult(False, 1, failure_details=[{"hint": "NaN at step 9"}], **more)


PASSED = WorkloadResult(passed=True)
NAN_SEEN = Match("NaN", "stdout", "NaN at step 9", at=0.5)


@pytest.mark.parametrize(
    ("end", "oracle", "exit_status", "outcome"),
    [
        (_end(PASSED, exit_code=0), PythonOracle(), "ok", "clean"),
        (_end(_failed(), exit_code=1), PythonOracle(), "workload_failed", "reproduced"),
        (
            _end(_failed(main_work_started=False), "setup", exit_code=126),
            PythonOracle(),
            "workload_setup_failed",
            "error",
        ),
        (
            _end(_failed(main_work_started=False), "construct", exit_code=126),
            PythonOracle(),
            "infrastructure_failed",
            "error",
        ),
        (
            _end(_failed(), "run", exit_code=3),
            PythonOracle(),
            "infrastructure_failed",
            "reproduced",
        ),
        (_end(signal=11), PythonOracle(), "workload_failed", "reproduced"),
        (_end(exit_code=0), PythonOracle(), "infrastructure_failed", "error"),
        (_end(timed_out=True), PythonOracle(), "infrastructure_failed", "error"),
        (_end(lost="no such image"), PythonOracle(), "infrastructure_failed", "error"),
        (_end(exit_code=0), ExitCodeOracle(), "ok", "clean"),
        (_end(exit_code=4), ExitCodeOracle(), "workload_failed", "reproduced"),
        (_end(lost="no such command"), ExitCodeOracle(), "infrastructure_failed", "error"),
        (_end(exit_code=4), RegexOracle(pattern="NaN"), "workload_failed", "other"),
        (
            _end(PASSED, exit_code=0, matches=(NAN_SEEN,)),
            RegexOracle(pattern="NaN"),
            "workload_failed",
            "reproduced",
        ),
    ],
)
def test_every_end_has_one_status_that_agrees_with_passed(
    end: TrialEnd, oracle: Oracle, exit_status: str, outcome: str
) -> None:
    document = _document(end, oracle)
    assert (document.exit_status, document.outcome) == (exit_status, outcome)
    assert document.result["passed"] == (exit_status == "ok")
    assert bool(document.result["failure_details"]) == (exit_status != "ok")


def test_a_trial_without_a_result_tells_why_in_its_failure_details() -> None:
    document = _document(_end(signal=11), PythonOracle())
    assert document.result["failure_details"][0]["hint"] == "signal 11 (SIGSEGV)"


def test_a_result_file_of_the_command_s_own_making_is_not_taken_for_ours() -> None:
    stream = StreamEnd(Path("stdout.log"))
    end = TrialEnd("t", stream, stream, exit_code=0, result={"passed": "sure", "phase": 7})
    assert _document(end, ExitCodeOracle()).exit_status == "ok"


def test_what_was_written_is_read_back_the_same(tmp_path: Path) -> None:
    document = _document(_end(_failed(), exit_code=1), PythonOracle())
    path = tmp_path / LABEL.relative_path.name
    path.write_text(document.to_json())
    assert path.name == "trial_d0_m1_t3.json"
    assert read_trial(path) == document


def test_the_file_has_the_keys_that_scripts_rely_on() -> None:
    content = json.loads(_document(_end(PASSED, exit_code=0), PythonOracle()).to_json())
    assert content["schema_version"] == "0.1"
    assert content["trial_id"] == "half_nan_d0_m1_t3"
    assert content["workload"] == "half_nan"
    assert content["execution_env"]["name"] == "local"
    assert content["mitigations_applied"] == ["tf32_off"]
    assert content["config"] == {"LEARNING_RATE": 0.1, "steps": 50}
    assert content["env"] == {"partial": False}
    assert content["wall_clock_sec"] == 1.5
    assert content["request_fingerprint"] is None
    assert content["process"]["exit_code"] == 0
    assert "s3cret" not in json.dumps(content)


def test_a_workload_named_by_its_class_gets_a_harmless_directory(tmp_path: Path) -> None:
    assert TrialLabel("pkg.mod:Class", 0).relative_path == Path("pkg.mod_Class/trial_d0_m0_t0.json")


def _without(key: str) -> Callable[[dict[str, Any]], object]:
    return lambda content: content.pop(key)


def _with(**values: Any) -> Callable[[dict[str, Any]], object]:
    return lambda content: content.update(values)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_without("wall_clock_sec"), "wall_clock_sec: this key is required"),
        (_with(schema_version="0.2"), "schema_version: found '0.2'"),
        (_with(exit_status="timeout"), "exit_status: found 'timeout'"),
        (_with(exit_status="workload_failed"), "they contradict each other"),
        (_with(wall_clock_sec=-1.0), "wall_clock_sec"),
        (_with(request_fingerprint="abc"), "request_fingerprint"),
        (_with(surprise=1), "unknown key 'surprise'"),
        (
            lambda content: content["result"].update(failure_count=2),
            "found 2, expected 0 on a pass",
        ),
        (lambda content: content["result"].pop("metrics"), "lacks metrics"),
    ],
)
def test_a_damaged_record_is_refused_by_name(
    tmp_path: Path, damage: Callable[[dict[str, Any]], object], message: str
) -> None:
    path = tmp_path / "trial_d0_m1_t3.json"
    content = json.loads(_document(_end(PASSED, exit_code=0), PythonOracle()).to_json())
    damage(content)
    path.write_text(json.dumps(content))
    with pytest.raises(SpecError) as wrong:
        read_trial(path)
    assert str(wrong.value).startswith(str(path))
    assert message in str(wrong.value)


@pytest.mark.parametrize("content", ["", "{", "[1]", "\udcff"])
def test_a_torn_record_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "trial_d0_m0_t0.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(SpecError, match=r"trial_d0_m0_t0\.json"):
        read_trial(path)
