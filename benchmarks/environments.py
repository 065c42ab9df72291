"""Two environments with one culprit among their changed packages: trials and environments, against
bisecting by hand.

    python -m benchmarks environments

The searches are those of `aorta bisect --good-env`, told by a simulated failure. By hand people
take the changed packages one after the other and then halve the releases, or halve both, and
believe every trial. Then the real thing: how long one environment takes to make, from a warm cache
of planted wheels.
"""

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from aorta.core.axis import Point
from aorta.core.trial import Tally, Verdict
from aorta.runtimes.venvs import EnvironmentJob, make
from aorta.search import Search
from aorta.search.belief import Counts
from aorta.search.bisection import Bisection, BisectionSettings
from aorta.search.ends import EndsVerdict, SeenRates
from aorta.search.timeline import History, Timeline, Vector

CONFIDENCE = 0.95
_RUNS = 40


@dataclass(frozen=True)
class PlantedChange:
    """Packages 0 to `packages` - 1 changed, each over `releases` steps; one step of one of them
    brings the failure.
    """

    packages: int
    releases: int
    culprit: int
    step: int
    rate: float

    def fails(self, package_is_new: bool, step: int, chance: random.Random) -> bool:
        return package_is_new and step > self.step and chance.random() < self.rate


@dataclass(frozen=True)
class Spent:
    right: bool
    trials: int
    environments: int


def main() -> None:
    for rate in (1.0, 0.5):
        for packages, releases in ((5, 20), (20, 20), (80, 20)):
            _compare(packages, releases, rate)
    _making()


def _compare(packages: int, releases: int, rate: float) -> None:
    ways: dict[str, Callable[[PlantedChange, random.Random], Spent]] = {
        "aorta": searched,
        "one by one, then halving": one_by_one,
        "halving twice": halving_twice,
    }
    print(f"{packages} changed packages, {releases} releases each, fails {rate:.0%} of the time")
    for name, way in ways.items():
        ran = []
        for seed in range(_RUNS):
            chance = random.Random(seed)
            planted = PlantedChange(
                packages, releases, chance.randrange(packages), chance.randrange(releases), rate
            )
            ran.append(way(planted, chance))
        right = sum(one.right for one in ran) / len(ran)
        trials = statistics.fmean(one.trials for one in ran)
        made = statistics.fmean(one.environments for one in ran)
        print(f"  {name:<26} right {right:4.0%}  {trials:5.1f} trials  {made:5.1f} environments")


# -- three ways


def searched(planted: PlantedChange, chance: random.Random) -> Spent:
    """Which package, whether it is enough, which release: the stages of the verb."""
    seen: list[tuple[tuple[str, object], ...]] = []
    steps = [History(f"p{number:03}", ("old", "new")) for number in range(planted.packages)]
    main = Bisection(Timeline(steps), BisectionSettings(confidence=1 - (1 - CONFIDENCE) / 2))
    name = f"p{planted.culprit:03}"
    _drive(main, lambda p: planted.fails(p[name] == "new", planted.releases, chance), seen)
    answer = main.answer
    if answer is None or not main.is_sure or len(answer.changes) != 1:
        return Spent(False, len(seen), len(set(seen)))
    found = answer.changes[0].package
    before = list(steps[:found])
    alone_fails = found == planted.culprit
    ends: dict[Vector, Counts] = {
        (0,): main.trials[main.timeline.good_end]
    }  # what is known of the releases' own ends
    if not before:
        ends[(planted.releases,)] = main.trials[answer.bad]
    if before:
        alone = SeenRates(*main.good_and_bad(), CONFIDENCE)
        inner = Bisection(Timeline(before), BisectionSettings(confidence=CONFIDENCE, alone=alone))
        inner.assume({inner.timeline.bad_end: main.trials.get(answer.bad, (1, 0))})
        _drive(inner, lambda p: planted.fails(alone_fails, planted.releases, chance), seen)
        if inner.ends is not EndsVerdict.GOOD_FAILS_TOO:
            return Spent(False, len(seen), len(set(seen)))
        ends[(planted.releases,)] = inner.trials[inner.timeline.good_end]
    versions = tuple(str(number) for number in range(planted.releases + 1))
    releases = Bisection(
        Timeline([History("culprit", versions)]),
        BisectionSettings(confidence=min(0.9995, CONFIDENCE / answer.mass)),
    )
    releases.assume(ends)
    _drive(releases, lambda p: planted.fails(alone_fails, int(str(p["culprit"])), chance), seen)
    last = releases.answer
    right = bool(last and releases.is_sure and alone_fails and last.changes[0].rank == planted.step)
    return Spent(right, len(seen), len(set(seen)))


def _drive(
    search: Search,
    fails: Callable[[Point], bool],
    seen: list[tuple[tuple[str, object], ...]],
) -> None:
    while asked := search.ask(1):
        hit = fails(asked[0])
        seen.append(asked[0].values)
        search.tell(asked[0], Verdict(hit, Tally(reproduced=int(hit), clean=int(not hit))))


def one_by_one(planted: PlantedChange, chance: random.Random) -> Spent:
    """Each package alone in its new version, until it fails."""
    trials = 2  # both ends
    for package in range(planted.packages):
        trials += 1
        if planted.fails(package == planted.culprit, planted.releases, chance):
            found, more = _halved(planted, chance)
            return Spent(found == planted.step, trials + more, trials + more)
    return Spent(False, trials, trials)


def halving_twice(planted: PlantedChange, chance: random.Random) -> Spent:
    low, high, trials = 0, planted.packages, 2
    while high - low > 1:
        middle = (low + high) // 2
        trials += 1
        if planted.fails(planted.culprit < middle, planted.releases, chance):
            high = middle
        else:
            low = middle
    if low != planted.culprit:
        return Spent(False, trials, trials)
    found, more = _halved(planted, chance)
    return Spent(found == planted.step, trials + more, trials + more)


def _halved(planted: PlantedChange, chance: random.Random) -> tuple[int, int]:
    low, high, trials = 0, planted.releases, 0
    while high - low > 1:
        middle = (low + high) // 2
        trials += 1
        if planted.fails(True, middle, chance):
            high = middle
        else:
            low = middle
    return low, trials


# -- making environments


def _making() -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
    from support.planted_index import PlantedIndex

    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        index = PlantedIndex(root / "wheels")
        for number in range(30):
            index.release(f"planted{number}", "1.0")
        job = EnvironmentJob(
            "",
            sys.executable,
            [f"planted{number}==1.0" for number in range(30)],
            find_links=[str(index.directory)],
        )
        times = []
        for attempt in range(3):
            begun = time.perf_counter()
            make(replace(job, place=str(root / f"environment{attempt}")), root / "files")
            times.append(time.perf_counter() - begun)
        print(f"an environment of 30 packages: {min(times):.2f} s")


if __name__ == "__main__":
    main()
