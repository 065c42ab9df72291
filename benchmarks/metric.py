"""Bisection by a noisy number: how often it is right, and how many trials that takes.

A gap of 1 between the two levels, 100 commits, the culprit and the noise drawn from a seed. The
peer's figures are those of JAX-Toolbox' triage tool at its default settings, 50 seeds, one and five
samples of each side given.
"""

import random
import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from aorta.bisect.metric import MeasuredEnds, MeasuredMetric, Metric
from aorta.core.trial import Outcome, Tally
from aorta.search.bisection import Bisection
from aorta.search.timeline import History, Timeline

SEEDS = 200
COMMITS = 100
MOST = 5000
PEER = {0.1: "50 / 50", 0.2: "46 / 49", 0.3: "16 / 35", 0.5: "0 / 0"}  # right of 50


@dataclass(frozen=True)
class Measured:
    """`status`: right, range (that holds it), cannot tell, or wrong."""

    status: str
    trials: int


def search_by(value_of: Callable[[int], float], states: int, culprit: int) -> Measured:
    """A whole bisection whose trials cost nothing, driven as the engine drives it."""
    metric = Metric(MeasuredMetric(file="m.json", key="m"), 0.95)
    versions = tuple(str(state) for state in range(states))
    search = Bisection(Timeline([History("package", versions)]))
    asked = MeasuredEnds(search, metric)
    trials = 0
    while not asked.done and trials < MOST:
        point = asked.ask(1)[0]
        judge, tally = metric.judge_for(point), Tally()
        while (verdict := judge.verdict(tally)) is None:
            trials += 1
            metric.take(point, value_of(search.timeline.vector(point)[0]))
            tally += Outcome.CLEAN
        metric.learn(point, verdict)
        asked.tell(point, verdict)
    return Measured(_status(asked, culprit), trials)


def _status(asked: MeasuredEnds, culprit: int) -> str:
    answer = asked.search.answer
    if asked.alike or answer is None:
        return "cannot tell"
    if culprit - 1 not in [change.rank for change in answer.changes]:
        return "wrong"
    return "right" if asked.search.is_sure and len(answer.changes) == 1 else "range"


def simulated(noise: float, seeds: int, gap: float = 1.0) -> list[Measured]:
    found = []
    for seed in range(seeds):
        rng = random.Random(seed)
        culprit = rng.randrange(1, COMMITS)

        def value(state: int, rng: random.Random = rng, culprit: int = culprit) -> float:
            return rng.gauss(gap if state >= culprit else 0.0, noise)

        found.append(search_by(value, COMMITS, culprit))
    return found


def main() -> None:
    print(f"{SEEDS} seeds, {COMMITS} commits, gap 1")
    print("noise   right  range  cannot tell  wrong  trials mean / max   peer: right of 50")
    for noise in (0.01, 0.1, 0.2, 0.3, 0.5):
        found = simulated(noise, SEEDS)
        counts = Counter(one.status for one in found)
        trials = [one.trials for one in found]
        print(
            f"{noise:<6g} {counts['right']:6d} {counts['range']:6d} {counts['cannot tell']:12d} "
            f"{counts['wrong']:6d} {statistics.fmean(trials):10.1f} / {max(trials):<6d} "
            f"{PEER.get(noise, '-'):>12}"
        )
    same = simulated(1.0, SEEDS, gap=0.0)
    told = sum(one.status == "cannot tell" for one in same)
    print(
        f"no difference at all: said so in {told} of {SEEDS}, after "
        f"{statistics.fmean(one.trials for one in same):.0f} trials"
    )
