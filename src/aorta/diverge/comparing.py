"""Where the numbers part: pure rules over recorded streams.

The first operation whose result differs on the two sides by more than rounding explains, while what
it read did not: that is the cause. What two runs of one side do differently is learned first and
never counted against the other side.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from aorta.diverge.alignment import Alignment, align
from aorta.diverge.rounding import Judged, difference, judge
from aorta.diverge.stream import Digest, Operation, Stream

_ALIGNED_ENOUGH = 0.5  # of the operations of the shorter stream
_AMPLIFIERS = 5


@dataclass(frozen=True)
class Parting:
    """One operation that gives other numbers on the other side, and what is known of it."""

    bad: Operation
    good: Operation
    judged: Judged
    rank: int
    reads: tuple[tuple[Operation, float], ...] = ()  # what it read, and how far apart that was
    alone: Operation | None = None  # it stands on one side only

    @property
    def operation(self) -> Operation:
        return self.alone or self.bad

    def to_json(self) -> dict[str, Any]:
        inputs = [
            {**digest.to_json(), "from": read.op, "difference": plain(apart)}
            for read, apart in self.reads
            for digest in read.outputs[:1]
        ]
        return {
            **place_of(self.operation, self.rank),
            "only_on": None if self.alone is None else "bad" if self.alone is self.bad else "good",
            "difference": plain(self.judged.difference),
            "expected_rounding": plain(self.judged.expected),
            "inherited": plain(self.judged.inherited),
            "inputs": inputs,
            "bad": _side(self.bad),
            "good": _side(self.good),
        }


@dataclass(frozen=True)
class Comparison:
    """Two sides, rank by rank. `first` is the earliest guilty operation; `grew` are later ones that
    made it worse.
    """

    first: Parting | None
    grew: tuple[Parting, ...]
    compared: int
    unmatched: tuple[Operation, ...]
    is_aligned: bool
    # (index, step, difference) of one rank, for the page.
    curve: tuple[tuple[int, int, float], ...] = ()
    # How many operations with the place and name of `first` came before it in its step.
    nth: int = 0


def compare(bads: Sequence[Sequence[Stream]], goods: Sequence[Sequence[Stream]]) -> Comparison:
    """Every run of either side is the streams of its ranks. More runs of a side teach what it does
    by chance.
    """
    ranks = {len(run) for run in (*bads, *goods)}
    found = [
        _compare_rank([run[rank] for run in bads], [run[rank] for run in goods])
        for rank in range(min(ranks))
    ]
    guilty = [c for c in found if c.first is not None]
    chosen = min(guilty, key=lambda c: _when(c.first), default=found[0])
    return Comparison(
        first=chosen.first,
        grew=chosen.grew,
        compared=sum(c.compared for c in found),
        unmatched=tuple(o for c in found for o in c.unmatched),
        is_aligned=len(ranks) == 1 and all(c.is_aligned for c in found),
        curve=chosen.curve,
        nth=chosen.nth,
    )


def _when(parting: Parting | None) -> tuple[int, int]:
    assert parting is not None
    return (parting.bad.step, parting.bad.index)


def _compare_rank(bads: Sequence[Stream], goods: Sequence[Stream]) -> Comparison:
    bad, good = bads[0], goods[0]
    alignment = align(bad, good)
    walk = _Walk(bad, good, alignment, _learned(bads), _learned(goods), _others(bads, goods))
    partings = walk.partings()
    guilty = [parting for parting in partings if parting.judged.is_guilty]
    first = guilty[0] if guilty else None
    shorter = min(len(bad.operations), len(good.operations)) or 1
    return Comparison(
        first=first,
        grew=tuple(
            sorted(guilty[1:], key=lambda p: -p.judged.growth if p.judged.inherited else 0.0)
        )[:_AMPLIFIERS],
        compared=len(alignment.pairs),
        unmatched=(*alignment.only_first, *alignment.only_second),
        is_aligned=len(alignment.pairs) >= _ALIGNED_ENOUGH * shorter,
        curve=tuple((p.bad.index, p.bad.step, p.judged.difference) for p in partings),
        nth=_nth(bad, first.bad) if first else 0,
    )


def _learned(runs: Sequence[Stream]) -> dict[int, float]:
    """For each operation of the first run: how far any other run of the same side parts from it."""
    apart: dict[int, float] = {}
    for other in runs[1:]:
        for mine, theirs in align(runs[0], other).pairs:
            apart[mine.index] = max(apart.get(mine.index, 0.0), outputs_apart(mine, theirs))
    return apart


def _others(bads: Sequence[Stream], goods: Sequence[Stream]) -> dict[int, float]:
    """The least difference between any run of one side and any of the other: what chance may
    explain is not more.
    """
    least: dict[int, float] = {}
    for bad in bads:
        to_first = {b.index: a.index for a, b in align(bads[0], bad).pairs}
        for good in goods:
            for mine, theirs in align(bad, good).pairs:
                index = to_first.get(mine.index)
                if index is not None:
                    apart = outputs_apart(mine, theirs)
                    least[index] = min(least.get(index, math.inf), apart)
    return least


def outputs_apart(mine: Operation, theirs: Operation) -> float:
    return max(
        (difference(a, b) for a, b in zip(mine.outputs, theirs.outputs, strict=False)), default=0.0
    )


@dataclass
class _Walk:
    """Through the aligned operations of one rank, in order, with what is known of everything they
    read.
    """

    bad: Stream
    good: Stream
    alignment: Alignment
    learned_bad: Mapping[int, float]
    learned_good: Mapping[int, float]
    least: Mapping[int, float]
    _apart: dict[int, float] = field(default_factory=dict)  # of an operation of the bad side
    _pairs_met: set[tuple[int, int]] = field(default_factory=set)

    def partings(self) -> list[Parting]:
        found: list[Parting] = []
        self._of_bad, self._of_good = self.bad.by_index(), self.good.by_index()
        self._partner = {a.index: b.index for a, b in self.alignment.pairs}
        for bad, good in self.alignment.pairs:
            read = self._read(bad, good)
            found += read.met
            parting = self._judged(bad, good, read.known)
            self._apart[bad.index] = parting.judged.difference
            if parting.judged.is_guilty and read.extra is not None:
                parting = replace(parting, alone=read.extra)  # it wrote to what is read here
            found.append(parting)
        return found

    def _judged(
        self,
        bad: Operation,
        good: Operation,
        reads: Sequence[tuple[Digest, Digest, float]] | None,
        chain: int = 1,
    ) -> Parting:
        """`reads` is None where what it read cannot be told, so neither can its guilt."""
        learned = max(self.learned_bad.get(bad.index, 0.0), self.learned_good.get(good.index, 0.0))
        subject, other = (bad, good) if bad.index not in self._partner else (good, bad)
        judged = judge(subject, other, reads or (), learned)
        partners = self._partner.get(bad.index) == good.index
        least = self.least.get(bad.index, math.inf) if partners else math.inf
        judged = Judged(
            min(judged.difference, least),
            math.inf if reads is None else judged.expected * chain,
            judged.inherited,
        )
        known = tuple(
            (self._of_bad[writers[-1]], self._apart.get(writers[-1], 0.0))
            for writers in bad.inputs
            if writers and writers[-1] in self._of_bad
        )
        return Parting(bad, good, judged, self.bad.rank, known)

    def _read(self, bad: Operation, good: Operation) -> "_Read":
        """What both read, tensor by tensor, and what came out where other operations made it on the
        two sides.
        """
        read = _Read([])
        if len(bad.inputs) != len(good.inputs):
            return _Read(None)
        for mine, theirs in zip(bad.inputs, good.inputs, strict=True):
            if not all(i in self._of_bad for i in mine):
                continue  # recorded before the first step that was asked for
            assert read.known is not None
            if [self._partner.get(i) for i in mine] == list(theirs):
                read.known += [self._known(i) for i in mine if self._of_bad[i].outputs]
                continue
            extra = self._extra_writer(mine, theirs)
            if extra is not None and max(len(mine), len(theirs)) > 1:
                read.extra = read.extra or extra
                continue
            a, b = self._of_bad.get(mine[-1]) if mine else None, self._good_of(theirs)
            if a is None or b is None or not _same_size(a, b):
                return _Read(None, read.met)
            read.met += self._met(a, b)
            read.known.append((a.outputs[0], b.outputs[0], outputs_apart(a, b)))
        return read

    def _extra_writer(self, mine: Sequence[int], theirs: Sequence[int]) -> Operation | None:
        """Of memory that is written in parts: the first write that the other side does not do."""
        partners = {self._partner.get(i) for i in mine}
        lone = [self._of_bad[i] for i in mine if self._partner.get(i) not in theirs]
        lone += [self._of_good[i] for i in theirs if i not in partners and i in self._of_good]
        return lone[0] if lone else None

    def _known(self, index: int) -> tuple[Digest, Digest, float]:
        mine, theirs = self._of_bad[index], self._of_good[self._partner[index]]
        return mine.outputs[0], theirs.outputs[0], self._apart.get(index, 0.0)

    def _good_of(self, writers: Sequence[int]) -> Operation | None:
        return self._of_good.get(writers[-1]) if writers else None

    def _met(self, a: Operation, b: Operation) -> list[Parting]:
        """Two results of different operations that are read in the same place: judged once, by what
        led to them.
        """
        if (a.index, b.index) in self._pairs_met:
            return []
        self._pairs_met.add((a.index, b.index))
        before, chain = self._ancestors(a)
        parting = self._judged(a, b, before, chain + 1)
        if a.index not in self._partner:
            self._apart[a.index] = parting.judged.difference
        return [replace(parting, alone=a if a.index not in self._partner else b)]

    def _ancestors(self, operation: Operation) -> tuple[list[tuple[Digest, Digest, float]], int]:
        """What the stretch of operations without partners read from before it, and how long that
        stretch is.
        """
        found: list[tuple[Digest, Digest, float]] = []
        seen: set[int] = set()
        left, chain = [operation.index], 0
        while left:
            index = left.pop()
            if index in seen or index not in self._of_bad:
                continue
            seen.add(index)
            if index in self._partner:
                found += [self._known(index)] if self._of_bad[index].outputs else []
                continue
            chain += 1
            left += [i for writers in self._of_bad[index].inputs for i in writers]
        return found, chain


@dataclass
class _Read:
    """What an aligned pair of operations read. `known` is None where something has no
    counterpart.
    """

    known: list[tuple[Digest, Digest, float]] | None
    met: list[Parting] = field(default_factory=list)
    extra: Operation | None = None


def _same_size(a: Operation, b: Operation) -> bool:
    """Of what is read; a view in between may have given it another shape."""
    return bool(a.outputs) and bool(b.outputs) and a.outputs[0].size == b.outputs[0].size


def _nth(stream: Stream, operation: Operation) -> int:
    same = (
        o
        for o in stream.operations
        if (o.step, o.phase, o.module, o.op)
        == (operation.step, operation.phase, operation.module, operation.op)
    )
    return next(n for n, o in enumerate(same) if o.index == operation.index)


def self_difference(runs: Sequence[Sequence[Stream]]) -> Parting | None:
    """Where runs of one and the same side part by more than rounding explains; None if they do
    not.
    """
    found = [
        comparison.first
        for a, b in combinations(runs, 2)
        if (comparison := compare([a], [b])).first is not None
    ]
    return min(found, key=_when, default=None)


# -- not a number ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class NonFinite:
    """The first result with NaN or infinity in it whose inputs had none."""

    operation: Operation
    rank: int
    parents: tuple[Operation, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            **place_of(self.operation, self.rank),
            "outputs": [digest.to_json() for digest in self.operation.outputs],
            "inputs": [
                {**place_of(parent, self.rank), **digest.to_json()}
                for parent in self.parents
                for digest in parent.outputs[:1]
            ],
        }


def first_nonfinite(streams: Sequence[Stream]) -> NonFinite | None:
    """The earliest over all ranks. A mask is made of infinities on purpose: a constant is not where
    they come from.
    """
    found = [first for stream in streams if (first := _first_nonfinite(stream)) is not None]
    return min(found, key=lambda n: (n.operation.step, n.operation.index), default=None)


def _first_nonfinite(stream: Stream) -> NonFinite | None:
    known = stream.by_index()
    for operation in stream.operations:
        if all(d.is_finite for d in operation.outputs) or _is_constant(operation):
            continue
        parents = tuple(known[i] for writers in operation.inputs for i in writers if i in known)
        if all(d.is_finite for parent in parents for d in parent.outputs):
            return NonFinite(operation, stream.rank, parents)
    return None


_FILLING = frozenset(
    ["full", "fill_", "masked_fill", "masked_fill_", "full_like", "scalar_tensor", "where"]
)


def _is_constant(operation: Operation) -> bool:
    return operation.op.rpartition("::")[2] in _FILLING


def place_of(operation: Operation, rank: int) -> dict[str, Any]:
    """Where it stands, as the documents say it."""
    phase = {"f": "forward", "b": "backward", "o": "optimizer"}[operation.phase]
    return {
        "op": operation.op,
        "phase": phase,
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


def plain(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
