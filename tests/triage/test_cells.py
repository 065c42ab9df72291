"""What the trials of one cell amount to."""

import pytest

from aorta.core.stats import percentile
from aorta.triage.cells import CellStats, aggregate_cell
from aorta.workloads.results import TrialDocument
from support.triage_runs import trial


def test_the_histogram_of_exit_statuses_adds_up_to_the_trials() -> None:
    found = aggregate_cell(
        [
            trial(),
            trial(outcome="reproduced", why="NaN"),
            trial(outcome="error", why="x", exit_status="workload_setup_failed"),
            trial(outcome="other", why="y"),
        ]
    )
    assert sum(found.exit_status_counts.values()) == found.tally.trials == 4
    assert found.exit_status_counts["workload_setup_failed"] == 1


def test_the_rate_is_of_failures_among_evidence_and_has_an_honest_name() -> None:
    found = aggregate_cell(
        [trial(outcome="reproduced", why="a"), trial(), trial(outcome="error", why="b")]
    )
    assert found.tally.rate == 0.5
    assert not hasattr(found, "nan_rate")


def test_the_step_times_have_all_their_figures() -> None:
    times = aggregate_cell([trial(step_times_ms=[1.0, 2.0, 3.0, 4.0, 5.0])]).step_times
    assert (
        times.min_step_time_ms,
        times.max_step_time_ms,
        times.mean_step_time_ms,
        times.p50_step_time_ms,
    ) == (1, 5, 3, 3)
    assert times.p90_step_time_ms == pytest.approx(4.6)
    assert times.std_step_time_ms == pytest.approx(2**0.5), "of the population"


def test_a_cell_that_never_ran_has_zeros_and_a_reason() -> None:
    found = aggregate_cell([trial(outcome="error", why="no engine\nsecond line")])
    assert found.error == "no engine"
    assert (found.step_times.mean_step_time_ms, found.tally.rate) == (0, 0)
    assert CellStats().error == "no trial was run"


@pytest.mark.parametrize(
    ("documents", "source", "mean"),
    [
        ([trial(step_times_ms=[2.0, 4.0])], "per_step", 3.0),
        ([trial(total_iterations=4, elapsed_sec=2.0)], "elapsed_per_iter", 500.0),
        ([trial(wall=8.0)], "wall_clock_total", 2000.0),
        ([trial(step_times_ms=[2000.0]), trial(wall=8.0)], "wall_clock_total", 2000.0),
        ([trial(step_times_ms=[2.0]), trial(outcome="error", why="x")], "per_step", 2.0),
    ],
)
def test_the_source_of_step_times_is_the_worst_that_contributed(
    documents: list[TrialDocument], source: str, mean: float
) -> None:
    times = aggregate_cell(documents, steps=4).step_times
    assert (times.step_time_source, times.mean_step_time_ms) == (source, mean)


def test_without_steps_a_wall_clock_says_nothing() -> None:
    assert aggregate_cell([trial(wall=8.0)]).step_times.step_time_source == "missing"


def test_the_most_common_error_line_comes_first_without_its_numbers() -> None:
    lines = ["loss is 3 at 0x7f", "loss is 4 at 0x80", "other"]
    found = aggregate_cell(trial(outcome="reproduced", why=line) for line in lines)
    assert found.hints[0] == ("loss is <*> at <*>", 2)


def test_very_many_steps_are_thinned_out_and_counted() -> None:
    times = aggregate_cell([trial(step_times_ms=[float(n) for n in range(5000)])]).step_times
    assert times.steps_counted == 5000
    assert len(times.step_times_ms) <= 1000
    assert times.max_step_time_ms == 4999


def test_a_percentile_lies_between_its_neighbours() -> None:
    assert percentile([1.0, 2.0], 0.5) == 1.5
    assert percentile([7.0], 0.99) == 7.0
