"""Coordinate descent: every axis as small as it goes, given the others, to a fixed point.

The whole reduction is a list of stages, each of them a search of its own: calibrate the original,
jump to all floors and to each floor, search axis after axis until none moves, ask again with fresh
trials for what minimality rests on, and confirm. The biggest gain comes first: what makes a trial
fast, then many items, then numbers, so that the answer so far is worth having at any moment. It
is replayed now and then; when a replay or the confirmation fails, accepted history is bisected for
the last point that fails about as often as the original. An axis that made the failure rarer there
comes last from then on, and its values are compared with the original. It knows points and
verdicts; how strict a verdict is, and how many trials it takes, is the judge's affair.
"""

import math
from collections import Counter
from collections.abc import Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import get_args

from aorta.core.axis import (
    Axis,
    AxisKind,
    NumberAxis,
    Point,
    Purpose,
    StepsAxis,
    SubsetAxis,
    size_at_floor,
)
from aorta.core.trial import Verdict
from aorta.search import Search
from aorta.search.axes import AxisSearch, NumericSearch, search_along
from aorta.search.reduction import AxisFacts, Reduction, Status
from aorta.search.repeated import EveryPoint, FirstThatReproduces


@dataclass(frozen=True)
class DescentRules:
    """When to look back."""

    replay_after_trials: int = 60  # at 20, a tenth of all trials of a rare failure are replays
    replay_after_rejections: int = 6
    setbacks_allowed: int = 5


@dataclass(frozen=True)
class _Stage:
    """One search of the program. A stage that `moves` makes its best point the answer so far."""

    search: Search
    base: Point
    axis: Axis | None = None
    moves: bool = True

    def owns(self, point: Point) -> bool:
        if self.axis is None:
            return self.search.wants(point)
        name = self.axis.name
        return point == self.base.with_value(name, point[name])


@dataclass
class _SinceSeen:
    """What has happened since the answer so far was last seen to reproduce."""

    trials: int = 0
    rejections: int = 0
    too_rare: int = 0  # of these, such as did fail, and less often than the original


_Stages = Generator[_Stage, None, None]
_CHEAP_FIRST = get_args(Axis)
_MANY_ITEMS = 16
# Along an axis where it fails ever more rarely: the tolerance, as near half of the original's rate
# every value takes many trials; and how many subsets in a row may be too rare.
_ROUGHLY, _TOO_RARE = 0.25, 3
_AS_CANDIDATE = 1_000  # of replicas: a number that no walk back reaches
_TOO_SLOW = "it takes much longer"
# Times the original, and seconds, as a busy machine may hold up any trial: longer is no gain.
_SLOWER, _SLACK = 3.0, 5.0


def _before_trials(axis: Axis) -> tuple[float, int]:
    """The order of axes while nothing was tried: the user's priority, else numbers before lists."""
    return _priority(axis), _CHEAP_FIRST.index(type(axis))


def _priority(axis: Axis) -> float:
    return math.inf if axis.priority is None else axis.priority


class Descent:
    """The search behind a reduction; `result` says at any moment what is known."""

    def __init__(self, axes: Sequence[Axis], rules: DescentRules | None = None) -> None:
        self._axes = tuple(axes)
        self._rules = rules or DescentRules()
        self._history = [Point.of({axis.name: axis.initial for axis in axes})]
        self._known: dict[Point, Verdict] = {}
        self._replicas: Counter[Point] = Counter()
        self._rechecked: set[Point] = set()
        self._last: dict[str, AxisSearch] = {}  # the last finished search of each axis
        self._seconds_at_floor: dict[str, float | None] = {}
        self._no_sizes: set[str] = set()  # axes whose smallest value makes a trial slower
        self._rarer: set[str] = set()  # axes along which it was seen to fail ever more rarely
        self._order = self._axes
        self._dirty = {axis.name for axis in axes}
        self._since = _SinceSeen()
        self._trials: Counter[str] = Counter()  # by axis
        self._candidates: Counter[str] = Counter()
        self._flaky = False
        self._setbacks = 0
        self._status, self._why = Status.RUNNING, ""
        self._calibration: Verdict | None = None
        self._confirmation: Verdict | None = None
        self._program: Iterator[_Stage] = self._reduce()
        self._stage: _Stage | None = next(self._program)

    # --- the contract of a search

    def ask(self, n: int, pending: Collection[Point] = ()) -> list[Point]:
        points = [replay for replay in self._due_replay() if replay not in pending][:n]
        if self._stage is None:
            return points
        search = self._stage.search
        waiting = [p for p in map(self._plain, pending) if self._is_current(p)]
        fresh = [p for p in search.ask(n - len(points), waiting) if p not in self._known]
        if not fresh and not points and not pending:
            fresh = list(search.ask(1))  # what one slot would ask next is never known already
        return points + [self._issued(point) for point in fresh]

    def tell(self, point: Point, verdict: Verdict) -> None:
        verdict = self._if_no_slower(point, verdict)
        due = self._due_replay()
        self._count(point, verdict)
        if point in due:
            self._replayed(verdict)
        else:
            self._record(self._plain(point), verdict)
        self._advance()

    def wants(self, point: Point) -> bool:
        if point in self._due_replay():
            return True
        plain = self._plain(point)
        if self._stage is None or self._issued(plain) != point or not self._is_current(plain):
            return False
        return self._stage.search.wants(plain)

    @property
    def done(self) -> bool:
        return self._stage is None

    @property
    def best(self) -> Point | None:
        """The smallest point accepted so far; None while the original has not failed."""
        return self._history[-1] if self._calibration and self._calibration.reproduces else None

    @property
    def left(self) -> int:
        """About how many questions are left: halvings between each axis and its floor."""
        if self.done:
            return 0
        axes = (axis for axis in self._axes if axis.name in self._dirty)
        return 1 + sum(map(self._questions, axes))

    def _questions(self, axis: Axis) -> int:
        if axis.name in self._last:
            return 1  # it was through: one question says whether it still is
        size, low = float(axis.size(self._incumbent[axis.name])), float(size_at_floor(axis))
        search = self._stage.search if self._stage and self._stage.axis == axis else None
        if isinstance(search, NumericSearch) and search.largest_rejected is not None:
            low = float(search.largest_rejected)
        step = float(getattr(axis, "step", None) or 1)
        return math.ceil(math.log2(1 + max(0.0, size - low) / step))

    @property
    def result(self) -> Reduction:
        return Reduction(
            status=self._status,
            why=self._why,
            original=self._history[0],
            best=self._history[-1],
            accepted=tuple(self._history),
            axes=tuple(self._facts(axis) for axis in self._axes),
            calibration=self._calibration,
            confirmation=self._confirmation,
            trials=self._trials.total(),
            candidates=self._candidates.total(),
            setbacks=self._setbacks,
        )

    # --- the program: what is asked, in which order

    def _reduce(self) -> _Stages:
        calibrate = EveryPoint([self._history[0].asked_for(Purpose.CALIBRATE)])
        yield _Stage(calibrate, self._incumbent, moves=False)
        self._calibration = calibrate.verdicts[calibrate.points[0]]
        self._flaky = self._calibration.tally.against > 0
        if not self._calibration.reproduces:
            self._end(Status.DID_NOT_REPRODUCE, self._calibration.why)
            return
        yield from self._jump()
        self._order = tuple(sorted(self._axes, key=self._worth))
        yield from self._settle()

    def _jump(self) -> _Stages:
        """All floors at once; else a group of axes that stops the failure is halved."""
        floors = {
            axis.name: axis.smallest
            for axis in sorted(self._axes, key=_before_trials)
            if axis.smallest is not None and axis.smallest != axis.initial
        }
        if len(floors) < 2:
            return  # the axis's own search begins there
        waiting = [list(floors)]
        while waiting:
            group, base = waiting.pop(), self._incumbent
            point = Point.of({**dict(base.values), **{name: floors[name] for name in group}})
            together = FirstThatReproduces([point])
            yield _Stage(together, base)
            if len(group) == 1:
                self._seconds_at_floor[group[0]] = together.verdicts[point].seconds
            elif self._incumbent == base:
                waiting += [group[len(group) // 2 :], group[: len(group) // 2]]

    def _settle(self) -> _Stages:
        """Descend, check, confirm; and again from further back as long as that fails."""
        while self._is_open:
            yield from self._descend()
            yield from self._conclude()

    def _conclude(self) -> _Stages:
        """Confirm what the descent ended at, unless it moves when it is checked."""
        if not self._is_open:
            return
        before = self._incumbent
        yield from self._recheck()
        if self._incumbent == before:
            yield from self._confirm()
        else:
            self._reopen()

    def _descend(self) -> _Stages:
        while self._dirty and self._is_open:
            axis = self._next_axis()
            before, name = self._incumbent, axis.name
            search = search_along(axis, before, self._last.get(name))
            if name in self._rarer:
                self._since = _SinceSeen()
            yield _Stage(search, before, axis)
            if self._is_no_size(axis, before):
                self._no_sizes.add(name)
            if self._incumbent != before:
                self._reopen()
            self._last[name] = search
            self._dirty.discard(name)
            if self._flaky and self._incumbent != before and self._dirty - self._last.keys():
                yield from self._compare()

    def _next_axis(self) -> Axis:
        """Those along which it fails ever more rarely last; and, where it is flaky, roughly."""
        waiting = [axis for axis in self._order if axis.name in self._dirty]
        axis = min(waiting, key=lambda axis: axis.name in self._rarer)
        flaky = self._calibration is not None and self._calibration.tally.against > 0
        if flaky and axis.name in self._rarer and isinstance(axis, NumberAxis | StepsAxis):
            return replace(axis, tolerance=max(axis.tolerance, _ROUGHLY))
        return axis

    def _is_no_size(self, axis: Axis, base: Point) -> bool:
        """Whether the smallest value was seen to make a trial slower: a period, or an interval."""
        if isinstance(axis, SubsetAxis):
            return False
        seen = self._known.get(base.with_value(axis.name, axis.smallest))
        return seen is not None and seen.why.startswith(_TOO_SLOW)

    def _reopen(self) -> None:
        """Something moved: every axis may have become smaller than it was found to be. One along
        which it fails ever more rarely is searched once.
        """
        names = {axis.name for axis in self._axes} - self._no_sizes
        self._dirty = (names - self._rarer) | (self._dirty & self._rarer)

    def _recheck(self) -> _Stages:
        """Fresh trials for rejections under the answer that may have been bad luck."""
        left = self._no_sizes | self._rarer
        through = [axis.name for axis in self._order if axis.name not in left]
        checks = (point for name in through for point in self._last[name].minimality_checks())
        weak = [point for point in checks if self._is_weak(point)]
        for point in weak:
            self._forget(point)
        self._rechecked.update(weak)  # each of them once
        if weak:
            yield _Stage(FirstThatReproduces(weak), self._incumbent)

    def _confirm(self) -> _Stages:
        if self._incumbent == self._history[0]:
            names = ", ".join(sorted(self._rarer))
            rarer = f"with less of {names} it fails less than half as often" if names else ""
            self._end(Status.NOT_REDUCED, rarer)
            return
        if self._flaky and not self._setbacks:
            yield from self._measure()
        self._confirmation = yield from self._asked(self._incumbent, Purpose.CONFIRM)
        if self._confirmation.reproduces and self._confirmation.tally.against and not self._flaky:
            # The first miss: what rested on certainty is asked and confirmed again.
            self._flaky = True
            self._rechecked.clear()
        elif self._confirmation.reproduces:
            self._end(Status.REDUCED, self._confirmation.why)
        elif self._confirmation.reproduces is None:
            self._end(Status.UNCONFIRMED, self._confirmation.why)
        else:
            yield from self._walk_back()

    def _asked(self, point: Point, purpose: Purpose) -> Generator[_Stage, None, Verdict]:
        fresh = point.asked_for(purpose)  # a question that was never asked: its trials are new
        question = fresh.asked_for(purpose, self._replicas[fresh])
        self._replicas[fresh] += 1
        search = EveryPoint([question])
        yield _Stage(search, self._incumbent, moves=False)
        return search.verdicts[question]

    def _measure(self) -> Generator[_Stage, None, Verdict]:
        """How often the original fails: what the answer is compared with."""
        verdict = yield from self._asked(self._history[0], Purpose.RATE)
        if self._calibration is not None:
            tally = self._calibration.tally + verdict.tally
            self._calibration = replace(self._calibration, tally=tally)
        return verdict

    def _compare(self) -> _Stages:
        """Before the next axis: what became rare along this one takes many trials along it."""
        verdict = yield from self._asked(self._incumbent, Purpose.RATE)
        if verdict.reproduces is False:
            yield from self._walk_back()

    def _walk_back(self) -> _Stages:
        """To the smallest accepted point that still fails about as often as the original."""
        self._setbacks += 1
        self._flaky = True
        measured = yield from self._measure()
        if measured.reproduces is None:
            why = f"the original could not be tried again: {measured.why}"
            self._end(Status.UNCONFIRMED, why)
        elif not measured.reproduces:
            self._end(Status.LOST, "the original no longer reproduces")
        if not measured.reproduces:
            return  # it is gone, or nothing can be told any more
        held, failed = 0, len(self._history)
        index = failed - 1  # what failed may have had bad luck, or the original a lucky start
        while failed - held > 1:
            verdict = yield from self._asked(self._history[index], Purpose.RATE)
            held, failed = (index, failed) if verdict.reproduces else (held, index)
            index = (held + failed) // 2
        self._return_to(held)
        if self._setbacks > self._rules.setbacks_allowed:
            self._end(Status.UNCONFIRMED, f"accepted points failed again {self._setbacks} times")

    def _return_to(self, index: int) -> None:
        """To this point of the history; what the next one moved made the failure rarer."""
        for point in [point for point, verdict in self._known.items() if verdict.reproduces]:
            self._forget(point)
        steps = self._history[index : index + 2]
        blamed = {axis.name for axis in self._axes if len({step[axis.name] for step in steps}) > 1}
        again = self._rarer | blamed if blamed - self._rarer else self._rarer - blamed
        del self._history[index + 1 :]
        self._last.clear()
        self._no_sizes.clear()
        self._rarer |= blamed
        self._reopen()
        self._dirty |= again
        self._since = _SinceSeen()

    @property
    def _is_open(self) -> bool:
        return self._status is Status.RUNNING

    def _end(self, status: Status, why: str) -> None:
        self._status, self._why = status, why

    # --- what was told

    def _if_no_slower(self, point: Point, verdict: Verdict) -> Verdict:
        """What fails like the original and takes far longer is no reduction of it."""
        original = self._calibration.seconds if self._calibration else None
        tried = point.purpose in {Purpose.PROBE, Purpose.RATE}
        if not tried or original is None or verdict.seconds is None:
            return verdict
        if verdict.seconds <= _SLOWER * original + _SLACK:
            return verdict
        why = f"{_TOO_SLOW}: {verdict.seconds:.3g} s, where the original takes {original:.3g} s"
        said = False if verdict.reproduces else verdict.reproduces
        return Verdict(said, verdict.tally, why, verdict.seconds)

    def _record(self, point: Point, verdict: Verdict) -> None:
        if point.purpose is Purpose.PROBE:
            self._known[point] = verdict
            self._flaky |= bool(verdict.reproduces and verdict.tally.against)
        if self._stage is not None and self._is_current(point):
            self._hand_over(point, verdict)

    def _hand_over(self, point: Point, verdict: Verdict) -> None:
        if self._stage is None:
            return
        self._stage.search.tell(point, verdict)
        best = self._stage.search.best
        if self._stage.moves and best is not None and best != self._incumbent:
            self._history.append(best)
            self._since = _SinceSeen()

    def _advance(self) -> None:
        """To the next question that has no answer yet."""
        while self._stage is not None:
            axis, base = self._stage.axis, self._stage.base
            given_up = isinstance(axis, SubsetAxis) and self._since.too_rare >= _TOO_RARE
            no_size = axis is not None and self._is_no_size(axis, base)
            if self._stage.search.done or no_size or given_up:
                self._stage = next(self._program, None)
                continue
            question = next(iter(self._stage.search.ask(1)))
            if question not in self._known:
                return
            self._hand_over(question, self._known[question])

    def _replayed(self, verdict: Verdict) -> None:
        self._since = _SinceSeen()
        self._flaky |= verdict.tally.against > 0
        if verdict.reproduces is False:
            self._program = chain(self._walk_back(), self._settle())
            self._stage = next(self._program, None)

    def _count(self, point: Point, verdict: Verdict) -> None:
        if point.purpose is Purpose.REPLAY:
            question = point.asked_for(Purpose.REPLAY)
            self._replicas[question] = max(self._replicas[question], point.replica + 1)
        name = self._stage.axis.name if self._stage and self._stage.axis else ""
        trials = max(1, verdict.tally.trials)
        self._trials[name] += trials
        self._candidates[name] += self._plain(point).purpose is Purpose.PROBE
        self._since.trials += trials
        self._since.rejections += not verdict.reproduces
        if self._compares and verdict.reproduces is False and verdict.tally.reproduced:
            self._since.too_rare += 1

    # --- points and their replicas

    @property
    def _incumbent(self) -> Point:
        return self._history[-1]

    def _due_replay(self) -> list[Point]:
        """The replay of the answer so far, when it is time for one."""
        moves = self._stage is not None and self._stage.moves and not self._compares
        if not moves or len(self._history) == 1:
            return []
        due = (
            self._since.trials >= self._rules.replay_after_trials
            or self._since.rejections >= self._rules.replay_after_rejections
        )
        question = self._incumbent.asked_for(Purpose.REPLAY)
        return [question.asked_for(Purpose.REPLAY, self._replicas[question])] if due else []

    def _forget(self, point: Point) -> None:
        """The next verdict of this point will rest on fresh trials too."""
        if self._known.pop(point, None) is not None:
            self._replicas[point] += 1

    def _issued(self, point: Point) -> Point:
        if point.purpose is not Purpose.PROBE:
            return point
        replica = self._replicas[point]
        if self._compares:
            return point.asked_for(Purpose.RATE, _AS_CANDIDATE + replica)
        return point.asked_for(Purpose.PROBE, replica)

    def _plain(self, point: Point) -> Point:
        candidate = Purpose.RATE if self._compares else Purpose.PROBE
        return point.asked_for(Purpose.PROBE) if point.purpose is candidate else point

    @property
    def _compares(self) -> bool:
        """Whether candidates must fail about as often as the original, and not only at all."""
        axis = self._stage.axis if self._stage else None
        return axis is not None and axis.name in self._rarer

    def _is_current(self, point: Point) -> bool:
        return self._stage is not None and self._stage.owns(point)

    def _is_weak(self, point: Point) -> bool:
        verdict = self._known.get(point)
        if verdict is None or verdict.reproduces is not False or point in self._rechecked:
            return False
        against = verdict.tally.against
        return 0 < against < 2 or (self._flaky and verdict.tally.trials > 0)

    # --- what is reported

    def _worth(self, axis: Axis) -> tuple[float, int, float, float]:
        """By priority; then numbers that halve a trial's time, many items, numbers by range."""
        priority = _priority(axis)
        if isinstance(axis, SubsetAxis):
            many = axis.kind is AxisKind.DIR_SUBSET or len(axis.items) >= _MANY_ITEMS
            return priority, 1 if many else 3, 0.0, -float(len(axis.items))
        seconds = self._seconds_at_floor.get(axis.name)
        whole = self._calibration.seconds if self._calibration else None
        fast = seconds is not None and whole is not None and 2 * seconds <= whole
        ratio = float(axis.size(axis.initial)) / max(1.0, float(size_at_floor(axis)))
        return priority, 0 if fast else 2, math.inf if seconds is None else seconds, -ratio

    def _facts(self, axis: Axis) -> AxisFacts:
        last = self._last.get(axis.name)
        monotone = last.monotone if last is not None else None
        if self._flaky and monotone is False and axis.monotone is not False:
            monotone = None  # what a larger value did not show may have been bad luck
        return AxisFacts(
            axis=axis,
            final=self._incumbent[axis.name],
            monotone=monotone,
            trials=self._trials[axis.name],
            candidates=self._candidates[axis.name],
            unresolved=last.unresolved if last is not None else 0,
            rarer=axis.name in self._rarer,
        )
