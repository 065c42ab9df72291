"""The `python` oracle over what a workload leaves behind, and oracle errors in their place in a
file.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from aorta.core.documents import StrictModel, validated
from aorta.core.errors import SpecError
from aorta.core.oracle import (
    ExitCodeOracle,
    HangOracle,
    MetricOracle,
    Oracle,
    PythonOracle,
    RegexOracle,
    classify,
    oracle_from_json,
    oracle_to_json,
)
from aorta.core.trial import Outcome, StreamEnd, TrialEnd

_NO_OUTPUT = StreamEnd(Path("none"))


def _end(result: Mapping[str, Any] | None, exit_code: int = 0, **facts: Any) -> TrialEnd:
    return TrialEnd("t", _NO_OUTPUT, _NO_OUTPUT, exit_code=exit_code, result=result, **facts)


def test_a_workload_that_does_not_say_whether_it_began_is_believed() -> None:
    result = {"passed": True, "failure_count": 0, "main_work_started": None}
    assert classify(PythonOracle(), _end(result)).outcome is Outcome.CLEAN


def test_leaving_with_zero_and_no_result_is_not_a_pass() -> None:
    assert classify(PythonOracle(), _end(None)).outcome is Outcome.ERROR


def test_the_same_failure_at_another_step_has_the_same_signature() -> None:
    at = [
        {"passed": False, "failure_count": 1, "failure_details": [{"hint": f"NaN at step {step}"}]}
        for step in (137, 4000)
    ]
    first, second = (classify(PythonOracle(), _end(result, 1)) for result in at)
    assert first.failure is not None
    assert classify(PythonOracle(), _end(at[1], 1), first.failure).outcome is Outcome.REPRODUCED
    assert first.why != second.why


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        ({"passed": False, "failure_count": 0, "predicates": {"diverged": True}}, "reproduced"),
        ({"passed": True, "failure_count": 3, "predicates": {"diverged": False}}, "clean"),
        ({"predicates": {"diverged": False}}, "clean"),
        ({"passed": True, "predicates": {"slow": True}}, "error"),
        ({"passed": True}, "error"),
        ({"passed": False, "predicates": {"diverged": False}}, "other"),
        (None, "other"),  # it crashed, which is not what the predicate asks for
    ],
)
def test_a_predicate_alone_decides_where_one_is_asked_for(
    result: Mapping[str, Any] | None, outcome: str
) -> None:
    end = _end(result, exit_code=0 if result and result.get("passed", True) else 1)
    assert classify(PythonOracle(predicate="diverged"), end).outcome == outcome


def test_a_workload_that_counts_nothing_and_passed_is_clean() -> None:
    assert classify(PythonOracle(), _end({"passed": True})).why == "passed"
    assert classify(PythonOracle(), _end({})).outcome is Outcome.CLEAN
    assert classify(PythonOracle(), _end({"failure_count": 1})).outcome is Outcome.REPRODUCED


def test_a_crash_without_a_result_is_the_failure_and_running_out_of_time_is_none() -> None:
    crashed = classify(PythonOracle(), _end(None, exit_code=3))
    assert (crashed.outcome, crashed.why) == (Outcome.REPRODUCED, "exit 3")
    late = classify(PythonOracle(), _end(None, exit_code=3, timed_out=True))
    assert (late.outcome, late.why) == (Outcome.ERROR, "ran out of time")


@pytest.mark.parametrize(
    "oracle",
    [
        ExitCodeOracle(),
        HangOracle(silent_for=30),
        MetricOracle(file="loss.json", key="loss", good=(1.0, 2.0), bad=(9.0, 8.0)),
        MetricOracle(pattern="loss ([0-9.]+)", stream="stderr", above=3.0),
        PythonOracle(predicate="diverged"),
        RegexOracle(pattern="NCCL"),
    ],
    ids=lambda oracle: str(oracle.kind),
)
def test_an_oracle_that_was_written_down_is_read_as_it_was(oracle: Oracle) -> None:
    written = oracle_to_json(oracle)
    assert written["kind"] == oracle.kind
    assert oracle_from_json(written, file="oracle.json") == oracle


class _WithOracle(StrictModel):
    oracle: Oracle


def test_a_bad_pattern_is_reported_at_its_place_in_the_file() -> None:
    with pytest.raises(SpecError, match=r"aorta\.yaml: oracle\.pattern: '\(' is not a regular"):
        validated(_WithOracle, {"oracle": {"kind": "regex", "pattern": "("}}, file="aorta.yaml")
