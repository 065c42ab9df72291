"""Drives a search against a fake oracle and counts what it costs.

Time goes in rounds: in a round each of W slots runs one trial, and all trials take equally long.
Trials of one point run side by side as far as its judge is certain to need them, spare slots take
the next points, as the engine does it.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from aorta.core.axis import Point
from aorta.core.trial import Outcome, Tally, Verdict
from aorta.engine.judge import EveryTrial, Judge, Judges, SameJudge
from aorta.search import Search

Rate = Callable[[Point], float]
"""How often the failure shows at a point."""


@dataclass
class Cost:
    trials: int = 0
    rounds: int = 0
    candidates: int = 0
    verdicts: list[tuple[Point, Verdict]] = field(default_factory=list)


@dataclass
class _Open:
    judge: Judge
    tally: Tally = field(default_factory=Tally)


def drive(
    search: Search,
    rate: Rate,
    *,
    judges: Judges | None = None,
    slots: int = 1,
    rng: random.Random | None = None,
    at_most: int = 100_000,
) -> Cost:
    """Until the search is done; `at_most` trials, so that a search that never ends is noticed."""
    judges = judges or SameJudge(EveryTrial(1))
    rng = rng or random.Random(0)
    cost, open_points = Cost(), dict[Point, _Open]()
    while not search.done:
        if cost.trials > at_most:
            raise RuntimeError(f"the search did not end within {at_most} trials")
        batch = _fill(search, judges, open_points, slots)
        if not batch:
            raise RuntimeError("the search is not done, but asks nothing")
        cost.rounds += 1
        for point in batch:
            hit = rng.random() < rate(point)
            open_points[point].tally += Outcome.REPRODUCED if hit else Outcome.CLEAN
            cost.trials += 1
        _settle(search, judges, open_points, cost)
    return cost


def _fill(
    search: Search, judges: Judges, open_points: dict[Point, _Open], slots: int
) -> list[Point]:
    batch: list[Point] = []
    for point, state in open_points.items():
        batch += [point] * min(state.judge.needs(state.tally), slots - len(batch))
    while len(batch) < slots:
        points = search.ask(slots - len(batch), tuple(open_points))
        if not points:
            break
        for point in points:
            if point in open_points:
                raise RuntimeError(f"asked again while pending: {point.key}")
            state = open_points[point] = _Open(judges.judge_for(point))
            batch += [point] * min(state.judge.needs(state.tally), slots - len(batch))
    return batch


def _settle(search: Search, judges: Judges, open_points: dict[Point, _Open], cost: Cost) -> None:
    for point, state in list(open_points.items()):
        verdict = state.judge.verdict(state.tally)
        if verdict is not None:
            del open_points[point]
            judges.learn(point, verdict)
            search.tell(point, verdict)
            cost.candidates += 1
            cost.verdicts.append((point, verdict))
    for point in [p for p in open_points if not search.wants(p)]:
        del open_points[point]
