"""What a reduction costs: oracle calls and trials, against targets, the information bound and the
reducers of others.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean

from aorta.core.axis import Axis, Point, as_indexes, as_number, number, subset
from aorta.engine.judge import SequentialJudges
from aorta.search.axes import NumericSearch
from aorta.search.descent import Descent
from aorta.search.subset import SubsetSearch
from benchmarks.reduction_peers import installed_peers
from benchmarks.simulate import Cost, drive

SEEDS = 20
FLAKY_RUNS = 100
SUBSETS = {
    (100, 1): 9,
    (100, 5): 40,
    (1000, 1): 13,
    (1000, 5): 57,
    (1000, 20): 190,
    (10000, 5): 75,
    (10000, 20): 260,
}
PARALLEL = {(1000, 5, 8): 12}
NUMERIC_CALLS = 7.5
FLAKY = {0.5: 169, 0.3: 306}
"""By rate: the trials of the reference; 15 % more is the target."""
CERTAIN = 37
"""Trials of the same reduction where the failure always shows."""
FALSE_ALARMS = {0.5: 0.02, 0.3: 0.02}
"""By rate: how often the oracle fires where the failure is absent, which nothing in the product
knows.
"""
RATES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
WITHIN = 0.97


@dataclass(frozen=True)
class Whole:
    """One whole reduction of a flaky failure."""

    trials: int
    minimal: bool
    kept: bool


def subset_cost(items: int, needed: frozenset[int], slots: int = 1) -> Cost:
    """The search alone, with an oracle that is never wrong; the answer is checked."""
    axis = subset("lines", tuple(map(str, range(items))))
    search = SubsetSearch(Point.of({axis.name: axis.initial}), axis)
    cost = drive(search, lambda point: float(needed <= _kept(point, axis.name)), slots=slots)
    if _kept(search.best, axis.name) != needed:
        raise RuntimeError(f"{items} items: expected {sorted(needed)}, found {search.best}")
    return cost


def numeric_calls(threshold: float, *, monotone: bool | None = None) -> int:
    """NUM_STEPS from 5000 towards 50, to within 10 %."""
    axis = number("NUM_STEPS", 5000, 50, tolerance=0.1, monotone=monotone)
    search = NumericSearch(Point.of({axis.name: 5000}), axis, 5000)
    cost = drive(search, lambda point: float(_number(point, axis.name) >= threshold))
    found = _number(search.best, axis.name)
    if not threshold <= found <= max(50, 1.1 * threshold + 1):
        raise RuntimeError(f"threshold {threshold}: found {found}")
    return cost.trials


def flaky_reduction(rate: float, false_rate: float, seed: int, slots: int = 1) -> Whole:
    """100 lines, 3 of them needed, by a failure that shows at `rate`; calibration and confirmation
    included.
    """
    rng = random.Random(seed)
    needed = frozenset(rng.sample(range(100), 3))
    axis = subset("lines", tuple(map(str, range(100))))
    search = Descent([axis])
    judges = SequentialJudges()
    cost = drive(
        search,
        lambda point: rate if needed <= _kept(point, axis.name) else false_rate,
        judges=judges,
        slots=slots,
        rng=rng,
    )
    kept = _kept(search.result.best, axis.name)
    return Whole(cost.trials, kept == needed, needed <= kept)


def flaky_number(rate: float, seed: int) -> tuple[int, float]:
    """NUM_STEPS from 5000 towards 50, to within 10 %: the trials, and the answer in units of the
    smallest that fails.
    """
    rng = random.Random(seed)
    smallest = 50 * 100 ** rng.random()
    axis = number("NUM_STEPS", 5000, 50, tolerance=0.1)
    search = Descent([axis])
    cost = drive(
        search,
        lambda point: rate if _number(point, axis.name) >= smallest else 0.0,
        judges=SequentialJudges(),
        rng=rng,
    )
    return cost.trials, _number(search.result.best, axis.name) / math.ceil(smallest)


def rarer_reduction(kind: str, seed: int) -> tuple[int, float]:
    """What fails every second time, and ever more rarely the smaller it is: the trials, and how
    often the answer fails beside the original.
    """
    axes, rate = RARER[kind]
    search = Descent(axes)
    cost = drive(search, rate, judges=SequentialJudges(), rng=random.Random(seed))
    return cost.trials, rate(search.result.best) / rate(search.result.original)


def _rate_of_steps(point: Point) -> float:
    """As `half_nan/flaky.yaml`: one of eight shapes, and 22 % with a tenth of the steps."""
    needed = 3 in _kept(point, "SHAPES")
    return 0.54 * (_number(point, "NUM_STEPS") / 5000) ** 0.39 if needed else 0.0


def _rate_of_lines(point: Point) -> float:
    kept = _kept(point, "lines")
    return 0.1 + 0.4 * len(kept) / 100 if {7, 41, 80} <= kept else 0.0


RARER: dict[str, tuple[list[Axis], Callable[[Point], float]]] = {
    "steps and shapes": (
        [number("NUM_STEPS", 5000, 50, monotone=True), subset("SHAPES", tuple("abcdefgh"))],
        _rate_of_steps,
    ),
    "100 lines": ([subset("lines", tuple(map(str, range(100))))], _rate_of_lines),
}


def is_within(ratio: float) -> bool:
    return 1 <= ratio <= 1.1 + 1 / 50


def needed_items(items: int, needed: int, seeds: int = SEEDS) -> list[frozenset[int]]:
    return [frozenset(random.Random(s).sample(range(items), needed)) for s in range(seeds)]


def main() -> None:
    _subsets()
    _parallel()
    _numbers()
    _flaky()
    _flaky_numbers()
    _rarer()


def _subsets() -> None:
    peers, missing = installed_peers()
    print(f"\nSubsets: oracle calls, mean of {SEEDS} seeds")
    _row("items/needed", "bound", "target", "aorta", *peers)
    for (items, k), target in SUBSETS.items():
        draws = needed_items(items, k)
        ours = mean(subset_cost(items, needed).trials for needed in draws)
        theirs = [f"{mean(peer(items, needed) for needed in draws):.0f}" for peer in peers.values()]
        bound = math.log2(math.comb(items, k))
        _row(f"{items}/{k}", f"{bound:.0f}", f"<= {target}", _against(ours, target), *theirs)
    for name, why in missing.items():
        print(f"{name} is not installed here: {why}")


def _parallel() -> None:
    print(f"\nSide by side: rounds (and calls), mean of {SEEDS} seeds")
    _row("items/needed", "slots", "target", "rounds", "calls")
    for (items, k, slots), target in PARALLEL.items():
        for width in (1, 2, 4, slots):
            costs = [subset_cost(items, needed, width) for needed in needed_items(items, k)]
            rounds, calls = mean(c.rounds for c in costs), mean(c.trials for c in costs)
            shown = _against(rounds, target) if width == slots else f"{rounds:.1f}"
            goal = f"<= {target}" if width == slots else ""
            _row(f"{items}/{k}", str(width), goal, shown, f"{calls:.1f}")


def _numbers() -> None:
    print("\nNumbers: NUM_STEPS 5000 to 50, tolerance 10 %, oracle calls, mean of 200 thresholds")
    _row("threshold", "target", "verified", "promised")
    draws = [50 * 100 ** random.Random(s).random() for s in range(200)]
    for name, thresholds, target in (
        ("log-uniform", draws, NUMERIC_CALLS),
        ("at floor", [50.0], 1),
    ):
        verified = mean(numeric_calls(t) for t in thresholds)
        promised = mean(numeric_calls(t, monotone=True) for t in thresholds)
        _row(name, f"<= {target}", _against(verified, target), _against(promised, target))


def _flaky() -> None:
    print(f"\nFlaky failures, whole reductions of 100 lines, 3 needed: mean of {FLAKY_RUNS} seeds")
    _row("rate/false", "reference", "trials", "minimal", "bug kept")
    targets = {rate: (f"{most} + 15 %", 1.15 * most) for rate, most in FLAKY.items()}
    for rate, (said, most) in {1.0: (f"{CERTAIN}", CERTAIN), **targets}.items():
        runs = [flaky_reduction(rate, 0.0, seed) for seed in range(FLAKY_RUNS)]
        minimal, kept = mean(r.minimal for r in runs), mean(r.kept for r in runs)
        _row(
            f"{rate}/0.0",
            said,
            _against(mean(r.trials for r in runs), most),
            f"{minimal:.0%}" + ("" if minimal >= 0.95 else " MISSED"),
            f"{kept:.0%}" + ("" if kept >= 0.99 else " MISSED"),
        )
    for rate, false_rate in FALSE_ALARMS.items():
        runs = [flaky_reduction(rate, false_rate, seed) for seed in range(FLAKY_RUNS)]
        minimal, kept = mean(r.minimal for r in runs), mean(r.kept for r in runs)
        trials = f"{mean(r.trials for r in runs):.1f}"
        _row(f"{rate}/{false_rate}", "none", trials, f"{minimal:.0%}", f"{kept:.0%}")


def _flaky_numbers() -> None:
    print(f"\nFlaky failures, NUM_STEPS 5000 to 50, tolerance 10 %: mean of {FLAKY_RUNS} seeds")
    _row("rate", "target", "within", "worst", "trials")
    for rate in RATES:
        runs = [flaky_number(rate, seed) for seed in range(FLAKY_RUNS)]
        within = mean(is_within(ratio) for _, ratio in runs)
        _row(
            f"{rate}",
            f">= {WITHIN:.0%}",
            f"{within:.1%}" + ("" if within >= WITHIN else " MISSED"),
            f"{max(ratio for _, ratio in runs):.2f}",
            f"{mean(trials for trials, _ in runs):.1f}",
        )


def _rarer() -> None:
    print(f"\nFlaky failures that become rarer on the way: {FLAKY_RUNS} seeds")
    _row("axes", "trials", "rate kept", "below half")
    for kind in RARER:
        runs = [rarer_reduction(kind, seed) for seed in range(FLAKY_RUNS)]
        kept = [share for _, share in runs]
        below = mean(share < 0.5 for share in kept)
        trials = f"{mean(trials for trials, _ in runs):.0f}"
        _row(
            kind,
            trials,
            f"{mean(kept):.0%}",
            f"{below:.0%}" + ("" if below <= 0.125 else " MISSED"),
        )


def _against(value: float, target: float) -> str:
    return f"{value:.1f}" + ("" if value <= target else " MISSED")


def _row(*cells: str) -> None:
    print("  ".join(f"{cell:>12}" for cell in cells), flush=True)


def _kept(point: Point, name: str) -> frozenset[int]:
    return frozenset(as_indexes(point[name]))


def _number(point: Point, name: str) -> float:
    return as_number(point[name])
