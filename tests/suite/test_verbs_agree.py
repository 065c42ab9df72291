"""A run, a matrix and a reduction of one command never disagree on what is the same failure. The
whole corpus goes through them in `python -m benchmarks identity`.
"""

from pathlib import Path

import pytest
from benchmarks.identity import (
    matrix_of,
    reduced,
    rows_of,
    rule_on_noise,
    rule_on_slips,
    run_on_noise,
)
from benchmarks.identity_cases import NOISY_FROM, ROWS, SLIPS_BELOW, cases

NOISY = {case.name: case for case in cases("noisy")}
SLIPS = {case.name: case for case in cases("slips")}
VARIED = ["gradient_of_random_layer", "two_ranks_without_prefix", "torch_oom", "recursion"]
SLIPPING = ["infinity_to_too_little", "behind_a_wrapper", "two_asserts_on_a_device"]


def test_the_corpus_is_as_large_as_it_says_and_half_of_it_came_after_the_code() -> None:
    for kind, least in ((NOISY, 60), (SLIPS, 40)):
        later = sum(case.batch != "first" for case in kind.values())
        assert len(kind) >= least
        assert 2 * later >= len(kind) - 1


def test_over_the_corpus_the_same_is_the_same_and_the_different_is_not() -> None:
    wrong = [case.name for case in NOISY.values() if len(set(rule_on_noise(case))) > 1]
    wrong += [case.name for case in SLIPS.values() if len(set(rule_on_slips(case))) > 1]
    # Words that differ in one failure each may be accidents; two that never varied tell.
    assert wrong == ["nccl_kinds"]


@pytest.mark.parametrize("name", VARIED)
def test_what_a_run_counts_a_matrix_and_a_reduction_count(name: str, tmp_path: Path) -> None:
    case = NOISY[name]
    seen, trials = run_on_noise(case, tmp_path / "run")
    assert seen == trials
    cells = matrix_of(case, tmp_path / "triage", ROWS // 2)
    assert [(cell["failed_count"], cell["other_count"]) for cell in cells.values()] == [
        (trials, 0),
        (trials, 0),
    ]
    assert rows_of(reduced(case, tmp_path / "reduce")) == NOISY_FROM


@pytest.mark.parametrize("name", SLIPPING)
def test_what_a_matrix_calls_another_failure_a_reduction_does_not_slip_to(
    name: str, tmp_path: Path
) -> None:
    case = SLIPS[name]
    cells = matrix_of(case, tmp_path / "triage", SLIPS_BELOW // 2)
    assert cells["fewer"]["other_count"] == cells["fewer"]["trials"]
    assert rows_of(reduced(case, tmp_path / "reduce")) == SLIPS_BELOW
