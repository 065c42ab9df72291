"""Results that contradict themselves are refused; settings reach a workload in one order of
precedence.
"""

import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta.workloads.base import Workload, WorkloadResult, plain


class _Counting(Workload):
    axes = (
        {"name": "NUM_STEPS", "kind": "env", "type": "int", "initial": 5000, "floor": 50},
        {"name": "RATE", "kind": "env", "type": "float", "initial": 0.5},
        {"name": "SHAPES_FILE", "kind": "file_subset", "initial": "shapes.txt"},
    )
    steps_axis = "NUM_STEPS"

    def setup(self) -> None: ...

    def run(self) -> WorkloadResult:
        return WorkloadResult(passed=True)


def test_a_setting_comes_from_the_environment_then_config_then_steps_then_its_axis(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NUM_STEPS", raising=False)
    assert _Counting({}).variables()["NUM_STEPS"] == "5000"
    assert _Counting({"steps": 7}).variables()["NUM_STEPS"] == "7"
    assert _Counting({"steps": 7, "NUM_STEPS": 9}).variables()["NUM_STEPS"] == "9"
    monkeypatch.setenv("NUM_STEPS", "11")
    assert _Counting({"steps": 7, "NUM_STEPS": 9}).variables()["NUM_STEPS"] == "11"


def test_reserved_config_keys_are_no_settings() -> None:
    variables = _Counting({"_aorta_trial_index": 3, "DEPTH": 2}).variables()
    assert variables["DEPTH"] == "2"
    assert "_aorta_trial_index" not in variables


@pytest.mark.parametrize(
    "wrong",
    [
        {"passed": "yes"},
        {"passed": True, "failure_count": 1},
        {"passed": True, "failure_details": [{}]},
        {"passed": False, "failure_count": -1},
        {"passed": False, "failure_count": True},
        {"passed": False, "first_failure_iteration": 1.5},
        {"passed": True, "elapsed_sec": math.inf},
        {"passed": True, "elapsed_sec": math.nan},
        {"passed": True, "step_times_ms": [1.0, -1.0]},
        {"passed": True, "main_work_started": "maybe"},
        {"passed": False, "failure_details": ["text"]},
        {"passed": True, "metrics": [1]},
    ],
)
def test_a_result_that_cannot_be_true_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="found"):
        WorkloadResult(**wrong).check()


def test_a_result_survives_the_way_through_json() -> None:
    result = WorkloadResult(
        passed=False,
        failure_count=2,
        first_failure_iteration=3,
        failure_details=[{"hint": "x"}],
        total_iterations=9,
        step_times_ms=[1.5],
        elapsed_sec=2.0,
        metrics={"loss": 0.5},
        main_work_started=True,
        executed_iterations=3,
        configured_iterations=9,
    )
    assert WorkloadResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result


def test_half_a_result_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="lacks failure_count"):
        WorkloadResult.from_dict({"passed": True})


_anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner)
    ),
)


@given(_anything)
def test_whatever_a_workload_reports_becomes_strict_json(value: Any) -> None:
    json.dumps(plain(value), allow_nan=False)


def test_objects_become_their_text_and_scalars_their_value() -> None:
    class Scalar:
        ndim = 0

        def item(self) -> float:
            return 0.5

    assert plain({"at": Path("/x"), "n": Scalar(), "d": Decimal(1)}) == {
        "at": repr(Path("/x")),
        "n": 0.5,
        "d": "Decimal('1')",
    }
