"""The answer of a comparison: ten lines, one document."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta.core.errors import Exit
from aorta.core.stats import counted
from aorta.diverge.comparing import PHASES, Comparison, Parting
from aorta.diverge.request import GoodAndBad
from aorta.diverge.single_run import Magnitudes, NonFinite, RankParting, history_lines
from aorta.diverge.stream import Operation
from aorta.engine.events import Ending, Reason

SCHEMA = "aorta.diverge/1"
NOTHING = "recorded nothing; "  # of a run that ended by itself


@dataclass(frozen=True)
class DivergeReport:
    run_dir: Path
    ended: Reason
    good_and_bad: GoodAndBad
    trials: int
    recorded: int
    comparison: Comparison | None
    ranks: RankParting | None
    ranks_share: int | None  # values that several ranks have; None: two sides are compared
    silent: Mapping[str, str]  # what became of a run of a side that recorded nothing
    nonfinite: NonFinite | None
    history: tuple[Magnitudes, ...]  # how large the numbers were before that
    self_parting: Parting | None
    calls: Mapping[Operation, int | None]  # which one of the values recorded under its name
    notes: tuple[str, ...]
    # By side how it ended, with its last words; empty where runs of both ended alike.
    other_ends: Mapping[str, Mapping[str, str]]
    up_to_step: int  # both sides were recorded
    is_whole: bool  # every process recorded everything it did, to its end

    @property
    def status(self) -> str:
        if self.ended is not Reason.DONE:
            return "partial"
        if self.ranks_share is not None:
            same = "same" if self.ranks_share else "not_aligned"
            return "found" if self.ranks else same
        compared = self.comparison
        if compared is not None and compared.first is not None:
            return "found"
        if self.self_parting is not None:
            return "nondeterministic"
        is_alone = self.good_and_bad.good is None
        if is_alone and self.nonfinite is not None:
            return "found"
        is_aligned = compared.is_aligned if compared else is_alone
        if not self.recorded or not is_aligned or self.other_ends:
            return "not_aligned"
        return "same" if self.is_whole else "partial"

    @property
    def first(self) -> Parting | RankParting | None:
        if self.ranks_share is not None:
            return self.ranks
        return self.comparison.first if self.comparison else None

    @property
    def exit_code(self) -> int:
        if self.ended is not Reason.DONE:
            return int(Ending(self.ended).exit_code)
        others = {"partial": Exit.BUDGET, "not_aligned": Exit.NO_ANSWER}
        return int(others.get(self.status, Exit.OK))

    def to_json(self) -> dict[str, Any]:
        compared = self.comparison
        parted = self.self_parting
        lost = compared.lost if compared else None
        return {
            "status": self.status,
            "first": _first(self.first),
            "first_nonfinite": self.nonfinite.to_json() if self.nonfinite else None,
            "lost": lost.to_json() if lost else None,
            "passing": compared.passing.to_json() if compared and compared.passing else None,
            "history": [one.to_json() for one in self.history],
            "self_difference": parted.to_json() if parted else None,
            "compared_ops": compared.compared if compared else self.ranks_share or 0,
            "recorded_ops": self.recorded,
            "unmatched": len(compared.unmatched) if compared else 0,
            "sides": {name: self.good_and_bad[name].words for name in self.good_and_bad.names},
            "runs": self.trials,
            "notes": list(self.notes),
            "run_dir": str(self.run_dir),
            "summary": list(self.lines()),
        }

    def lines(self) -> Iterator[str]:
        """What a person reads."""
        yield self._headline()
        if isinstance(self.first, RankParting):
            yield from _rank_lines(self.first)
        elif self.first is not None:
            yield from _parting_lines(self.first, self._op(self.first.operation))
        if self.nonfinite is not None:
            found = self.nonfinite.operation
            yield (
                "  first NaN or infinity: "
                f"{self._op(found)}{_at(found.module, found.file, found.line)}, step {found.step}, "
                f"rank {self.nonfinite.rank}"
            )
            if self.history:
                yield from history_lines(self.history, self.nonfinite)
        if self.self_parting is not None:
            own = self.self_parting.operation
            yield (
                "  two runs of the same side part at "
                f"{self._op(own)}{_at(own.module, own.file, own.line)}, step {own.step}: not "
                "deterministic"
            )
        yield from (f"  {name}: {words}" for name, words in self.good_and_bad.described())
        compared = self.comparison
        if compared is not None:
            yield (
                f"  compared {compared.compared} operations, {len(compared.unmatched)} without "
                f"a partner, in {self.trials} runs"
            )
            if compared.unmatched and self.status == "same":
                yield "  what has no partner leads to the same results"
            if compared.passing is not None and self.status == "same":
                passing = compared.passing.operation
                yield (
                    f"  nothing follows from {self._op(passing)}"
                    f"{_at(passing.module, passing.file, passing.line)}, step {passing.step}, "
                    f"which differs by {compared.passing.judged.difference:.3g}"
                )
            if compared.lost is not None:
                lost, judged = compared.lost.operation, compared.lost.judged
                yield (
                    "  but rounding alone takes nearly every digit from here on: "
                    f"{self._op(lost)}{_at(lost.module, lost.file, lost.line)}, step {lost.step}, "
                    f"differs by {judged.difference:.3g}, its inputs by {judged.inherited:.3g}"
                )
        for side, why in self.silent.items():
            yield f"  note: a run of the {side} side {why}"
        for note in self.notes:
            yield f"  note: {note}"
        yield f"  results {self.run_dir}"

    def _op(self, operation: Operation) -> str:
        number = self.calls.get(operation)
        return f"{operation.op}, call {number}" if number else operation.op

    def _headline(self) -> str:
        if self.status == "not_aligned" and self.silent:
            return self._nothing_recorded()
        if self.ranks_share == 0:
            return (
                "No gradient or parameter that an optimizer steps is there on several ranks: "
                f"nothing to compare ({self.recorded} operations recorded)."
            )
        if self.ranks_share and self.status == "same":
            return (
                f"No gradient or weight differs between the ranks ({self.ranks_share} compared; "
                "nothing else is)."
            )
        if self.status == "nondeterministic" and self.good_and_bad.good is None:
            return "The program does not repeat its own numbers."
        compared = self.comparison
        if self.status == "not_aligned" and compared and compared.is_aligned:
            return self._agreement(compared.compared)
        return _HEADLINES[self.status].format(ops=self.recorded)

    def _nothing_recorded(self) -> str:
        whose = [name for name in self.good_and_bad.names if name in self.silent]
        of = "" if len(whose) == len(self.good_and_bad.names) else f" of the {whose[0]} side"
        why = f"a run {self.silent[whose[0]]}"
        if NOTHING in why:
            why = "no operation of torch, and no call of aorta.diverge.record"
        return f"Nothing was recorded{of}, so there is nothing to compare: {why}."

    def _agreement(self, compared: int) -> str:
        """As far as both sides went, of which one ended where the other goes on."""
        step = f", up to step {self.up_to_step}" if self.up_to_step else ""
        words = {side: next(iter(ends.values())) for side, ends in self.other_ends.items()}
        ends = [f"the {side} side {how}" for side, how in words.items() if how != _DONE_WELL]
        return (
            "Nothing was found to differ as far as both sides were recorded "
            f"({counted(compared, 'operation')}{step}); there {' and '.join(ends)}."
        )


_DONE_WELL = "ended with exit 0"
_HEADLINES = {
    "found": "The numbers part here:",
    "same": "Nothing that the program ends with differs by more than rounding explains ({ops} "
    "operations recorded).",
    "nondeterministic": "The program does not repeat its own numbers, so the two sides cannot be "
    "told apart.",
    "not_aligned": "The two sides do not do the same operations: nothing to compare ({ops} "
    "recorded).",
    "partial": "Cut short before the comparison was whole.",
}


def _first(found: Parting | RankParting | None) -> dict[str, Any] | None:
    if isinstance(found, Parting):
        return {**found.to_json(), "sentence": sentence(found)}
    return found.to_json() if found else None


def sentence(first: Parting) -> str:
    """What is different here, in words."""
    judged, bad, good = first.judged, first.bad, first.good
    if first.begins is not None:
        alone = f"only the {first.only_on} side does it"
        who = alone if first.only_on else f"the {first.begun_on} side does it here"
        # Of a draw that is one too many, the numbers of the next one.
        return (
            f"from here on the sides do different things: {who}; the first value apart because of "
            f"it is the result of {bad.op}{_at(bad.module, bad.file, bad.line)}, step {bad.step}, "
            f"by {judged.difference:.3g}"
        )
    read_the_same = len(first.reads) == len(bad.inputs) > 0 == judged.inherited
    beside = ", and other arguments are not recorded" if read_the_same else ""
    said = (
        f"differs by {judged.difference:.3g}; rounding and its inputs explain "
        f"{judged.expected:.3g}; its inputs differ by {judged.inherited:.3g}{beside}"
    )
    types = [{d.dtype for d in side.outputs} for side in (bad, good)]
    if types[0] == types[1]:
        return said
    bad_type, good_type = (", ".join(sorted(kinds)) for kinds in types)
    return f"computes in {bad_type} on the bad side and in {good_type} on the good side; {said}"


def _parting_lines(first: Parting, op: str) -> Iterator[str]:
    at = first.operation
    of_list = f", tensor {at.element + 1} of its list" if at.is_of_list else ""
    yield (
        f"  {op} ({PHASES[at.phase]}{of_list}){_at(first.module, at.file, at.line)}, "
        f"step {at.step}, rank {first.rank}"
    )
    yield f"  {sentence(first)}"
    for name, operation in (("bad", first.bad), ("good", first.good)):
        for digest in operation.outputs[:1]:
            of = f" of {operation.op}" if first.begins else ""
            yield (
                f"  {name} result{of}: {list(digest.shape)} {digest.dtype}, rms {digest.rms:.8g}, "
                f"from {digest.low:.6g} to {digest.high:.6g}"
            )


def _rank_lines(found: RankParting) -> Iterator[str]:
    what, _, name = found.name.partition("::")
    odd = ", ".join(map(str, found.odd))
    who = f"rank {odd}" if len(found.odd) == 1 else f"ranks {odd}"
    yield (
        f"  the {what} of {name or '?'} in step {found.step} is not the same on every rank: "
        f"{who} differ{'s' if len(found.odd) == 1 else ''} by {found.difference:.3g}"
    )
    for rank, digest in sorted(found.digests.items())[:4]:
        yield f"  rank {rank}: rms {digest.rms:.8g}, from {digest.low:.6g} to {digest.high:.6g}"


def _at(module: str | None, file: str | None, line: int | None) -> str:
    words = f" in {module}" if module else ""
    return f"{words} at {file}:{line}" if file else words
