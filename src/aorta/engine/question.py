"""A verb's question to the engine, its answer, the failure sought, and which trials start warm."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from aorta.core.axis import Point, Purpose
from aorta.core.durations import show_duration
from aorta.core.failure import Failure, learned
from aorta.core.oracle import Classified, Deciding, classify, guarded
from aorta.core.trial import RETRIES, Outcome, Start, Tally, TrialEnd, TrialSpec, Verdict
from aorta.engine.events import Ending, TrialRecord
from aorta.engine.judge import EveryTrial, Judges
from aorta.executors.warm import WORTH
from aorta.search import Search

_MOST_HARMLESS = 100  # lines of clean trials that are remembered
_DIFFERENT = 3  # failures of the original that are not like its first, before its user is asked

Keep = Callable[[TrialRecord, TrialEnd], Mapping[str, str] | None]
"""Writes what a verb wants of a trial; called before the journal, so what the journal counts is
always there.

What it returns is written into the record of the trial, and comes back with it in a resumed run.
"""

Learn = Callable[[TrialRecord], None]
"""Called with every trial that is used, in order and before the next one starts; in a resumed run
also with those of the journal.
"""


class Experiment(Protocol):
    """How a point becomes a trial."""

    @property
    def oracle(self) -> Deciding:
        """What counts as the failure."""

    def trial(self, point: Point, index: int, trial_dir: Path) -> TrialSpec:
        """Trial number `index` of `point`. Its files are written into `trial_dir`, its own."""


@dataclass(frozen=True)
class Budget:
    """What a run may spend, and by how much errors may outnumber evidence at a point."""

    max_trials: int | None = None
    max_seconds: float | None = None
    anew: bool = False  # of a resumed run: the seconds before it do not count
    retries: int = RETRIES

    def less(self, seconds: float) -> "Budget":
        """What is left of it."""
        if self.max_seconds is None:
            return self
        return replace(self, max_seconds=max(0.0, self.max_seconds - seconds))

    def allows(self, trials: int) -> bool:
        """Whether one more may be started beside so many."""
        return self.max_trials is None or trials < self.max_trials

    def spent(self, trials: int, seconds: float) -> str:
        """What is used up, in words; empty while nothing is."""
        if self.max_trials is not None and trials >= self.max_trials:
            return f"{self.max_trials} trials are spent"
        if self.max_seconds is not None and seconds >= self.max_seconds:
            return f"{show_duration(self.max_seconds)} are spent"
        return ""


@dataclass(frozen=True)
class Question:
    """The search, how its points are judged and tried, and what makes it the same question."""

    search: Search
    judges: Judges
    experiment: Experiment
    fingerprint: Mapping[str, object]
    budget: Budget = field(default_factory=Budget)
    guard_signature: bool = True
    expected: Failure | None = None  # a failure that is known already
    program_varies: bool = False  # its points are versions of the program that fails
    # The first failure of such a point is the failure looked for.
    shows_it: Callable[[Point], bool] = lambda _point: True
    keep: Keep | None = None
    learn: Learn | None = None
    name: str = "main"  # a run that asks several questions gives each a name
    # A trial whose container or engine is missing is an error of its own, not of the run.
    tolerant: bool = False
    # Where no trial could tell anything that is an infrastructure error; a resume tries again.
    must_tell: bool = False
    warm: bool = False  # its trials may start warm, where that is asked for
    # Trial directories lie in the private state: nothing of them ships.
    private_trials: bool = False


@dataclass(frozen=True)
class Answer:
    """How the run ended, and every trial that counts; those from the journal come first."""

    ending: Ending
    records: Sequence[TrialRecord]
    expected: Failure | None


class SoughtFailure:
    """Which failure is meant: the one that is known already, else the first that is seen.

    Its repetitions show what varies in it; clean trials show which lines are no failure's words.
    """

    def __init__(self, question: Question) -> None:
        self.failure = question.expected
        self._question = question
        self._original: str | None = None  # the configuration where it was first seen
        self._seen_at: set[str] = set()  # those where it was seen since
        known = question.expected
        self._harmless: set[str] = set(known.harmless if known is not None else ())

    def classified(self, point: Point, end: TrialEnd) -> Classified:
        """A failure that is not the same is `other`; what varied at first is an accident."""
        known = self.failure if self._question.guard_signature else None
        if known is not None and self._question.program_varies:
            known = known.in_any_version()
        found = classify(self._question.experiment.oracle, end, known)
        found = self._with_news(found)
        if found.failure is None or found.outcome is not Outcome.OTHER or known is None:
            return found
        alone = self._with_news(classify(self._question.experiment.oracle, end))
        if alone.outcome is not Outcome.REPRODUCED or alone.failure is None:
            return found
        in_other_words = learned(known, alone.failure) is not None
        varies = in_other_words and self._is_known_at(point.config_key, alone.failure)
        return alone if varies else guarded(alone, known)

    def _is_known_at(self, here: str, seen: Failure) -> bool:
        """Whether what differs there is an accident: two failures of one configuration. Elsewhere
        than in the original that holds for words alone, and where the failure was seen before.
        """
        if here == self._original:
            return True
        guarded = self._question.guard_signature
        return guarded and here in self._seen_at and not seen.causes

    def _with_news(self, found: Classified) -> Classified:
        """Only lines that are new are kept with a trial."""
        news = [line for line in found.harmless if line not in self._harmless]
        room = max(0, _MOST_HARMLESS - len(self._harmless))
        return replace(found, harmless=tuple(news[:room]))

    def learn(self, record: TrialRecord) -> None:
        """Where it was seen first, its repeats say what varies in it."""
        self._harmless.update(record.harmless)
        if self.failure is not None:
            self.failure = self.failure.without(self._harmless)
        seen, here = record.failure, record.point.config_key
        if record.outcome is not Outcome.REPRODUCED or seen is None:
            return
        if self._original is None and self._question.shows_it(record.point):
            self._original = here
        if self.failure is None:
            self.failure = seen if here == self._original else None
        elif self._is_known_at(here, seen):
            self.failure = learned(self.failure, seen) or self.failure
        if self._question.shows_it(record.point):
            self._seen_at.add(here)

    @property
    def doubt(self) -> str:
        """That nothing tells the failure from another; empty where something does."""
        known = self.failure
        if known is None or not known.is_silent:
            return ""
        if self._question.expected is not None or not self._question.guard_signature:
            return ""
        return (
            f"the failure ({known.ended.text}) says nothing that tells it from another, so any "
            "trial that ends so counts as it; name it, with --oracle regex and --pattern, or "
            "oracle: {kind: regex, pattern: ...}"
        )

    def is_never_the_same(self, point: Point, tally: Tally) -> bool:
        """Whether the original fails again and again, and never twice in the same way."""
        return (
            self._question.guard_signature
            and point.purpose is Purpose.CALIBRATE
            and tally.reproduced == 1
            and tally.other >= _DIFFERENT
        )

    @staticmethod
    def different_words(records: Iterable[TrialRecord]) -> str:
        seen = [record.failure.text for record in records if record.failure]
        shown = "; ".join(f"{text[:120]!r}" for text in dict.fromkeys(seen[:2]))
        return (
            f"every one of its {len(seen)} failures looks different, such as {shown}: say which "
            "failure is meant, with an oracle such as regex and a pattern that all of them match"
        )


# -- warm starts -----------------------------------------------------------------------------------

_ALIKE, _MIXED = 3, 8  # warm trials of an original that always ends alike, or now and then
_FIRST_COLD = 2  # trials of each configuration, where the rate itself is the answer
_SHARE = 1 / 3  # of a trial that its imports take, before --warm is proposed


@dataclass
class Warmth:
    """Which trials may start warm: those after cold and warm trials of the original agreed (the
    proof). Trials that measure or confirm the answer of a search start cold.
    """

    # False: only what warm starts would save is said. None: they are out of the question.
    requested: bool | None = None
    records: Sequence[TrialRecord] = ()  # those that count, as they come
    proofs: list[TrialRecord] = field(default_factory=list)  # they count for nothing else
    dropped: str = ""  # why no further trial starts warm
    _proven: bool = False
    _calibrated: bool = False
    _imports: float | None = None  # seconds of imports that were seen in a cold trial

    def start_for(self, point: Point) -> Start:
        is_known = self._imports is not None and not self.requested
        if self.requested is None or self.dropped or is_known:
            return Start.COLD
        is_measure = point.purpose in {Purpose.CALIBRATE, Purpose.CONFIRM}
        is_tried = self._calibrated or self._cold_of(point).evidence >= _FIRST_COLD
        if point.purpose is Purpose.WARM or (self._proven and is_tried and not is_measure):
            return Start.WARM
        return Start.WATCHED

    def decided(self, point: Point, verdict: Verdict) -> str:
        """What became of a point. Returns what there is to say: from here on all start cold."""
        if self.dropped:
            return ""
        if point.purpose is Purpose.WARM:
            cold, warm = self._cold_of(point), verdict.tally
            is_decided = verdict.reproduces is not None
            if not self.proofs[-1].saved:
                self.dropped = "no trial can be started warm"
            elif is_decided and _ends(cold) == _ends(warm):
                self._proven = True
            else:
                self.dropped = (
                    f"warm trials failed {warm.reproduced} of {warm.evidence} times, cold ones "
                    f"{cold.reproduced} of {cold.evidence}"
                )
        elif point.purpose is Purpose.CALIBRATE:
            self._calibrated = verdict.reproduces is True
        elif point.purpose is Purpose.CONFIRM and self._proven and verdict.reproduces is False:
            self.dropped = "cold trials did not confirm what warm ones found"
        return f"{self.dropped}: every trial starts cold" if self.dropped else ""

    @property
    def proof(self) -> Point | None:
        """The point whose warm trials are wanted before any other; None if none is."""
        if not self.requested or self._proven or self.dropped or not self.records:
            return None
        original = self.records[0].point
        is_tried = self._cold_of(original).evidence >= _FIRST_COLD
        is_due = self._calibrated if original.purpose is Purpose.CALIBRATE else is_tried
        is_due = is_due and (self._imports or 0.0) >= WORTH
        return original.asked_for(Purpose.WARM) if is_due else None

    def judge_for(self, point: Point) -> EveryTrial:
        return EveryTrial(_MIXED if all(_ends(self._cold_of(point))) else _ALIKE)

    def _cold_of(self, point: Point) -> Tally:
        same = (each for each in self.records if each.point.config_key == point.config_key)
        return Tally.of(each.outcome for each in same if not each.saved)

    def proposal(self, imports: float | None, duration: float, left: int) -> str:
        """What --warm would save, said once, where imports are much of a trial. `left`: how many
        trials are certain to follow."""
        if self._imports is not None or (imports is None and self.requested):
            return ""
        self._imports = imports = imports or 0.0  # none were seen: this is no Python program
        if self.requested or imports < max(WORTH, _SHARE * duration):
            return ""
        words = f"imports are {show_duration(imports)} of {show_duration(duration)} a trial"
        return f"{words}; --warm would save about {show_duration(max(1, left) * imports)}"


def _ends(tally: Tally) -> tuple[bool, bool]:
    """Whether it fails, and whether it does not. Where cold trials do both, forks must too: else
    their one start decides."""
    return tally.reproduced > 0, tally.against > 0


def independent_starts(records: Iterable[TrialRecord]) -> int:
    """How many hash seeds these trials had: one each when cold, one for all warm ones."""
    telling = [record for record in records if record.outcome is not Outcome.ERROR]
    return sum(not record.saved for record in telling) + any(record.saved for record in telling)


def of_independent_starts(tally: Tally, records: Iterable[TrialRecord]) -> Tally:
    """The same shares of as many trials as were independent, for intervals and tests."""
    starts = independent_starts(records)
    if starts >= tally.evidence:
        return tally
    share = starts / tally.evidence
    reproduced, other = round(tally.reproduced * share), round(tally.other * share)
    return Tally(reproduced, max(0, starts - reproduced - other), other, tally.error)
