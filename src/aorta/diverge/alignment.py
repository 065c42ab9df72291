"""Which operation of one stream is which of another, by what they read.

Partners stand in the same place of the program (step, phase, module) and read what partners wrote;
where other operations led there, their results must also agree within rounding. Order only decides
between operations that read exactly the same. Operations without a partner that stand `beside` each
other in a diff of the streams are named together, and nothing is concluded from that.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from itertools import chain, groupby, islice
from typing import NamedTuple, TypeVar

from aorta.diverge.parts import by_kind
from aorta.diverge.rounding import (
    Judged,
    amounts_apart,
    difference,
    epsilon,
    in_sums,
    judge,
    led_elsewhere,
    mostly_apart,
    one_is_low,
    requested_tolerance,
    types_differ,
    vague,
)
from aorta.diverge.stream import Digest, Operation, Stream, Writer

# Of one place: operations that are tried as a partner where reads do not tell.
_MOST_TRIED = 6
# Of one step and side: operations without partners that are set beside each other.
_MOST_BESIDE = 3000
# Of one size: results that nothing reads, among which the same one is looked for.
_MOST_ENDS = 64
# Of the largest gradient of a step: smaller ones may be nothing but rounding.
_LEAST_GRADIENT = 0.01
# Of what is added to a tensor, in half of its samples; and how much more its gradients may be
# apart than it was itself.
_ANOTHER_AMOUNT, _PASSED_ON = 1e-3, 100.0
# Of a result: what may be rounding alone and is less than that is not followed.
_MOSTLY_KNOWN = 1e-5
_CAST = "aten::_to_copy"


@dataclass(frozen=True)
class Noise:
    """What two runs of one and the same side do differently, by the index of the operation."""

    first: Mapping[int, float] = field(default_factory=dict)
    second: Mapping[int, float] = field(default_factory=dict)

    def of(self, a: Operation, b: Operation) -> float:
        return max(self.first.get(a.index, 0.0), self.second.get(b.index, 0.0))


class Pair(NamedTuple):
    first: Operation
    second: Operation
    judged: Judged


@dataclass(frozen=True)
class Alignment:
    """The partners in the order of the first stream, and what has none."""

    pairs: tuple[Pair, ...]
    beside: tuple[Pair, ...]  # do not read the same, and give other numbers
    written_over: tuple[Pair, ...]  # at the end on one side, and changed once more on the other
    gradients: tuple[Pair, ...]  # the optimizer reads them, they are no partners and apart
    updates: tuple[Pair, ...]  # of memory that was alike, by other operations and by another amount
    trained_alike: frozenset[int]  # steps whose optimizers read gradients that agree
    only_first: tuple[Operation, ...]
    only_second: tuple[Operation, ...]
    # Whether the first results of two operations without partners agree, in order of the streams.
    agree: Callable[[Operation, Operation], bool] = lambda _a, _b: False


def align(
    first: Stream, second: Stream, noise: Noise | None = None, *, any_type: bool = False
) -> Alignment:
    """`any_type`: one side computes in another precision because that was asked for."""
    return _Walk(first, second, noise or Noise(), any_type).aligned()


class _Side:
    """One stream, by index, and which of its operations have a partner."""

    def __init__(self, stream: Stream) -> None:
        self.operations = stream.operations
        self.by_index = stream.by_index()
        self.partner: dict[int, int] = {}
        self.read = stream.all_read()
        self.vague = self._vague()
        self.groups: dict[object, list[Operation]] = {}
        self.places: dict[object, list[Operation]] = {}
        for operation in stream.operations:
            self.groups.setdefault(self.identity(operation), []).append(operation)
            self.places.setdefault((operation.place, operation.shapes), []).append(operation)

    def _vague(self) -> dict[int, float]:
        """How much of a result may be rounding alone, where that is worth a word."""
        found: dict[int, float] = {}
        for operation in self.operations:
            before = [found.get(w[-1][0], 0.0) if w else 0.0 for w in operation.inputs]
            part = vague(operation, self.read_by(operation), before)
            if part > _MOSTLY_KNOWN:
                found[operation.index] = part
        return found

    def identity(self, operation: Operation, other: "_Side | None" = None) -> object:
        """Where it stands and what it read, in records of `other`; None if that has none such."""
        read: list[tuple[object, ...]] = []
        for writers in operation.inputs:
            known: list[object] = []
            for index, result in writers:
                made = self.by_index.get(index)
                if made is None:
                    known.append(None)
                elif made.is_constant(result):  # which of several such is nothing to tell them by
                    known.append((made.outputs[result].low, made.outputs[result].shape))
                elif other is None:
                    known.append((index, result))
                elif index in self.partner:
                    known.append((self.partner[index], result))
                else:
                    return None
            read.append(tuple(known))
        parts = tuple((shape, at) for shape, _, at in operation.input_shapes)
        # What reads nothing is told by what it gives.
        given = () if read else tuple(d.shape for d in operation.outputs)
        return (operation.place, tuple(read), parts, given)

    def before(self, operation: Operation) -> Writer | None:
        """What was in the memory that it changes in place, as the last partner wrote it."""
        at: Operation | None = operation
        while at is not None and at.op.endswith("_") and at.inputs and at.inputs[0]:
            writer = at.inputs[0][-1]
            if writer[0] in self.partner:
                return writer
            at = self.by_index.get(writer[0])
        return None

    def without_partner(self, operations: Iterable[Operation]) -> list[Operation]:
        return [o for o in operations if o.index not in self.partner]

    def read_by(self, operation: Operation) -> list[Digest | None]:
        """What it read last of each tensor; None where that is not recorded."""
        return [self.written(writers) for writers in operation.inputs]

    def written(self, writers: Sequence[Writer]) -> Digest | None:
        if not writers or writers[-1][0] not in self.by_index:
            return None
        index, result = writers[-1]
        outputs = self.by_index[index].outputs
        return outputs[result] if result < len(outputs) else None


class _Walk:
    """Through the first stream in order: what an operation read has been looked at before it."""

    def __init__(self, first: Stream, second: Stream, noise: Noise, any_type: bool) -> None:
        self.first, self.second = _Side(first), _Side(second)
        self.noise, self.any_type = noise, any_type
        # How far apart the results of the first stream are that have a partner.
        self.apart: dict[Writer, float] = {}
        self.requested = requested_tolerance(first, second) if any_type else 0.0

    def aligned(self) -> Alignment:
        pairs: list[Pair] = []
        for operation in self.first.operations:
            if operation.index not in self.first.partner:
                self._pair_by_reads(operation)
            if operation.index not in self.first.partner:
                self._pair_by_agreement(operation)
            if operation.index in self.first.partner:
                pairs.append(self._judged(operation))
        beside = tuple(self._beside())
        gradients, steps = self._gradients([*pairs, *beside])
        in_first = {pair.first.index for pair in beside}
        in_second = {pair.second.index for pair in beside}
        only_first = self.first.without_partner(self.first.operations)
        only_second = self.second.without_partner(self.second.operations)
        return Alignment(
            tuple(pairs),
            beside,
            tuple(self._written_over()),
            gradients,
            self._updates(pairs, beside),
            steps - {pair.first.aligned_step for pair in gradients},
            tuple(o for o in only_first if o.index not in in_first),
            tuple(o for o in only_second if o.index not in in_second),
            self._agree,
        )

    def _judged(self, a: Operation) -> Pair:
        b = self.second.by_index[self.first.partner[a.index]]
        reads = zip(a.inputs, b.inputs, a.input_shapes, strict=False)
        inherited = max(
            (self._reads_apart(x, y) * self._whole_of(x, shape) for x, y, (shape, *_) in reads),
            default=0.0,
        )
        unknown = self._unknown(a, b)
        judged = judge(
            a,
            b,
            self.first.read_by(a),
            inherited,
            max(self.noise.of(a, b), unknown),
            good_inputs=self.second.read_by(b),
            any_type=self.any_type,
            requested=self.requested,
        )
        results = zip(judged.results, a.outputs, b.outputs, strict=False)
        for result, (apart, x, y) in enumerate(results):
            few = 0.0 if self.any_type else in_sums(x, y)
            self.apart[a.index, result] = max(apart, few)
        return Pair(a, b, replace(judged, unknown=unknown))

    def _unknown(self, a: Operation, b: Operation) -> float:
        return min(self.first.vague.get(a.index, 0.0), self.second.vague.get(b.index, 0.0))

    def _inherited(self, operation: Operation) -> float:
        """How far apart what it read is, as far as that is known."""
        written = (by for writers in operation.inputs for by in writers)
        return max((self.apart.get(by, 0.0) for by in written), default=0.0)

    # -- partners ----------------------------------------------------------------------------------

    def _pair(self, a: Operation, b: Operation) -> None:
        self.first.partner[a.index] = b.index
        self.second.partner[b.index] = a.index

    def _pair_by_reads(self, operation: Operation) -> None:
        """All operations that read exactly what this one did, with those of the other side."""
        theirs = self.second.groups.get(self.first.identity(operation, self.second), ())
        # Looked at once: then one of the two has nothing left.
        mine = self.first.groups.pop(self.first.identity(operation), ())
        if not theirs:
            return
        # Those that differ in an argument only are told apart by what they give, then by their
        # line, then by their order. Of draws the numbers tell nothing: the order may have changed.
        if not operation.is_random:
            # A position that is one too far in a loop is what the other side has a turn later.
            if operation.inputs or len(mine) != len(theirs) or _give_the_same(mine, theirs):
                self._pair_alike(mine, theirs, lambda o: o.outputs)
            if len(mine) != len(theirs):
                return
        self._pair_alike(mine, theirs, lambda o: (o.file, o.line))
        self._pair_alike(mine, theirs, lambda _: None)

    def _pair_alike(
        self,
        mine: Iterable[Operation],
        theirs: Iterable[Operation],
        way: Callable[[Operation], object],
    ) -> None:
        waiting: dict[object, list[Operation]] = {}
        for b in self.second.without_partner(theirs):
            waiting.setdefault(way(b), []).append(b)
        for a in self.first.without_partner(mine):
            if alike := waiting.get(way(a)):
                self._pair(a, alike.pop(0))

    def _pair_by_agreement(self, a: Operation) -> None:
        """With one of the same place and shapes that gave the same within rounding."""
        there = self.second.places.get((a.place, a.shapes), [])
        while there and there[0].index in self.second.partner:
            there.pop(0)
        for b in islice((o for o in there if o.index not in self.second.partner), _MOST_TRIED):
            if not self._apart(a, b).is_guilty:
                self._pair(a, b)
                return

    def _reads_apart(self, mine: Sequence[Writer], theirs: Sequence[Writer]) -> float:
        """How far apart one tensor is that both sides read."""
        partners = [(self.first.partner.get(index), result) for index, result in mine]
        if partners == list(theirs):
            return max((self.apart.get(by, 0.0) for by in mine), default=0.0)
        read = [self.first.written([by]) for by in mine]
        others = [b for by in theirs if (b := self.second.written([by])) is not None]
        if len(read) == len(others) == 1 and read[0] is not None and read[0].size != others[0].size:
            # One side reads a part of what the other has by itself: nothing tells how far.
            return led_elsewhere(read[0], others[0], 0.0, 0.0, 0.0)
        # Memory that was written in parts, as cuDNN does gradients: of each the nearest.
        apart = [
            [difference(a, b, typical=self.any_type) for b in others if a and a.size == b.size]
            for a in read
        ]
        return max((min(parts) for parts in apart if parts), default=0.0)

    def _whole_of(self, writers: Sequence[Writer], part: tuple[int, ...]) -> float:
        """How much larger that is of which a part is read: of few samples fewer lie in the part."""
        whole = self.first.written(writers)
        size = 1 if whole is None else math.prod(whole.shape)
        return max(1.0, size / (math.prod(part) or 1))

    def _apart(self, a: Operation, b: Operation) -> Judged:
        """How far apart the results are of two operations that did not read the same."""
        if not a.outputs or len(a.outputs) != len(b.outputs):
            return Judged(math.inf, 0.0, 0.0)
        judged = [
            self._digests_apart(x, y, a, b) for x, y in zip(a.outputs, b.outputs, strict=True)
        ]
        return max(judged, key=lambda j: (j.is_guilty, j.difference))

    def _agree(self, a: Operation, b: Operation) -> bool:
        """Whether both give the same numbers, which are not all one number: zeros tell nothing."""
        return any(
            x.size == y.size
            and (x.low < x.high or x.size == 1)
            # No rounding explains more; most are told apart by that.
            and math.isclose(x.norm, y.norm, rel_tol=0.1)
            and not self._digests_apart(x, y, a, b).is_guilty
            for x in a.outputs[:1]
            for y in b.outputs
        )

    def _digests_apart(self, x: Digest, y: Digest, a: Operation, b: Operation) -> Judged:
        other_type = not self.any_type and types_differ(x, y)
        apart = difference(x, y, typical=self.any_type)
        if a.phase == b.phase == "o":
            apart = min(apart, mostly_apart(x, y))
        inherited = self._inherited(a)
        unknown = self._unknown(a, b)
        learned = max(self.noise.of(a, b), unknown, *(epsilon(o) for o in (a, b) if o.tf32))
        expected = led_elsewhere(x, y, inherited, learned, self.requested)
        return Judged(apart, expected, inherited, other_type, unknown=unknown)

    # -- without partners --------------------------------------------------------------------------

    def _written_over(self) -> Iterable[Pair]:
        """What is one side's end and is overwritten in place by a lone operation on the other."""
        for mine, theirs in ((self.first, self.second), (self.second, self.first)):
            for last in theirs.without_partner(theirs.operations):
                if last.index in theirs.read or not last.op.endswith("_") or not last.inputs:
                    continue
                before = {theirs.partner.get(index) for index, _ in last.inputs[0]} - {None}
                for kept in (mine.by_index[i] for i in before if i is not None):
                    if kept.index not in mine.read and kept.shapes[1] == last.shapes[1]:
                        a, b = (kept, last) if mine is self.first else (last, kept)
                        if (judged := self._apart(a, b)).is_guilty:
                            yield Pair(a, b, judged)

    def _gradients(self, pairs: Iterable[Pair]) -> tuple[tuple[Pair, ...], frozenset[int]]:
        """What optimizers read of other operations and is apart, which a small step hides in what
        they give; and the steps of all that they read.
        """
        read = [
            (one.first.aligned_step, *written)
            for one in pairs
            if one.first.phase == "o"
            for writers in zip(one.first.inputs, one.second.inputs, strict=False)
            if (written := self._of_other_phases(*writers)) is not None
        ]
        largest: dict[int, float] = {}
        for step, _, _, x, _ in read:
            largest[step] = max(largest.get(step, 0.0), x.rms)
        found = []
        for step, a, b, x, y in read:
            # Of one that is zero but for rounding, nothing is known.
            share = min(1.0, max(x.rms, y.rms) / (_LEAST_GRADIENT * largest[step] or 1.0))
            judged = self._digests_apart(x, y, a, b)
            judged = replace(judged, difference=judged.difference * share)
            if self.first.partner.get(a.index) != b.index and judged.is_guilty:
                found.append(Pair(a, b, judged))
        return tuple(found), frozenset(largest)

    def _updates(self, pairs: Iterable[Pair], ends: Iterable[Pair]) -> tuple[Pair, ...]:
        """What both sides changed in place by other operations and by another amount, though what
        came of it agrees, as steps are small.
        """
        met = {
            (mine[0][0], theirs[0][0])
            for one in pairs
            for mine, theirs in zip(one.first.inputs, one.second.inputs, strict=False)
            if len(mine) == len(theirs) == 1
        } | {(one.first.index, one.second.index) for one in ends}
        found: list[Pair] = []
        for index, other in sorted(met):
            a, b = self.first.by_index.get(index), self.second.by_index.get(other)
            if a and b and self.first.partner.get(index) != other:
                judged = self._amounts_apart(a, b)
                if judged is not None and judged.is_guilty:
                    found.append(Pair(a, b, judged))
        return tuple(found)

    def _amounts_apart(self, a: Operation, b: Operation) -> Judged | None:
        """How far apart is what was added to memory, counted from where both had the same."""
        mine, theirs = self.first.before(a), self.second.before(b)
        if mine is None or theirs is None or self.first.partner.get(mine[0]) != theirs[0]:
            return None
        if self._unknown(a, b):
            return None
        old = self.first.written([mine]), self.second.written([theirs])
        made = self.first.by_index[mine[0]]
        is_new = not made.op.endswith("_") and not made.moves
        if "o" not in (a.phase, b.phase) and (old[0] is None or old[0].norm == 0 or is_new):
            return None  # no state that is kept: what came of it hides nothing
        found = amounts_apart((a.outputs[0], b.outputs[0]), old)
        if found is None:
            return None
        inherited = _PASSED_ON * self.apart.get(mine, 0.0)
        return Judged(found[0], max(_ANOTHER_AMOUNT, found[1], inherited), inherited)

    def _of_other_phases(
        self, mine: Sequence[Writer], theirs: Sequence[Writer]
    ) -> tuple[Operation, Operation, Digest, Digest] | None:
        """What wrote one tensor that an optimizer reads, and its numbers."""
        x, y = self.first.written(mine), self.second.written(theirs)
        if x is None or y is None or x.size != y.size or len(mine) != 1 or len(theirs) != 1:
            return None
        a, b = self.first.by_index[mine[0][0]], self.second.by_index[theirs[0][0]]
        return None if "o" in (a.phase, b.phase) else (a, b, x, y)

    def _beside(self) -> Iterable[Pair]:
        """What is left of each step, by a diff over places and shapes; then its ends."""
        mine = _by_step(self.first.without_partner(self.first.operations))
        theirs = _by_step(self.second.without_partner(self.second.operations))
        for step in sorted({*mine} & {*theirs}):
            left, right = mine[step][:_MOST_BESIDE], theirs[step][:_MOST_BESIDE]
            mine_at, theirs_at = ([(o.place, o.shapes) for o in side] for side in (left, right))
            matcher = SequenceMatcher(None, mine_at, theirs_at, autojunk=False)
            taken: set[int] = set()
            for i, j, length in matcher.get_matching_blocks():
                for a, b in zip(left[i : i + length], right[j : j + length], strict=True):
                    taken |= {id(a), id(b)}
                    yield Pair(a, b, self._apart(a, b))
            # The same operation elsewhere, in another module perhaps, in low precision on one side.
            rest = [
                [o for o in side if id(o) not in taken and o.op != _CAST] for side in (left, right)
            ]
            for a, b in _of_one_kind(rest[0], rest[1], lambda o: (o.op, _sizes(o))):
                if one_is_low(a, b):
                    taken |= {id(a), id(b)}
                    yield Pair(a, b, self._apart(a, b))
            ends = [
                [o for o in side if id(o) not in taken and o.index not in read]
                for side, read in ((left, self.first.read), (right, self.second.read))
            ]
            yield from self._ends(*ends)

    def _ends(self, mine: list[Operation], theirs: list[Operation]) -> Iterable[Pair]:
        """Results that nothing reads: pairs of one size that agree, the others in their order."""
        left, right = ([(o, d) for o in side for d in o.outputs] for side in (mine, theirs))
        for one in [*left]:
            alike = (other for other in right if other[1].size == one[1].size)
            for other in islice(alike, _MOST_ENDS):
                judged = self._digests_apart(one[1], other[1], one[0], other[0])
                if not judged.is_guilty:
                    left.remove(one)
                    right.remove(other)
                    yield Pair(one[0], other[0], judged)
                    break
        for (a, x), (b, y) in _of_one_kind(left, right, lambda end: end[1].size):
            yield Pair(a, b, self._digests_apart(x, y, a, b))


def _give_the_same(mine: Iterable[Operation], theirs: Iterable[Operation]) -> bool:
    """Whether both give the same results, in whatever order."""
    return Counter(o.outputs for o in mine) == Counter(o.outputs for o in theirs)


def _sizes(operation: Operation) -> object:
    return tuple(d.size for d in operation.outputs)


_One = TypeVar("_One")


def _of_one_kind(
    mine: Iterable[_One], theirs: Iterable[_One], kind: Callable[[_One], object]
) -> Iterable[tuple[_One, _One]]:
    """Those of one kind beside each other, in their order."""
    return chain.from_iterable(zip(*sides, strict=False) for sides in by_kind(mine, theirs, kind))


def _by_step(operations: Iterable[Operation]) -> dict[int, list[Operation]]:
    return {step: list(group) for step, group in groupby(operations, lambda o: o.aligned_step)}
