"""Which trials of a question may start warm, and whether warm ones can be believed. Pure: it knows
records, not processes.

A warm trial is a fork of a process that has imported the program's libraries. Trials that the
answer rests on start cold. Before a search goes by warm trials they are compared with cold ones of
the original; from then on, wherever a configuration has both. A difference beyond chance ends it:
what warm trials said is dropped.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from aorta.core.axis import Point, Purpose
from aorta.core.stats import fisher_exact
from aorta.core.trial import Start, Tally, Verdict
from aorta.engine.events import TrialRecord

PROOF_REPLICA = 2_000_000  # of the warm trials of the original: a number that no search reaches
_ALPHA = 0.01  # a difference that chance makes as seldom as this is none of chance's
_PROOF_ALPHA = 0.05  # before anything rests on warm trials a false alarm costs only time
_ALIKE = 3  # warm trials like every cold one
_MIXED = 4
_MOST_PROOF = 12
_COLD_ALWAYS = frozenset({Purpose.CALIBRATE, Purpose.CONFIRM})


@dataclass(frozen=True)
class WarmRules:
    """`proof`: the original, once its rate is known, is tried warm first. Otherwise the first
    trials of each configuration are cold, and hosts are changed often, since the rate itself is the
    answer."""

    proof: bool = False
    first_cold: int = 2


@dataclass(frozen=True)
class ProofJudge:
    """Whether the original fails warm as it does cold.

    All processes of one host have the hash seed and the address layout in common. So where cold
    trials of the original fail now and then, warm ones of a single host must do so too; if they all
    end alike, a start decides the failure.
    """

    cold: Tally

    def verdict(self, tally: Tally) -> Verdict | None:
        decided = self._decided(tally)
        return None if decided is None else Verdict(decided, tally, _compared(self.cold, tally))

    def _decided(self, warm: Tally) -> bool | None:
        if warm.error > warm.evidence + 2 or _differ(self.cold, warm, _PROOF_ALPHA):
            return False
        if not self.cold.against and warm.against:
            return False  # two cold trials that never missed are too few for a test of chance
        if _is_mixed(self.cold):
            if _is_mixed(warm):
                return True if warm.evidence >= _MIXED else None
            rate = (self.cold.reproduced + 0.5) / (self.cold.evidence + 1)
            lucky = max(rate, 1 - rate) ** warm.evidence
            return False if lucky < _PROOF_ALPHA or warm.evidence >= _MOST_PROOF else None
        if _is_mixed(warm):
            return False if warm.evidence >= 2 * _ALIKE else None
        return True if warm.evidence >= _ALIKE else None

    def needs(self, tally: Tally) -> int:
        return 0 if self.verdict(tally) else max(1, _ALIKE - tally.evidence)

    at_most = needs


@dataclass
class Warmth:
    rules: WarmRules | None = None
    dropped: str = ""  # why warm trials are not believed
    original: Point | None = None
    proven: bool | None = None
    _cold: dict[str, Tally] = field(default_factory=dict)  # by configuration
    _warm: dict[str, Tally] = field(default_factory=dict)

    def start_for(self, point: Point) -> Start:
        if self.rules is None or self.dropped or self.proven is False:
            return Start.COLD
        if point.purpose in _COLD_ALWAYS:
            return Start.WATCHED
        cold = self._cold.get(point.config_key, Tally())
        if self.rules.proof:
            if point.replica != PROOF_REPLICA and not self.proven:
                return Start.WATCHED
            return Start.WARM_OF_FEW if self.proven and self._original_is_flaky else Start.WARM
        return Start.WARM_OF_FEW if cold.evidence >= self.rules.first_cold else Start.WATCHED

    def note(self, record: TrialRecord) -> None:
        kind = self._warm if record.spared else self._cold
        key = record.point.config_key
        kind[key] = kind.get(key, Tally()) + record.outcome

    def settled(self, point: Point, verdict: Verdict) -> None:
        if point.purpose is Purpose.CALIBRATE and verdict.reproduces:
            self.original = point

    @property
    def proof(self) -> Point | None:
        """The point whose warm trials are wanted before any other; None if none is."""
        if self.rules is None or not self.rules.proof or self.dropped or self.proven is not None:
            return None
        if self.original is None:
            return None
        return self.original.asked_for(Purpose.PROBE, PROOF_REPLICA)

    def judge_of_proof(self) -> ProofJudge:
        key = self.original.config_key if self.original else ""
        return ProofJudge(self._cold.get(key, Tally()))

    def told(self, verdict: Verdict) -> None:
        """How the proof went."""
        self.proven = verdict.reproduces is True
        if verdict.reproduces is False:
            self.dropped = verdict.why

    def difference(self) -> str:
        """Where warm and cold trials of one configuration part beyond chance, in words; nothing if
        nowhere.
        """
        if self.dropped:
            return ""
        for key, warm in self._warm.items():
            cold = self._cold.get(key)
            if cold is not None and _differ(cold, warm, _ALPHA):
                return _compared(cold, warm)
        return ""

    def drop(self, why: str) -> None:
        self.dropped = why
        self._warm.clear()

    @property
    def _original_is_flaky(self) -> bool:
        return self.original is not None and _is_mixed(self._cold[self.original.config_key])


def _is_mixed(tally: Tally) -> bool:
    return tally.reproduced > 0 and tally.against > 0


def _differ(cold: Tally, warm: Tally, alpha: float) -> bool:
    chance = fisher_exact(cold.reproduced, cold.evidence, warm.reproduced, warm.evidence)
    return chance < alpha


def _compared(cold: Tally, warm: Tally) -> str:
    return (
        f"warm trials failed {warm.reproduced} of {warm.evidence} times, cold ones "
        f"{cold.reproduced} of {cold.evidence}"
    )


def how_many(records: Iterable[TrialRecord]) -> int:
    return sum(record.spared > 0 for record in records)
