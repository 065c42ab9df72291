"""The `python` oracle over what a workload leaves behind, and oracle errors in their place in a file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from aorta.core.documents import StrictModel, validated
from aorta.core.errors import SpecError
from aorta.core.oracle import Oracle, PythonOracle, classify
from aorta.core.trial import Outcome, StreamEnd, TrialEnd

_NO_OUTPUT = StreamEnd(Path("none"))


def _end(result: Mapping[str, Any] | None, exit_code: int = 0) -> TrialEnd:
    return TrialEnd("t", _NO_OUTPUT, _NO_OUTPUT, exit_code=exit_code, result=result)


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
    assert first.signature is not None
    assert classify(PythonOracle(), _end(at[1], 1), first.signature).outcome is Outcome.REPRODUCED
    assert first.why != second.why


class _WithOracle(StrictModel):
    oracle: Oracle


def test_a_bad_pattern_is_reported_at_its_place_in_the_file() -> None:
    with pytest.raises(SpecError, match=r"aorta\.yaml: oracle\.pattern: '\(' is not a regular"):
        validated(_WithOracle, {"oracle": {"kind": "regex", "pattern": "("}}, file="aorta.yaml")
