"""Simulated bisections: a timeline, an oracle that may lie, and the count of what was asked."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aorta.core.axis import Point
from aorta.core.trial import Verdict
from aorta.search.bisection import Bisection, BisectionSettings
from aorta.search.timeline import History, Timeline, Vector

Judge = Callable[[Vector], bool | None]
"""Whether a state fails this time; None if it cannot be tested."""


@dataclass(frozen=True)
class Simulated:
    search: Bisection
    trials: int
    rounds: int
    asked: tuple[Point, ...]

    @property
    def changes(self) -> set[tuple[int, int]]:
        """The answer, as (package, number of the version it makes)."""
        answer = self.search.answer
        return {(c.package, c.rank + 1) for c in answer.changes} if answer else set()


def simulate(
    timeline: Timeline,
    judge: Judge,
    *,
    workers: int = 1,
    settings: BisectionSettings | None = None,
    most: int = 3000,
) -> Simulated:
    """Rounds of `workers` questions, all answered before the next round is asked."""
    search = Bisection(timeline, settings)
    asked: list[Point] = []
    rounds = 0
    while not search.done and len(asked) < most:
        questions = search.ask(workers)
        rounds += 1
        for point in questions:
            asked.append(point)
            search.tell(point, Verdict(judge(timeline.vector(point))))
    return Simulated(search, len(asked), rounds, tuple(asked))


def one_package(states: int) -> Timeline:
    return Timeline([History("package", tuple(str(i) for i in range(states)))])


def flaky_judge(culprit: int, fails: float, flakes: float, rng: random.Random) -> Judge:
    """One package: states from `culprit` on fail at one rate, those before it at another."""
    return lambda vector: rng.random() < (fails if vector[0] >= culprit else flakes)


def random_histories(
    sizes: Sequence[int], rng: random.Random, *, spread: str = "uniform"
) -> list[History]:
    """`uniform` over a month, all at the `same` second, or each package in a `window` of its
    own.
    """
    histories = []
    for index, size in enumerate(sizes):
        window = {
            "uniform": (0.0, 30.0),
            "same": (5.0, 5.0),
            "window": (float(-index), 1.0 - index),
        }
        low, high = window[spread]
        times = tuple(sorted(rng.uniform(low, high) for _ in range(size + 1)))
        versions = tuple(f"{index}.{i}" for i in range(size + 1))
        histories.append(History(f"p{index}", versions, times))
    return histories
