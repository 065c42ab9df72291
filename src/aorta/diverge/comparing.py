"""Where the numbers part: pure rules over recorded streams.

The cause is the first operation whose result differs by more than rounding while its inputs do not;
or, where the sides do different things, the first that one side does alone and that changes an end
of the program. What two runs of one side do differently is learned first and never counted.
"""

import math
import re
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from aorta.diverge.alignment import Alignment, Noise, Pair, align
from aorta.diverge.parts import in_other_parts, in_runs
from aorta.diverge.rounding import Judged, led_elsewhere, one_is_low, outputs_apart
from aorta.diverge.stream import Operation, Stream, plain

_UNLIKE, _ALIKE = 0.1, 1e-3  # less than one digit is the same, three are
_ALIGNED_ENOUGH = 0.5  # of the operations of the shorter stream
_FACTORS = re.compile(r"aten::(mul|div)")
_UNSCALES = "aten::_amp_foreach_non_finite_check_and_unscale_"
_SETS_SCALE = "aten::_amp_update_scale_"
# Of what begins it the first of these is not named where something follows that computes.
_PREPARES = re.compile(r"input|aten::(cat|stack|arange|(full|zeros|ones)(_like)?)")

PHASES = {"f": "forward", "b": "backward", "o": "optimizer"}


@dataclass(frozen=True)
class Parting:
    """One operation that gives other numbers on the other side, and what is known of it."""

    bad: Operation
    good: Operation
    judged: Judged
    rank: int
    reads: tuple[tuple[Operation, float], ...] = ()  # what it read, and how far apart that was
    # Where the sides do different things: what began it; `bad` and `good` differ because of it.
    begins: Operation | None = None
    begun_on: str | None = None  # the side that does what began it
    only_on: str | None = None  # likewise, if the other never does it

    @property
    def operation(self) -> Operation:
        return self.begins or self.bad

    @property
    def module(self) -> str:
        """Where the operation stands; of what only moves numbers also where they are first used."""
        return self.operation.module or (self.bad.module if self.operation.moves else "")

    def to_json(self) -> dict[str, Any]:
        inputs = [
            {**digest.to_json(), "from": read.op, "difference": plain(apart)}
            for read, apart in self.reads
            for digest in read.outputs[:1]
        ]
        return {
            **place_of(self.operation, self.rank),
            "module": self.module or None,
            "only_on": self.only_on,
            "difference": plain(self.judged.difference),
            "expected_rounding": plain(self.judged.expected),
            "inherited": plain(self.judged.inherited),
            "other_dtype": self.judged.other_type,
            "apart": place_of(self.bad, self.rank) if self.begins else None,
            "element": self.bad.element if self.bad.is_of_list else None,
            "inputs": inputs,
            "bad": _side(self.bad),
            "good": _side(self.good),
        }


@dataclass(frozen=True)
class Comparison:
    """Two sides, rank by rank. `first` is the earliest guilty operation."""

    first: Parting | None
    compared: int
    unmatched: tuple[Operation, ...]
    is_aligned: bool
    # At another precision, where no operation is guilty: what loses nearly all digits by rounding.
    lost: Parting | None = None
    passing: Parting | None = None  # the first that differs where nothing follows from that


def compare(
    bads: Sequence[Sequence[Stream]],
    goods: Sequence[Sequence[Stream]],
    *,
    any_type: bool = False,
    end_alike: bool = True,
) -> Comparison:
    """Every run of either side is the streams of its ranks. More runs of a side teach what it does
    by chance. `any_type`: the good side was asked to compute in another precision. `end_alike`: no
    side ended before the other.
    """
    ranks = {len(run) for run in (*bads, *goods)}
    found = [
        _compare_rank(
            [run[rank] for run in bads], [run[rank] for run in goods], any_type, end_alike
        )
        for rank in range(min(ranks))
    ]
    guilty = [c for c in found if c.first is not None]
    innocent = next((c for c in found if c.lost is not None), found[0])
    chosen = min(guilty, key=lambda c: _when(c.first), default=innocent)
    return replace(
        chosen,
        compared=sum(c.compared for c in found),
        unmatched=tuple(o for c in found for o in c.unmatched),
        is_aligned=len(ranks) == 1 and all(c.is_aligned for c in found),
    )


def _when(parting: Parting | None) -> tuple[int, int]:
    assert parting is not None
    return (parting.bad.step, parting.bad.index)


def _compare_rank(
    bads: Sequence[Stream], goods: Sequence[Stream], any_type: bool, end_alike: bool
) -> Comparison:
    stepped = [any(o.step for o in side[0].operations) for side in (bads, goods)]
    if stepped[0] != stepped[1]:  # one side alone has an optimizer that counts them
        bads, goods = ([_in_one_step(stream) for stream in side] for side in (bads, goods))
    bad, good = bads[0], goods[0]
    noise = Noise(_learned(bads), _learned(goods))
    alignment = align(bad, good, noise, any_type=any_type)
    whole = end_alike and bad.ended and good.ended
    blame = _Blame(bad, good, alignment, any_type, whole=whole)
    guilty = [pair for pair in alignment.pairs if pair.judged.is_guilty]
    first = blame.first(guilty)
    lost = [p for p in alignment.pairs if any_type and first is None and _loses_digits(p.judged)]
    shorter = min(len(bad.operations), len(good.operations)) or 1
    return Comparison(
        first=first,
        compared=len(alignment.pairs) + len(alignment.beside),
        unmatched=(*alignment.only_first, *alignment.only_second),
        is_aligned=blame.accounted_for() >= _ALIGNED_ENOUGH * shorter,
        lost=blame.parting(lost[0]) if lost else None,
        passing=blame.parting(guilty[0]) if guilty and first is None else None,
    )


def _loses_digits(judged: Judged) -> bool:
    return judged.difference > _UNLIKE and judged.inherited < _ALIKE


def _in_one_step(stream: Stream) -> Stream:
    return replace(
        stream, operations=tuple(replace(o, in_one_step=True) for o in stream.operations)
    )


def _learned(runs: Sequence[Stream]) -> dict[int, float]:
    """For each operation of the first run: how far any other run of the same side parts from it."""
    apart: dict[int, float] = {}
    for other in runs[1:]:
        pairs = () if other.operations == runs[0].operations else align(runs[0], other).pairs
        for mine, theirs, _ in pairs:
            apart[mine.index] = max(apart.get(mine.index, 0.0), outputs_apart(mine, theirs))
    return apart


class _Blame:
    """Which of all that differs is named."""

    def __init__(
        self,
        bad: Stream,
        good: Stream,
        alignment: Alignment,
        any_type: bool = False,
        *,
        whole: bool = True,
    ) -> None:
        self.bad, self.good, self.alignment, self.any_type = bad, good, alignment, any_type
        self._bad, self._good = bad.by_index(), good.by_index()
        self._partner = {pair.first.index: pair for pair in alignment.pairs}
        self._of_good = {pair.second.index: pair for pair in alignment.pairs}
        self._paired = sorted(self._of_good)
        # In the last step of a side that ended early, an end is what is one of the other side, too.
        last = min(side.operations[-1].aligned_step for side in (bad, good))
        self._until: float = math.inf if whole or not self._one_ran_on() else last
        self._counts = [Counter(map(_kind, side.operations)) for side in (bad, good)]

    def _one_ran_on(self) -> bool:
        """Whether a side did something behind the last that both did."""
        both = (*self.alignment.pairs, *self.alignment.beside)
        last = max((pair.first.index for pair in both), default=-1)
        last_of_good = max((pair.second.index for pair in both), default=-1)
        ends = (self.bad.operations[-1].index, self.good.operations[-1].index)
        return ends != (last, last_of_good)

    def first(self, guilty: Sequence[Pair]) -> Parting | None:
        surviving = self._surviving()
        alignment = self.alignment
        written_over = [p for p in alignment.written_over if p.first.aligned_step < self._until]
        elsewhere = (surviving, written_over, alignment.gradients, alignment.updates)
        found = [self._of_flow(pairs) for pairs in elsewhere if pairs]
        if guilty:
            ends = (*surviving, *written_over, *alignment.gradients)
            matter = self._that_matter(guilty, ends, alone=not found)
            found += map(self._of_pair, matter[:1])
        return min(found, key=_when, default=None)

    def _that_matter(
        self, guilty: Sequence[Pair], ends: Sequence[Pair], *, alone: bool
    ) -> list[Pair]:
        """The partners that differ, but for those behind which the sides do different things until
        their numbers agree again, and for what nothing follows from: memory before its first use,
        a scale of gradients; where nothing else differs, also the length of a loader, or what it
        draws at its end.
        """
        bad = _Carried(self.bad, self._partner, {pair.first.index for pair in ends})
        good = _Carried(self.good, self._of_good, {pair.second.index for pair in ends})

        def is_idle(pair: Pair) -> bool:
            return pair.first.index not in bad.passed_on and pair.second.index not in good.passed_on

        def vanishes(pair: Pair) -> bool:
            return bad.vanishes(pair.first.index) and good.vanishes(pair.second.index)

        kept = self.bad.all_read_and_kept()
        scales = self._taken_out_again() | _scaled_losses(guilty, bad.reaches)
        matter = [
            pair
            for pair in guilty
            if pair.first.index not in scales
            and (
                not pair.first.op.startswith("aten::empty")
                or pair.first.index in kept
                or not is_idle(pair)
            )
        ]
        if not self.any_type and any(map(_is_far, matter)):
            matter = [pair for pair in matter if not (_is_far(pair) and vanishes(pair))]
        if alone and all(_is_drawn_or_counted(pair.first) and is_idle(pair) for pair in matter):
            return []
        return matter

    def _taken_out_again(self) -> set[int]:
        """What wrote the scale of gradients, where these agree once it is taken out."""
        if any(_is_far(pair) for pair in self.alignment.pairs if pair.first.op == _UNSCALES):
            return set()
        sets = [o for o in self.bad.operations if o.op == _SETS_SCALE]
        return {o.index for o in sets} | {index for o in sets for index, _ in o.inputs[0]}

    def parting(self, pair: Pair) -> Parting:
        read = tuple(
            (self._bad[writers[-1][0]], self._apart(writers[-1][0]))
            for writers in pair.first.inputs
            if writers and writers[-1][0] in self._bad
        )
        return Parting(pair.first, pair.second, pair.judged, self.bad.rank, read)

    def _apart(self, index: int) -> float:
        pair = self._partner.get(index)
        return pair.judged.difference if pair else 0.0

    # -- partners that give other numbers ----------------------------------------------------------

    def _of_pair(self, pair: Pair) -> Parting:
        """Of draws that differ: a draw before them that one side does alone began it. Of what reads
        the same numbers from another place of one memory: what wrote them there.
        """
        for index in sorted({i for writers in pair.first.inputs for i, _ in writers}):
            writes = self._partner.get(index)
            if writes is not None and writes.first.writes_at != writes.second.writes_at:
                return self._begun(pair, writes.first)
        if pair.first.is_random:
            before = self._in_order(
                o for o in (*self.alignment.only_first, *self.alignment.only_second) if o.is_random
            )
            if before and self._position(before[0]) < pair.first.index:
                return self._begun(pair, before[0])
        return self.parting(pair)

    # -- sides that do not do the same -------------------------------------------------------------

    def _surviving(self) -> list[Pair]:
        """Those `beside` that are in low precision on one side or lead to an end that differs."""
        apart = {p.first.index: p for p in self.alignment.beside if p.judged.is_guilty}
        ends = self._ends_among(apart)
        reached = self._upwards(ends, self._bad, self._partner)
        if reached:
            # What a loss is computed from comes before what only its gradients read.
            step = self._bad[min(reached)].aligned_step
            of_step = (self._bad[i] for i in ends if self._bad[i].aligned_step == step)
            losses = [o.index for o in of_step if o.phase == "f"]
            reached = self._upwards(losses, self._bad, self._partner) or reached
        known = (pair for pair in apart.values() if pair.first.aligned_step < self._until)
        low = {p.first.index for p in known if p.judged.other_type and one_is_low(*p[:2])}
        return [pair for index, pair in sorted(apart.items()) if index in reached | low]

    def _ends_among(self, apart: Mapping[int, Pair]) -> list[int]:
        """Beside what is no end of the good side may stand an end that agrees with one of those."""
        read, several = self.bad.all_read_as_numbers(), self._in_other_numbers()
        read_by_good = self.good.all_read_as_numbers()
        good_ends: dict[object, list[Operation]] = {}
        for operation in self.good.operations:
            if operation.index not in read_by_good:
                good_ends.setdefault(operation.shapes[1], []).append(operation)

        def is_one(pair: Pair) -> bool:
            is_known = pair.first.aligned_step < self._until
            if pair.second.index not in read_by_good:
                return is_known or pair.first.place == pair.second.place
            alike = good_ends.get(pair.first.shapes[1], ())
            return is_known and not any(self.alignment.agree(pair.first, good) for good in alike)

        lone = (p for i, p in apart.items() if i not in read and _end_of(p.first) not in several)
        return [pair.first.index for pair in lone if is_one(pair)]

    def _in_other_numbers(self) -> set[object]:
        """Lone ends that one side has more often, such as losses of micro-batches: which is which
        nobody knows, and where the gradients agree nothing follows from them.
        """
        counts = [
            Counter(
                _end_of(operation)
                for operation in side.operations
                if operation.aligned_step in self.alignment.trained_alike
                and operation.index not in partners
                and operation.index not in read
            )
            for side, partners, read in (
                (self.bad, self._partner, self.bad.all_read()),
                (self.good, self._of_good, self.good.all_read()),
            )
        ]
        return {end for end in counts[0] if counts[0][end] != counts[1][end]}

    @staticmethod
    def _upwards(
        ends: Iterable[int],
        known: Mapping[int, Operation],
        partners: Mapping[int, Pair],
        agrees: Callable[[Operation], bool] = lambda _: False,
    ) -> set[int]:
        """The operations without partners that lead there, up to those that agree."""
        found: set[int] = set()
        left = list(ends)
        while left:
            index = left.pop()
            if index in found or index in partners or index not in known:
                continue
            if found and agrees(known[index]):
                continue
            found.add(index)
            left += [i for writers in known[index].inputs for i, _ in writers]
        return found

    def _of_flow(self, pairs: Sequence[Pair]) -> Parting:
        """Blames the first lone operation behind the last agreement: those before are harmless.
        `pairs` differ because of it.
        """
        pair, mine, theirs = self._behind_agreement(pairs)
        # What stands beside each other here is done by both.
        both_do = [
            p
            for p in (*self.alignment.beside, pair)
            if p.first.index in mine and p.second.index in theirs
        ]
        lone = [self._bad[i] for i in mine - {p.first.index for p in both_do}]
        lone += [self._good[i] for i in theirs - {p.second.index for p in both_do}]
        lone = self._in_order(o for o in lone if not self._only_moves(o))
        if not lone:
            return self.parting(pair)
        first = next((o for o in lone if not _PREPARES.fullmatch(o.op)), lone[0])
        known, indices = (self._bad, mine) if self._is_bad(first) else (self._good, theirs)
        begins = self._that_computes(first, [known[i] for i in sorted(indices)])
        return self._begun(pair, begins)

    def _behind_agreement(self, pairs: Sequence[Pair]) -> tuple[Pair, set[int], set[int]]:
        """The first of these that no agreement follows before an end of its step; and what led
        there on either side since the sides agreed last.
        """
        step, read = pairs[0].first.aligned_step, self.bad.all_read()
        of_step = (p for p in pairs if p.first.aligned_step == step and p.first.phase == "f")
        end = next((p for p in of_step if p.first.index not in read), pairs[0])
        of_bad = ([end.first.index], self._bad, self._partner)
        of_good = ([end.second.index], self._good, self._of_good)
        bads = [self._bad[i] for i in self._upwards(*of_bad)]
        goods = [self._good[i] for i in self._upwards(*of_good)]
        agree = self.alignment.agree
        parts = in_other_parts(bads, goods) | in_runs(*self._without_partners(step))
        parts |= _computed_again(bads, self._partner) | _computed_again(goods, self._of_good)
        mine = self._upwards(*of_bad, lambda a: id(a) in parts or any(agree(a, b) for b in goods))
        theirs = self._upwards(*of_good, lambda b: id(b) in parts or any(agree(a, b) for a in bads))
        pair = next((p for p in pairs if p.first.index in mine and p.second.index in theirs), end)
        mine &= self._upwards([pair.first.index], self._bad, self._partner)
        theirs &= self._upwards([pair.second.index], self._good, self._of_good)
        return pair, mine, theirs

    def _without_partners(self, step: int) -> Iterator[list[Operation]]:
        for side, partners in ((self.bad, self._partner), (self.good, self._of_good)):
            of_step = (o for o in side.operations if o.aligned_step == step)
            yield [o for o in of_step if o.index not in partners]

    def _that_computes(self, begins: Operation, stretch: Sequence[Operation]) -> Operation:
        """The first on its line that computes; of a cast its reader, if none shared is between."""
        same = (o for o in stretch if _line(o) == _line(begins) and not self._only_moves(o))
        found = min(same, key=lambda o: (o.moves, o.op == "input", o.index))
        if found.op != "aten::_to_copy":
            return found
        partners = self._partner if self._is_bad(begins) else self._of_good
        for operation in stretch:
            if not operation.moves and any((found.index, 0) in w for w in operation.inputs):
                between = range(found.index + 1, operation.index)
                return found if any(i in partners for i in between) else operation
        return found

    def _begun(self, pair: Pair, begins: Operation) -> Parting:
        parting = self.parting(pair)
        if begins in (pair.first, pair.second) and pair.first.index not in self._partner:
            return parting
        is_bad = self._is_bad(begins)
        mine, theirs = self._counts if is_bad else self._counts[::-1]
        alone = mine[_kind(begins)] > theirs[_kind(begins)]
        side = "bad" if is_bad else "good"
        return replace(parting, begins=begins, begun_on=side, only_on=side if alone else None)

    def _only_moves(self, operation: Operation) -> bool:
        """Whether its result is what it read, in the same precision."""
        known = self._bad if self._is_bad(operation) else self._good
        read = [
            known[writers[-1][0]].outputs[writers[-1][1]]
            for writers in operation.inputs
            if writers and writers[-1][0] in known
        ]
        return any(
            d.dtype == out.dtype and (d.values, d.total) == (out.values, out.total)
            for d in read
            for out in operation.outputs[:1]
        )

    def _is_bad(self, operation: Operation) -> bool:
        return self._bad.get(operation.index) is operation

    def _in_order(self, operations: Iterable[Operation]) -> list[Operation]:
        return sorted(operations, key=self._position)

    def _position(self, operation: Operation) -> float:
        """On the bad side: what is of the good side comes behind the last partner before it."""
        if self._is_bad(operation):
            return operation.index
        before = bisect(self._paired, operation.index)
        return self._of_good[self._paired[before - 1]].first.index + 1.25 if before else -1.0

    def accounted_for(self) -> int:
        """How many operations of the bad side are compared, or lead to one that is."""
        leads: set[int] = {pair.first.index for pair in self.alignment.beside} | {*self._partner}
        for operation in reversed(self.bad.operations):
            if operation.index in leads:
                leads |= {i for writers in operation.inputs for i, _ in writers}
        return len(leads & {*self._bad})


class _Carried:
    """Which operations of a stream pass a difference on to an end of it."""

    def __init__(self, stream: Stream, partners: Mapping[int, Pair], ends: set[int]) -> None:
        read = stream.all_read_as_numbers()
        # Those that reach an end, and those behind which the other side does something else.
        self._reach: set[int] = set()
        self._forked: set[int] = set()
        self.passed_on: set[int] = set()  # what these read
        carries: set[int] = set()
        for operation in reversed(stream.operations):
            index, pair = operation.index, partners.get(operation.index)
            if pair is None or _is_far(pair):
                carries.add(index)
            if index in ends or (index in carries and pair is not None and index not in read):
                self._reach.add(index)
            for writer in {i for writers in operation.inputs for i, _ in writers}:
                if index in carries and index in self._reach:
                    self._reach.add(writer)
                    self.passed_on.add(writer)
                if pair is None or (index in carries and index in self._forked):
                    self._forked.add(writer)

    def reaches(self, index: int) -> bool:
        return index in self._reach

    def vanishes(self, index: int) -> bool:
        return index in self._forked and not self.reaches(index)


def _scaled_losses(guilty: Sequence[Pair], reaches: Callable[[int], bool]) -> set[int]:
    """Losses times another number, with what their gradients begin with, where nothing follows from
    that: the gradients are divided by it before they are used.
    """
    by_line: dict[object, list[Operation]] = {}
    for first, _, _ in guilty:
        if _FACTORS.fullmatch(first.op) and first.outputs[0].size == 1:
            by_line.setdefault((first.aligned_step, _line(first)), []).append(first)
    return {
        operation.index
        for same_line in by_line.values()
        if (backward := [o for o in same_line if o.phase == "b"])
        and not any(reaches(o.index) for o in backward)
        for operation in same_line
    }


def _is_drawn_or_counted(operation: Operation) -> bool:
    """Whether it gives whole numbers that no operation computed."""
    return operation.gives_whole_numbers and (operation.is_random or operation.op == "input")


def _computed_again(operations: Iterable[Operation], partners: Mapping[int, Pair]) -> set[int]:
    """By `id` what backward computes once more, as a checkpoint does, to the same numbers."""

    def what(operation: Operation) -> object:
        return operation.aligned_step, operation.op, operation.outputs

    sides = ((pair.first, pair.second) for pair in partners.values())
    known = {what(o) for pair in sides for o in pair if o.phase == "f"}
    return {id(o) for o in operations if o.phase == "b" and what(o) in known}


def _is_far(pair: Pair) -> bool:
    """Further than operations may part that other operations led to."""
    outputs = zip(pair.first.outputs, pair.second.outputs, strict=False)
    limits = (led_elsewhere(a, b, 0.0, pair.judged.unknown, 0.0) for a, b in outputs)
    return pair.judged.difference > min(limits, default=0.0)


def _kind(operation: Operation) -> tuple[int, str, str]:
    """In whatever module: a side may call its modules otherwise."""
    return operation.aligned_step, operation.phase, operation.op


def _end_of(operation: Operation) -> object:
    return operation.aligned_step, operation.op, operation.shapes[1]


def _line(operation: Operation) -> tuple[str, int, str]:
    return (operation.file, operation.line, operation.module)


def self_difference(runs: Sequence[Sequence[Stream]]) -> Parting | None:
    """Where runs of one side part by more than rounding explains; None if they do not."""
    found = [
        comparison.first
        for a, b in combinations(runs, 2)
        if [rank.operations for rank in a] != [rank.operations for rank in b]
        and (comparison := compare([a], [b])).first is not None
    ]
    return min(found, key=_when, default=None)


def place_of(operation: Operation, rank: int) -> dict[str, Any]:
    """Where it stands, as the documents say it."""
    return {
        "op": operation.op,
        "phase": PHASES[operation.phase],
        "module": operation.module or None,
        "file": operation.file or None,
        "line": operation.line or None,
        "step": operation.step,
        "rank": rank,
        "index": operation.index,
    }


def _side(operation: Operation) -> dict[str, Any]:
    return {
        "op": operation.op,
        "file": operation.file or None,
        "line": operation.line or None,
        "outputs": [digest.to_json() for digest in operation.outputs],
    }
