"""How honest a bisection is in histories with merges: answers that are wrong beside those that may
be.

    python -m benchmarks.merges [--jobs N] [--runs N] [--levels .95 ...] [--rates .9/.2 ...]
    [--shapes]

Each run plants a culprit in a history of its own, whose test fails with the one rate on states that
contain it and with the other on states that do not. An answer is right if the culprit is among the
changes that it names, whatever their number: that is what its probability is said of. Every run has
its own seed, so that the table is the same every time; the shares and doubts of the search were
chosen on seeds below 1,000, which the table does not use unless it is told to (`--first 0`).
"""

import argparse
import os
import random
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

from aorta.bisect.histories import CommitSpan, Graph
from aorta.core.stats import wilson
from aorta.core.trial import Verdict
from aorta.runtimes.git import Commit
from aorta.search.bisection import Bisection, BisectionSettings
from aorta.search.timeline import GraphTimeline

LEVELS = (0.8, 0.9, 0.95, 0.99)
RATES = ((1.0, 0.0), (0.5, 0.0), (0.9, 0.05), (0.9, 0.1), (0.9, 0.2), (0.7, 0.1), (0.5, 0.1))
SIZES = (
    12,
    30,
    100,
)  # changes, about: where few trials are enough, few of them can contradict each other
_SENTINELS = 2  # as `aorta bisect` asks for

Parents = Iterator[tuple[int, ...]]


# -- shapes: the parents of each commit, by number; the last one contains all


def straight(commits: int, _: random.Random) -> Parents:
    yield ()
    for number in range(commits):
        yield (number,)


def short_branches(commits: int, rng: random.Random) -> Parents:
    """A main line, and branches of a few commits that are merged soon."""
    yield ()
    main, count = 0, 1
    while count < commits:
        if rng.random() < 0.4:
            yield (main,)
            main, count = count, count + 1
            continue
        tip = main
        for _ in range(rng.randrange(1, 7)):
            yield (tip,)
            tip, count = count, count + 1
        for _ in range(rng.randrange(3)):  # meanwhile on the main line
            yield (main,)
            main, count = count, count + 1
        yield main, tip
        main, count = count, count + 1


def releases(commits: int, rng: random.Random) -> Parents:
    """Every release is a branch that gets commits of its own for a while and is merged back into
    the main line.
    """
    yield ()
    main, count, branches = 0, 1, list[int]()
    while count < commits:
        chance = rng.random()
        if chance < 0.06:
            branches.append(main)
        if branches and chance > 0.9:
            yield main, branches[0]
            main, count = count, count + 1
            if rng.random() < 0.4:
                branches.pop(0)
        elif branches and chance > 0.6:
            place = rng.randrange(len(branches))
            yield (branches[place],)
            branches[place], count = count, count + 1
        else:
            yield (main,)
            main, count = count, count + 1
    for tip in branches:
        yield main, tip
        main, count = count, count + 1


def criss_cross(commits: int, rng: random.Random) -> Parents:
    """Two lines that are merged into each other again and again."""
    yield ()
    heads, count = [0, 0], 1
    while count < commits:
        side = rng.randrange(2)
        if heads[0] != heads[1] and rng.random() < 0.25:
            yield heads[side], heads[1 - side]
        else:
            yield (heads[side],)
        heads[side], count = count, count + 1
    yield tuple(dict.fromkeys(heads))


def long_lived(commits: int, rng: random.Random) -> Parents:
    """A branch that lives beside the main line, takes it in now and then, and is merged at the
    end.
    """
    yield ()
    main = branch = 0
    count = 1
    while count < commits:
        chance = rng.random()
        if chance < 0.05 and main != branch:
            yield branch, main
            branch = count
        elif chance < 0.5:
            yield (branch,)
            branch = count
        else:
            yield (main,)
            main = count
        count += 1
    yield main, branch


def octopus(commits: int, rng: random.Random) -> Parents:
    """Many branches at once, merged together."""
    yield ()
    main, count = 0, 1
    while count < commits:
        tips = []
        for _ in range(rng.randrange(2, 6)):
            tip = main
            for _ in range(rng.randrange(1, 6)):
                yield (tip,)
                tip, count = count, count + 1
            tips.append(tip)
        yield main, *tips
        main, count = count, count + 1


SHAPES = (straight, short_branches, releases, criss_cross, long_lived, octopus)


def graph_of(
    shape: Callable[[int, random.Random], Parents], commits: int, rng: random.Random
) -> Graph:
    made = [
        Commit(f"c{n}", tuple(f"c{p}" for p in known), n, "Ann", "", f"commit {n}")
        for n, known in enumerate(shape(commits, rng))
    ]
    return CommitSpan("c0", made[-1].sha, made[0], (), tuple(made[1:])).graph("package")


# -- one run


@dataclass(frozen=True)
class Ran:
    shape: str
    size: int
    trials: int
    answered: bool
    right: bool = False
    stated: float = 0.0
    width: int = 0
    agreed: bool = False  # every trial agrees with the answer
    within: bool = True  # the bound of trials was kept


def run(fails: float, flakes: float, level: float, sentinels: int, seed: int) -> Ran:
    shape, size = SHAPES[seed % len(SHAPES)], SIZES[seed // len(SHAPES) % len(SIZES)]
    rng = random.Random(f"{shape.__name__} {fails} {flakes} {seed}")
    graph = graph_of(shape, size, rng).history
    culprit = rng.randrange(graph.changes)
    search = Bisection(
        GraphTimeline(graph), BisectionSettings(confidence=level, sanity_probes=sentinels)
    )
    trials = 0
    while asked := search.ask(1):
        [point] = asked
        trials += 1
        [state] = search.timeline.vector(point)
        has = graph.holds[state] >> culprit & 1
        search.tell(point, Verdict(rng.random() < (fails if has else flakes)))
    answer = search.answer
    if answer is None:
        return Ran(shape.__name__, size, trials, answered=False)
    (flaked, _), (_, silent) = search.good_and_bad()
    return Ran(
        shape.__name__,
        size,
        trials,
        answered=True,
        right=any(change.rank == culprit for change in answer.changes),
        stated=answer.mass,
        width=len(answer.changes),
        agreed=not flaked and not silent,
        within=trials <= search.most_trials,
    )


# -- the table


def main(given: Sequence[str] = ()) -> None:
    asked = _arguments(given)
    print(
        f"{len(SHAPES)} shapes with about 12, 30 and 100 changes, {asked.runs} runs a line: wrong "
        "among the"
    )
    print(
        "answers given (95 % range), allowed, trials; wrong where every trial agreed with the "
        "answer, and"
    )
    print(
        "where some did not; answers of several changes, none; the mean doubt of the belief itself"
    )
    with ProcessPoolExecutor(asked.jobs) as pool:
        for fails, flakes in asked.rates:
            for level in asked.levels:
                one = partial(run, fails, flakes, level, asked.sentinels)
                ran = list(pool.map(one, range(asked.first, asked.first + asked.runs), chunksize=8))
                _print(f"{fails:g} / {flakes:g}", level, ran)
                if asked.shapes:
                    for shape in SHAPES:
                        these = [r for r in ran if r.shape == shape.__name__]
                        _print(f"  {shape.__name__}", level, these)
                    for size in SIZES:
                        _print(f"  {size}", level, [r for r in ran if r.size == size])


def _print(name: str, level: float, ran: Sequence[Ran]) -> None:
    answers = [one for one in ran if one.answered]
    wrong = sum(not one.right for one in answers)
    low, high = wilson(wrong, len(answers))
    stated = statistics.fmean(1 - one.stated for one in answers)
    trials = statistics.fmean(one.trials for one in ran)
    parts = (
        _wrong_of([one for one in answers if one.agreed]),
        _wrong_of([one for one in answers if not one.agreed]),
    )
    wide = sum(one.width > 1 for one in answers)
    flag = "" if low <= 1 - level else "  TOO MANY"
    flag += "" if all(one.within for one in ran) else "  MORE TRIALS THAN IT MAY"
    print(
        f"{name:<18}{level:>5.2f}{wrong / len(answers):>7.1%} ({low:5.1%}-{high:5.1%})"
        f"{1 - level:>6.0%}{trials:>7.1f}"
        + "".join(f"{part:>10}" for part in parts)
        + f"{wide:>5}{len(ran) - len(answers):>4}{stated:>7.1%}{flag}",
        flush=True,
    )


def _wrong_of(answers: Sequence[Ran]) -> str:
    return f"{sum(not one.right for one in answers)}/{len(answers)}"


def _pair(text: str) -> tuple[float, float]:
    fails, flakes = text.split("/")
    return float(fails), float(flakes)


def _arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.merges")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--first", type=int, default=10_000, help="the first seed")
    parser.add_argument("--levels", type=float, nargs="+", default=LEVELS)
    parser.add_argument("--rates", type=_pair, nargs="+", default=RATES)
    parser.add_argument("--sentinels", type=int, default=_SENTINELS)
    parser.add_argument("--shapes", action="store_true")
    return parser.parse_args(given)


if __name__ == "__main__":
    main(sys.argv[1:])
