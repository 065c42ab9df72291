"""Which trials of a question may start warm, and whether warm ones can be believed. Pure: it knows
records, not processes.

A warm trial is a fork of a process that has imported the program's libraries. The original is tried
cold first, then warm a few times (the proof): only where both agree, further trials start warm.
Trials that measure or confirm the answer of a search always start cold.

Forks of one server share its hash seed: where a start decides the outcome, all of them end alike.
So a rate rests on `independent_starts`, and never on the number of forks.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from aorta.core.axis import Point, Purpose
from aorta.core.durations import show_duration
from aorta.core.stats import fisher_exact
from aorta.core.trial import Outcome, Start, Tally, Verdict
from aorta.engine.events import TrialRecord
from aorta.engine.judge import EveryTrial

_PROOF_REPLICA = 2_000_000
_ALPHA = 0.05  # before anything rests on warm trials a false alarm costs only time
_ALIKE, _MIXED = 3, 8  # warm trials of an original that always ends alike, or now and then
_FIRST_COLD = 2  # trials of each configuration, where the rate itself is the answer
_SHARE = 1 / 3  # of a trial that its imports take, before --warm is proposed
_WORTH = 0.3  # seconds of imports


def is_proof(point: Point) -> bool:
    """Whether its trials only compare warm starts with cold ones; they count for nothing else."""
    return point.replica == _PROOF_REPLICA


@dataclass
class Warmth:
    """`allowed`: trials of this question may start warm. `asked`: the executor does so. Without it
    the first trial's imports are watched, and what warm starts would save is said.
    """

    allowed: bool = True
    asked: bool = False
    dropped: str = ""  # why no further trial starts warm
    _proven: bool | None = None
    _imports: float = 0.0  # seconds of imports that were seen in a cold trial
    _original: Point | None = None  # what was tried first
    _calibrated: bool = False
    _is_begun: bool = False
    _cold: dict[str, Tally] = field(default_factory=dict)  # by configuration

    def start_for(self, point: Point) -> Start:
        if not self.allowed or self.dropped or self._proven is False:
            return Start.COLD
        if not self.asked:
            first, self._is_begun = not self._is_begun, True
            return Start.WATCHED if first else Start.COLD
        if is_proof(point):
            return Start.WARM
        if not self._proven or point.purpose in {Purpose.CALIBRATE, Purpose.CONFIRM}:
            return Start.WATCHED
        cold = self._cold.get(point.config_key, Tally())
        may_be_warm = self._calibrated or cold.evidence >= _FIRST_COLD
        return Start.WARM if may_be_warm else Start.WATCHED

    def note(self, record: TrialRecord) -> None:
        """A trial that is no proof."""
        self._original = self._original or record.point
        if not record.saved:
            key = record.point.config_key
            self._cold[key] = self._cold.get(key, Tally()) + record.outcome

    def decided(self, point: Point, verdict: Verdict) -> None:
        """What became of a point; that of the proof says whether warm trials are believed."""
        if is_proof(point):
            self._proven = verdict.reproduces is not None and self._agrees(verdict.tally)
            if verdict.reproduces is not None and not self._proven:
                cold, warm = self._cold_original, verdict.tally
                self.dropped = (
                    f"warm trials failed {warm.reproduced} of {warm.evidence} times, cold ones "
                    f"{cold.reproduced} of {cold.evidence}"
                )
        elif point.purpose is Purpose.CALIBRATE:
            self._calibrated = verdict.reproduces is True
        elif point.purpose is Purpose.CONFIRM and self._proven and verdict.reproduces is False:
            self.dropped = "cold trials did not confirm what warm ones found"

    def _agrees(self, warm: Tally) -> bool:
        """Where cold trials fail now and then, forks must too: else their one start decides."""
        cold = self._cold_original
        chance = fisher_exact(cold.reproduced, cold.evidence, warm.reproduced, warm.evidence)
        if _is_mixed(cold):
            return _is_mixed(warm) and chance >= _ALPHA
        return not (warm.against if cold.reproduced else warm.reproduced)

    @property
    def proof(self) -> Point | None:
        """The point whose warm trials are wanted before any other; None if none is."""
        is_open = self.allowed and self.asked and self._proven is None
        if not is_open or self._imports < _WORTH or self._original is None:
            return None
        enough = self._cold_original.evidence >= _FIRST_COLD
        if self._original.purpose is Purpose.CALIBRATE:
            enough = self._calibrated
        return self._original.asked_for(Purpose.PROBE, _PROOF_REPLICA) if enough else None

    def judge_of_proof(self) -> EveryTrial:
        return EveryTrial(_MIXED if _is_mixed(self._cold_original) else _ALIKE)

    @property
    def _cold_original(self) -> Tally:
        key = self._original.config_key if self._original else ""
        return self._cold.get(key, Tally())

    def proposal(self, imports: float, duration: float, left: int) -> str:
        """What --warm would save, said once, where imports are much of a trial. `left`: how many
        trials are certain to follow."""
        if self._imports:
            return ""
        self._imports = imports
        if self.asked or imports < max(_WORTH, _SHARE * duration):
            return ""
        saves = f"about {show_duration(left * imports)}" if left > 1 else "most of that in each"
        words = f"imports are {show_duration(imports)} of {show_duration(duration)} a trial"
        return f"{words}; --warm would save {saves}"


def independent_starts(records: Iterable[TrialRecord]) -> int:
    """How many processes with a hash seed of their own stand behind these trials: a cold one has
    its own, the forks of one server have one together. Trials that could not tell do not count.
    """
    telling = [record for record in records if record.outcome is not Outcome.ERROR]
    return sum(not record.saved for record in telling) + len({r.server for r in telling if r.saved})


def of_independent_starts(tally: Tally, records: Iterable[TrialRecord]) -> Tally:
    """The same shares of as many trials as were independent, for intervals and tests."""
    starts = independent_starts(records)
    if starts >= tally.evidence:
        return tally
    share = starts / tally.evidence
    reproduced, other = round(tally.reproduced * share), round(tally.other * share)
    return Tally(reproduced, max(0, starts - reproduced - other), other, tally.error)


def _is_mixed(tally: Tally) -> bool:
    return tally.reproduced > 0 and tally.against > 0
