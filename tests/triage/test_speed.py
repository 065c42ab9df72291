"""Slower is flagged only where it is sure, and only where steps were counted on both sides."""

import random
from typing import Any

import pytest

from aorta.triage.cells import CellStats, aggregate_cell, ratio_interval, speed_of
from support.triage_runs import trial


def stats(*trials: float, failed: int = 0) -> CellStats:
    """One trial for each mean step time; the first `failed` of them failed."""
    return aggregate_cell(
        trial(
            outcome="reproduced" if number < failed else "clean",
            step_times_ms=[mean * 0.99, mean, mean * 1.01],
            why="NaN" if number < failed else "",
        )
        for number, mean in enumerate(trials)
    )


def test_exactly_the_threshold_is_not_flagged() -> None:
    assert speed_of(stats(115, 115, 115), stats(100, 100, 100), 1.15).tag == "no effect"
    assert speed_of(stats(116, 116, 116), stats(100, 100, 100), 1.15).tag == "speed (+16%)"


def test_a_ratio_that_may_be_noise_is_not_flagged() -> None:
    noisy = speed_of(stats(90, 180, 100), stats(95, 105, 100, failed=3), 1.15)
    assert noisy.ratio is not None
    assert noisy.ratio > 1.15
    assert noisy.interval is not None
    assert noisy.interval[0] < 1
    assert noisy.tag == "-"


def test_one_trial_a_side_cannot_tell() -> None:
    assert speed_of(stats(200), stats(100, failed=1), 1.15).tag == "n/a"
    assert ratio_interval([200.0], [100.0]) is None


def test_no_slower_and_no_better_is_no_effect_and_better_is_trusted() -> None:
    baseline = stats(100, 101, 99, failed=2)
    assert speed_of(stats(100, 100, 101, failed=2), baseline, 1.15).tag == "no effect"
    assert speed_of(stats(100, 100, 101), baseline, 1.15).tag == "-"
    assert speed_of(baseline, baseline, 1.15, is_baseline=True).tag == "(baseline)"


def unusable() -> list[tuple[CellStats, CellStats]]:
    good = stats(100, 100, 100)
    # A crash says nothing of how long a clean trial takes.
    lost: dict[str, Any] = {"outcome": "reproduced", "why": "NaN"}
    by_wall = aggregate_cell([trial(wall=3.0, **lost)], steps=3)
    by_iterations = aggregate_cell([trial(total_iterations=3, elapsed_sec=1.0, **lost)])
    return [
        (good, by_wall),
        (by_wall, good),
        (by_iterations, by_iterations),
        (good, aggregate_cell([])),
        (good, aggregate_cell([trial(outcome="error", why="gone")])),
        (aggregate_cell([trial(**lost)]), good),
    ]


@pytest.mark.parametrize(("cell", "baseline"), unusable())
def test_what_cannot_be_compared_is_said_so(cell: CellStats, baseline: CellStats) -> None:
    found = speed_of(cell, baseline, 1.15)
    assert (found.tag, found.ratio) == ("n/a", None)


def test_a_cell_that_did_not_run_has_no_speed() -> None:
    broken = aggregate_cell([trial(outcome="error", why="no engine")])
    assert speed_of(broken, stats(100, 100), 1.15).tag == "error"


def test_equal_cells_are_seldom_flagged_whatever_the_noise() -> None:
    """At a spread of 20 % a fixed threshold of 1.15 flags 18 of 100 pairs of 5 trials."""
    draw = random.Random(5)
    for spread in (0.05, 0.1, 0.2):
        flagged = 0
        for _ in range(300):
            sides = [[draw.gauss(100, 100 * spread) for _ in range(5)] for _ in range(2)]
            flagged += speed_of(stats(*sides[0]), stats(*sides[1]), 1.15).tag.startswith("speed (")
        assert flagged <= 0.05 * 300


def test_commands_that_tell_nothing_are_compared_by_how_long_their_clean_trials_take() -> None:
    def clean(*seconds: float, failed: float | None = None) -> CellStats:
        trials = [trial(wall=wall) for wall in seconds]
        lost = [] if failed is None else [trial(outcome="reproduced", why="boom", wall=failed)]
        return aggregate_cell([*trials, *lost])

    speed = speed_of(clean(4.0, 4.1, 4.05), clean(1.0, 1.05, 1.02, failed=0.01), 1.15)
    assert speed.tag.startswith("speed (")
    assert speed.by == "clean trials"
    assert (
        speed_of(clean(4.0, 4.1), aggregate_cell([trial(outcome="reproduced")]), 1.15).ratio is None
    )
