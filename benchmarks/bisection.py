"""What a bisection costs: builds of steady failures, trials of flaky ones, and how honest its
confidence is.

The peer's builds are those measured on the same shapes with its own code (50 seeds); `git-bayesect`
runs here, on the same seeds. Every run has its own seed, so that the table is the same every time.
The prior rates of the search were chosen on other seeds than these; a second, larger range shows
that the first is no luck.
"""

import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import product

from aorta.core.trial import Verdict
from aorta.search.bisection import Bisection, BisectionSettings
from aorta.search.gallop import GallopBack
from aorta.search.timeline import History, Timeline, Vector

SEEDS = range(200)
FRESH_SEEDS = range(5000, 5600)
CANDIDATES = 1024
DAYS = 400


@dataclass(frozen=True)
class Ran:
    right: bool
    trials: int
    rounds: int
    builds: int
    width: int = 1
    ideal: int = 1
    answered: bool = True
    agreed: bool = True
    good_failed: bool = False


def main() -> None:
    with ProcessPoolExecutor() as pool:

        def over_seeds(run: Callable[[int], Ran], seeds: range = SEEDS) -> list[Ran]:
            return list(pool.map(run, seeds, chunksize=5))

        _steady(over_seeds)
        _unbuildable(over_seeds)
        _flaky(over_seeds)
        _side_by_side(over_seeds)
        _dates(over_seeds)
        _calibration(over_seeds)
        _noisy(over_seeds)
    _speed()


OverSeeds = Callable[..., list[Ran]]


def _steady(over_seeds: OverSeeds) -> None:
    print(f"distinct builds until the commit is named, {len(SEEDS)} seeds, mean / max")
    print(f"{'packages x commits':<34}{'aorta':>14}{'target':>12}{'jax-toolbox-triage':>21}")
    rows = [
        ((1000,), "uniform", "12 / 12", "12.0 / 12"),
        ((64,) * 3, "uniform", "9.7 / 10", "10.0 / 16"),
        ((64,) * 5, "uniform", "10.4 / 11", "11.5 / 17"),
        ((64,) * 5, "same", "10.4 / 11", "21.0 / 33"),
        ((64,) * 5, "window", "10.4 / 11", "21.2 / 36"),
    ]
    words = {"uniform": "", "same": ", equal timestamps", "window": ", separate windows"}
    for sizes, spread, target, peer in rows:
        ran = over_seeds(partial(steady_run, sizes, spread))
        assert all(one.right for one in ran)
        builds = [one.builds for one in ran]
        shape = f"{len(sizes)} x {sizes[0]}{words[spread]}"
        ours = f"{statistics.fmean(builds):.1f} / {max(builds)}"
        print(f"{shape:<34}{ours:>14}{target:>12}{peer:>21}")


def _unbuildable(over_seeds: OverSeeds) -> None:
    print("\n3 x 64, commits that do not build: width of the answer (ideal), builds mean / max")
    for share, peer in ((0.1, "2.00 (1.20)"), (0.3, "8.20 (2.06)")):
        ran = over_seeds(partial(unbuildable_run, share))
        assert all(one.right for one in ran)
        width = statistics.fmean(one.width for one in ran)
        ideal = statistics.fmean(one.ideal for one in ran)
        builds = [one.builds for one in ran]
        print(
            f"  {share:.0%}: {width:.2f} ({ideal:.2f}), {width / ideal:.2f} of the ideal (target "
            "1.1), "
            f"{statistics.fmean(builds):.1f} / {max(builds)} builds; peer {peer}"
        )


def _flaky(over_seeds: OverSeeds) -> None:
    print(f"\nflaky, {CANDIDATES} candidates, rates unknown, 0.95: mean trials (right) [builds]")
    ranges = [f"seeds {seeds.start}-{seeds.stop - 1}" for seeds in (SEEDS, FRESH_SEEDS)]
    print(f"{'fails/flakes':<14}{'target':>8}{ranges[0]:>22}{ranges[1]:>22}{'git-bayesect':>16}")
    for fails, flakes, target in ((0.5, 0.0, 51), (0.5, 0.02, 64), (0.9, 0.02, 25), (0.3, 0.0, 92)):
        run = partial(flaky_run, CANDIDATES, fails, flakes, 1, 0.95)
        ours = [_trials_and_right(over_seeds(run, seeds)) for seeds in (SEEDS, FRESH_SEEDS)]
        peer = "not installed"
        if find_spec("git_bayesect"):
            theirs = over_seeds(partial(git_bayesect_run, CANDIDATES, fails, flakes))
            peer = _trials_and_right(theirs, builds=False)
        rates = f"{fails} / {flakes}"
        print(f"{rates:<14}{target:>8}{ours[0]:>22}{ours[1]:>22}{peer:>16}", flush=True)


def _side_by_side(over_seeds: OverSeeds) -> None:
    print("\nside by side, fails 0.5, flakes 0: rounds / trials (target 12 rounds at 8 workers)")
    for workers in (2, 8):
        ran = over_seeds(partial(flaky_run, CANDIDATES, 0.5, 0.0, workers, 0.95), range(60))
        rounds = statistics.fmean(one.rounds for one in ran)
        trials = statistics.fmean(one.trials for one in ran)
        right = statistics.fmean(one.right for one in ran)
        print(f"  {workers} workers: {rounds:.1f} / {trials:.0f} ({right:.2f})", flush=True)


def _dates(over_seeds: OverSeeds) -> None:
    print(
        f"\n{DAYS} days, age of the failure unknown, 0.95: trials, right of answers given, no "
        "answer"
    )
    for fails, flakes in ((1.0, 0.0), (0.7, 0.0), (0.5, 0.0), (0.5, 0.02), (0.3, 0.0)):
        ran = over_seeds(partial(dates_run, fails, flakes))
        answers = [one for one in ran if one.answered]
        trials = statistics.fmean(one.trials for one in ran)
        right = statistics.fmean(one.right for one in answers)
        rates = f"{fails} / {flakes}"
        print(f"  {rates:<12}{trials:6.1f}  {right:.3f}  {len(ran) - len(answers)}", flush=True)


def _calibration(over_seeds: OverSeeds) -> None:
    """Rates drawn anew for each run: what is stated must hold over what may come, not at one chosen
    rate.
    """
    print(
        "\ncalibration, 128 candidates, fails 0.2-1, flakes 0-0.05: wrong among the answers given,"
    )
    print("checked elsewhere or not")
    print(f"{'stated':>8}{'checks':>10}{'answers':>9}{'wrong':>8}{'allowed':>9}{'trials':>8}")
    for level, sentinels in product((0.8, 0.9, 0.95, 0.99), (2, 0)):
        ran = over_seeds(partial(any_rate_run, level, sentinels), range(1000))
        answers = [one for one in ran if one.answered]
        wrong = statistics.fmean(not one.right for one in answers)
        trials = statistics.fmean(one.trials for one in ran)
        line = f"{'#' * round(200 * wrong):<{round(200 * (1 - level))}}|"
        checks = "checked" if sentinels else "without"
        figures = f"{len(answers):>9}{wrong:>8.1%}{1 - level:>9.1%}{trials:>8.1f}"
        print(f"{level:>8.2f}{checks:>10}{figures}  {line}", flush=True)


def _noisy(over_seeds: OverSeeds) -> None:
    """One pair of rates at a time, also of tests that fail on good states. Flakiness that no trial
    showed cannot be told from none.
    """
    print(
        "\none pair of rates, 128 candidates, 0.95: answers, wrong, trials; wrong where every trial"
    )
    print(
        "agreed with the answer, where some did not, where good states failed; checked elsewhere "
        "or not"
    )
    pairs = ((1.0, 0.0), (0.5, 0.0), (0.9, 0.05), (0.9, 0.1), (0.7, 0.1), (0.9, 0.2), (0.5, 0.1))
    for (fails, flakes), sentinels in product(pairs, (2, 0)):
        seeds = range(1000 if sentinels else 400)
        ran = over_seeds(partial(interval_run, fails, flakes, 0.95, sentinels), seeds)
        answers = [one for one in ran if one.answered]
        wrong = statistics.fmean(not one.right for one in answers)
        trials = statistics.fmean(one.trials for one in ran)
        agreed = _wrong_of([one for one in answers if one.agreed])
        differed = _wrong_of([one for one in answers if not one.agreed])
        noisy = _wrong_of([one for one in answers if one.good_failed])
        checks = "checked" if sentinels else "without"
        rates = f"{fails} / {flakes:<6}{checks}{len(answers):>6}{wrong:>8.1%}{trials:>8.1f}"
        print(f"  {rates}  {agreed:>10}{differed:>10}{noisy:>10}", flush=True)


def _speed() -> None:
    print("\nchoosing the next state of a line, fails 0.5, flakes 0: ms of a core a trial")
    for candidates in (CANDIDATES, 4000):
        began = time.process_time()
        trials = sum(flaky_run(candidates, 0.5, 0.0, 1, 0.95, seed).trials for seed in range(20))
        took = 1000 * (time.process_time() - began) / trials
        print(f"  {candidates} commits: {took:.1f}")


def _wrong_of(answers: Sequence[Ran]) -> str:
    return f"{sum(not one.right for one in answers)}/{len(answers)}"


def _trials_and_right(ran: Sequence[Ran], *, builds: bool = True) -> str:
    trials = statistics.fmean(one.trials for one in ran)
    figure = f"{trials:.1f} ({statistics.fmean(one.right for one in ran):.3f})"
    return f"{figure} [{statistics.fmean(one.builds for one in ran):.0f}]" if builds else figure


# -- one run


def _run(
    timeline: Timeline,
    judge: Callable[[Vector], bool | None],
    culprit: tuple[int, int],
    *,
    workers: int = 1,
    confidence: float = 0.95,
    sentinels: int = 0,
    ideal: int = 1,
) -> Ran:
    settings = BisectionSettings(confidence=confidence, sanity_probes=sentinels)
    search = Bisection(timeline, settings)
    trials = rounds = 0
    while not search.done and trials < 5000:
        rounds += 1
        for point in search.ask(workers):
            trials += 1
            search.tell(point, Verdict(judge(timeline.vector(point))))
    answer = search.answer
    changes = {(c.package, c.rank + 1) for c in answer.changes} if answer else set()
    right = culprit in changes
    builds, width = len(search.untestable | search.trials.keys()), len(changes)
    (flaked, _), (_, silent) = search.good_and_bad()
    done = Ran(right, trials, rounds, builds, width, ideal, answered=answer is not None)
    return replace(done, agreed=not flaked and not silent, good_failed=flaked > 0)


def _histories(sizes: Sequence[int], spread: str, rng: random.Random) -> list[History]:
    histories = []
    for index, size in enumerate(sizes):
        low, high = {"uniform": (0.0, 30.0), "same": (1.0, 1.0)}.get(spread, (-index, 1.0 - index))
        times = tuple(sorted(rng.uniform(low, high) for _ in range(size + 1)))
        versions = tuple(f"{index}.{i}" for i in range(size + 1))
        histories.append(History(f"p{index}", versions, times))
    return histories


def steady_run(sizes: Sequence[int], spread: str, seed: int) -> Ran:
    rng = random.Random(seed)
    timeline = Timeline(_histories(sizes, spread, rng))
    package = rng.randrange(len(sizes))
    rank = rng.randrange(1, sizes[package] + 1)
    return _run(timeline, lambda vector: vector[package] >= rank, (package, rank))


def unbuildable_run(share: float, seed: int) -> Ran:
    """Each commit breaks on its own; the ideal is the run of broken commits around the culprit in
    its own package.
    """
    rng = random.Random(seed)
    timeline = Timeline(_histories((64,) * 3, "uniform", rng))
    package, rank = rng.randrange(3), rng.randrange(1, 65)
    broken = [{i for i in range(1, 64) if rng.random() < share} for _ in range(3)]
    low, high = rank - 1, rank
    while low in broken[package]:
        low -= 1
    while high in broken[package]:
        high += 1

    def judge(vector: Vector) -> bool | None:
        if any(version in broken[index] for index, version in enumerate(vector)):
            return None
        return vector[package] >= rank

    return _run(timeline, judge, (package, rank), ideal=high - low)


def flaky_run(
    candidates: int, fails: float, flakes: float, workers: int, confidence: float, seed: int
) -> Ran:
    rng = random.Random(seed)
    culprit = rng.randrange(1, candidates)
    timeline = Timeline([History("package", tuple(str(i) for i in range(candidates)))])
    done = _run(
        timeline,
        lambda vector: rng.random() < (fails if vector[0] >= culprit else flakes),
        (0, culprit),
        workers=workers,
        confidence=confidence,
    )
    exact = done.right and done.width == 1
    return Ran(exact, done.trials, done.rounds, done.builds)


def any_rate_run(confidence: float, sentinels: int, seed: int) -> Ran:
    """An interval is right if it holds the culprit: that is what it states."""
    rng = random.Random(50_000 + seed)
    fails, flakes = rng.uniform(0.2, 1.0), rng.uniform(0.0, 0.05)
    return _interval_run(fails, flakes, confidence, rng, sentinels)


def interval_run(fails: float, flakes: float, confidence: float, sentinels: int, seed: int) -> Ran:
    return _interval_run(fails, flakes, confidence, random.Random(60_000 + seed), sentinels)


def _interval_run(
    fails: float, flakes: float, confidence: float, rng: random.Random, sentinels: int = 0
) -> Ran:
    culprit = rng.randrange(1, 128)
    timeline = Timeline([History("package", tuple(str(i) for i in range(128)))])
    return _run(
        timeline,
        lambda vector: rng.random() < (fails if vector[0] >= culprit else flakes),
        (0, culprit),
        confidence=confidence,
        sentinels=sentinels,
    )


def dates_run(fails: float, flakes: float, seed: int) -> Ran:
    """Every doubling of the age of the failure is as likely; an interval is right if it holds the
    day.
    """
    rng = random.Random(seed)
    first_bad = DAYS - int(2 ** rng.uniform(0.0, math.log2(DAYS - 1)))
    names = [f"{day:03d}" for day in range(DAYS)]
    search = GallopBack("container", names, [float(day) for day in range(DAYS)])
    trials = 0
    while not search.done and trials < 5000:
        [point] = search.ask(1)
        trials += 1
        bad = int(str(point["container"])) >= first_bad
        search.tell(point, Verdict(rng.random() < (fails if bad else flakes)))
    answer = search.bisection.answer if search.bisection else None
    if answer is None:
        return Ran(False, trials, trials, 0, answered=False)
    good, bad_day = answer.good[0] - 1, answer.bad[0] - 1  # the first state is beyond all days
    return Ran(good < first_bad <= bad_day, trials, trials, 0, bad_day - good)


def git_bayesect_run(candidates: int, fails: float, flakes: float, seed: int) -> Ran:
    """Its index 0 is the newest commit; the last index that fails is the culprit."""
    peer = import_module("git_bayesect")  # it has no types
    rng = random.Random(seed)
    last_bad = candidates - 1 - rng.randrange(1, candidates)
    bisector = peer.Bisector([1.0] * candidates)
    trials = 0
    while max(bisector.distribution) < 0.95 and trials < 5000:
        index = bisector.select()
        bisector.record(index, rng.random() < (fails if index <= last_bad else flakes))
        trials += 1
    found = int(bisector.distribution.argmax())
    return Ran(found == last_bad, trials, trials, trials)


if __name__ == "__main__":
    main()
