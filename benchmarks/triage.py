"""What a matrix promises, measured on simulated failures: false answers, power, trials saved; and
what optimize mode costs.

Everything that decides is the product's own code (schedule, stopping rule, tests); only the trials
are drawn.
"""

import math
import random
from dataclasses import dataclass
from pathlib import Path

from aorta.core.axis import Point, Purpose
from aorta.core.documents import validated
from aorta.core.trial import Outcome, Tally, Verdict
from aorta.search.cure import AXIS, CureSearch
from aorta.search.repeated import Interleaved, cell_of
from aorta.triage.optimize import GoneJudges
from aorta.triage.plan import Plan, Schedule, build_plan
from aorta.triage.recipe import Recipe, RecipeFile
from aorta.triage.statistics import SIDE_ALPHA, USEFUL_RATIO, Call, Stopping, compare_all, p_fewer

MATRICES = 1000
TRUTHS = {
    "all as the baseline": (1, 1, 1, 1, 1),
    "all just useful cures": (0.5, 0.5, 0.5, 0.5, 0.5),
    "one cure, the rest as it is": (0, 1, 1, 1, 1),
    "of every kind": (0, 0.25, 0.5, 1, 2),
}
# n for 80 % power against a cell that never fails: one comparison at 5 %, and ten with Holm
# (search-and-statistics).
POWER_TABLE = ((0.9, 5, 7), (0.7, 8, 12), (0.5, 12, 19), (0.3, 21, 33))


def main() -> None:
    _false_answers()
    _power()
    _smallest_stack()


def _false_answers() -> None:
    print(
        f"matrices of 6 cells, 12 trials each, that say anything wrong of any cell ({MATRICES} "
        "each)"
    )
    print("  truth of the cells             baseline   wrong       known        trials of 72")
    plan, draw = _plan(cells=6, trials=12), random.Random(1)
    for truth, ratios in TRUTHS.items():
        for rate in (0.1, 0.3, 0.5, 0.7, 0.9, 1.0):
            rates = {"baseline": rate, **{f"c{n}": min(1, r * rate) for n, r in enumerate(ratios)}}
            found = [_matrix(plan, rates, draw) for _ in range(MATRICES)]
            wrong = sum(bool(one.wrong(rates)) for one in found) / MATRICES
            known = sum(one.known for one in found) / (5 * MATRICES)
            trials = sum(one.trials for one in found) / MATRICES
            print(
                f"  {truth:30s} {rate:8.1f}   {100 * wrong:5.1f} %   {100 * known:7.1f} %   "
                f"{trials:10.1f}"
            )
    print("  (target: wrong <= 5 %)")


def _power() -> None:
    print(f"power: a cell that never fails is said to work ({MATRICES} matrices)")
    print(
        "  baseline   cells   trials   power     all trials   trials run   (target: 80 %, "
        "one-sided)"
    )
    draw = random.Random(2)
    for rate, alone, among_ten in POWER_TABLE:
        for cells, trials in ((2, alone), (11, among_ten)):
            plan = _plan(cells, trials)
            rates = {**dict.fromkeys(plan.names, rate), plan.names[1]: 0.0}
            found = [_matrix(plan, rates, draw) for _ in range(MATRICES)]
            power = sum(one.calls[plan.names[1]] is Call.WORKS for one in found) / MATRICES
            spent = sum(one.trials for one in found) / MATRICES
            print(
                f"  {rate:8.1f}   {cells - 1:5d}   {trials:6d}   {100 * power:5.1f} %   "
                f"{100 * _exact_power(rate, trials, cells - 1):8.1f} %   {spent:6.1f} of "
                f"{cells * trials}"
            )


def _exact_power(rate: float, trials: int, comparisons: int) -> float:
    """That of the same test with every trial run: what stopping early must not lose."""
    return sum(
        math.comb(trials, hits) * rate**hits * (1 - rate) ** (trials - hits)
        for hits in range(trials + 1)
        if p_fewer(0, trials, hits, trials) * comparisons < SIDE_ALPHA
    )


def _smallest_stack() -> None:
    print("optimize: trials for the smallest stack, beside trying each mitigation alone (100 runs)")
    print("  mitigations   needed   rate   right     trials   stacks   one at a time")
    for size in (8, 16, 32):
        for needed in (1, 2):
            for rate in (1.0, 0.5):
                runs = [_optimize(size, needed, rate, seed) for seed in range(100)]
                right = sum(one.right for one in runs)
                trials, stacks = (
                    sum(getattr(one, what) for one in runs) / len(runs)
                    for what in ("trials", "stacks")
                )
                sweep = sum(one.sweep for one in runs) / len(runs)
                alone = f"{sweep:13.1f}" if needed == 1 else f"{sweep:9.1f}, no answer"
                print(
                    f"  {size:11d}   {needed:6d}   {rate:4.1f}   {right:3d} %   {trials:8.1f}   "
                    f"{stacks:6.1f}   {alone}"
                )


@dataclass(frozen=True)
class _Answered:
    calls: dict[str, Call]
    trials: int

    @property
    def known(self) -> int:
        return sum(call not in {Call.NOT_KNOWN, Call.BASELINE} for call in self.calls.values())

    def wrong(self, rates: dict[str, float]) -> list[str]:
        """The cells of which something is said that is not so."""
        base = rates["baseline"]
        false = {
            Call.WORKS: lambda rate: rate >= base,
            Call.WORSE: lambda rate: rate <= base,
            Call.NO_EFFECT: lambda rate: rate <= USEFUL_RATIO * base,
        }
        return [
            name for name, call in self.calls.items() if call in false and false[call](rates[name])
        ]


def _plan(cells: int, trials: int) -> Plan:
    names = ["baseline", *(f"c{n}" for n in range(cells - 1))]
    document = {
        "schema_version": 1,
        "workload": "command",
        "trials": trials,
        "workload_config": {"command": "true"},
        "confound": {"baseline_cell": "baseline"},
        "cells": [
            {
                "name": name,
                "mitigations": ["none"],
                "environment": "local",
                "extra_env": {"CELL": name},
            }
            for name in names
        ],
    }
    content = validated(RecipeFile, document, file="benchmark")
    return build_plan(Recipe(content, base=Path("/")), "cpu")


def _matrix(plan: Plan, rates: dict[str, float], draw: random.Random) -> _Answered:
    search = Interleaved(plan.names, place=Schedule(plan).place, is_open=Stopping(plan).is_open)
    while not search.done:
        (point,) = search.ask(1)
        failed = draw.random() < rates[cell_of(point)]
        outcome = Outcome.REPRODUCED if failed else Outcome.CLEAN
        search.tell(point, Verdict(failed, Tally.of([outcome])))
    found = compare_all(search.tallies, plan.baseline.name, plan.inert)
    calls = {name: comparison.call for name, comparison in found.items()}
    return _Answered(calls, sum(tally.trials for tally in search.tallies.values()))


@dataclass(frozen=True)
class _Optimized:
    right: bool
    trials: int
    stacks: int
    sweep: int


def _optimize(size: int, needed: int, rate: float, seed: int) -> _Optimized:
    draw = random.Random(seed)
    cure = frozenset(draw.sample(range(size), needed))
    search, judges = CureSearch([f"m{n}" for n in range(size)]), GoneJudges(cap=40)
    trials = calibration = stacks = 0
    while not search.done:
        (point,) = search.ask(1)
        spent = _judge(search, judges, point, cure, rate, draw)
        calibration = calibration or spent
        trials += spent
        stacks += 1
    alone = CureSearch([f"m{n}" for n in range(size)])
    asked = [Point.of({AXIS: (item,)}) for item in range(size)]
    confirmed = [Point.of({AXIS: tuple(cure)}, Purpose.CONFIRM)] if needed == 1 else []
    sweep = calibration + sum(
        _judge(alone, judges, point, cure, rate, draw, tell=False) for point in asked + confirmed
    )
    right = search.cure is not None and frozenset(search.cure.items) == cure
    return _Optimized(right, trials, stacks, sweep)


def _judge(
    search: CureSearch,
    judges: GoneJudges,
    point: Point,
    cure: frozenset[int],
    rate: float,
    draw: random.Random,
    *,
    tell: bool = True,
) -> int:
    """Trials until the judge is sure of this point."""
    judge, tally, on = judges.judge_for(point), Tally(), point[AXIS]
    gone = isinstance(on, tuple) and cure <= set(on)
    while (verdict := judge.verdict(tally)) is None:
        failed = not gone and draw.random() < rate
        tally += Outcome.REPRODUCED if failed else Outcome.CLEAN
    if tell:
        judges.learn(point, verdict)
        search.tell(point, verdict)
    return tally.trials


if __name__ == "__main__":
    main()
