"""Which trials of a question may start warm, and whether warm ones can be believed. Pure: it knows
records, not processes.

A warm trial is a fork of a process that has imported the program's libraries. Trials that the
answer rests on start cold. Before a search goes by warm trials they are compared with cold ones of
the original; from then on, wherever a configuration has both. A difference beyond chance ends it:
what warm trials said is dropped.

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

PROOF_REPLICA = 2_000_000  # of the warm trials of the original: a number that no search reaches
_ALPHA = 0.01  # a difference that chance makes as seldom as this is none of chance's
_PROOF_ALPHA = 0.05  # before anything rests on warm trials a false alarm costs only time
_ALIKE = 3  # warm trials that end as every cold one did
_MIXED = 4
_MOST_PROOF = 12
_COLD_ALWAYS = frozenset({Purpose.CALIBRATE, Purpose.CONFIRM})
_FIRST_COLD = 2  # trials of each configuration, where the rate itself is the answer
_SHARE = 1 / 3  # of a trial that its imports take, before --warm is proposed
_WORTH = 0.3  # seconds of imports


@dataclass(frozen=True)
class WarmRules:
    """`proof`: the original, once its rate is known, is tried warm first. Otherwise the first
    trials of each configuration are cold, and servers are changed often, since the rate itself is
    the answer."""

    proof: bool = False


@dataclass(frozen=True)
class ProofJudge:
    """Whether the original fails warm as it does cold.

    Where every cold trial ended alike, three warm ones must end so too. Where cold ones fail now
    and then, warm ones of a single server must do so as well: if they all end alike, a start
    decides the failure, and forks share their start.
    """

    cold: Tally

    def verdict(self, tally: Tally) -> Verdict | None:
        agrees = self._agrees(tally)
        return None if agrees is None else Verdict(agrees, tally, _compared(self.cold, tally))

    def _agrees(self, warm: Tally) -> bool | None:
        if warm.error > warm.evidence + 2 or _differ(self.cold, warm, _PROOF_ALPHA):
            return False
        if not _is_mixed(self.cold):
            if warm.against if self.cold.reproduced else warm.reproduced:
                return False
            return True if warm.evidence >= _ALIKE else None
        if _is_mixed(warm):
            return True if warm.evidence >= _MIXED else None
        rate = (self.cold.reproduced + 0.5) / (self.cold.evidence + 1)
        by_chance = max(rate, 1 - rate) ** warm.evidence
        return False if by_chance < _PROOF_ALPHA or warm.evidence >= _MOST_PROOF else None

    def needs(self, tally: Tally) -> int:
        return 0 if self.verdict(tally) else max(1, _ALIKE - tally.evidence)

    at_most = needs


@dataclass
class Warmth:
    """`asked`: the executor starts trials warm. Without it the first trial's imports are watched,
    and what warm starts would save is said.
    """

    rules: WarmRules | None = None
    asked: bool = False
    dropped: str = ""  # why warm trials are not believed
    original: Point | None = None
    proven: bool | None = None
    imports: float = 0.0  # seconds of imports that were seen in a cold trial
    _cold: dict[str, Tally] = field(default_factory=dict)  # by configuration
    _warm: dict[str, Tally] = field(default_factory=dict)

    def start_for(self, point: Point) -> Start:
        if self.rules is None or self.dropped or self.proven is False:
            return Start.COLD
        if not self.asked:
            return Start.COLD if self._cold else Start.WATCHED
        if point.purpose in _COLD_ALWAYS:
            return Start.WATCHED
        cold = self._cold.get(point.config_key, Tally())
        if not self.rules.proof:
            return Start.WARM_OF_FEW if cold.evidence >= _FIRST_COLD else Start.WATCHED
        if not self.proven:
            return Start.WARM if point.replica == PROOF_REPLICA else Start.WATCHED
        return Start.WARM_OF_FEW if _is_mixed(self._cold_original) else Start.WARM

    def note(self, record: TrialRecord) -> None:
        kind = self._warm if record.saved else self._cold
        key = record.point.config_key
        kind[key] = kind.get(key, Tally()) + record.outcome

    def proposal(self, imports: float | None, duration: float, left: int) -> str:
        """What --warm would save, said once, where imports are much of a trial. `left`: how many
        trials are certain to follow."""
        if imports is None or self.rules is None or self.imports:
            return ""
        self.imports = imports
        if self.asked or imports < max(_WORTH, _SHARE * duration):
            return ""
        saves = f"about {show_duration(left * imports)}" if left > 1 else "most of that in each"
        words = f"imports are {show_duration(imports)} of {show_duration(duration)} a trial"
        return f"{words}; --warm would save {saves}"

    def decided(self, point: Point, verdict: Verdict) -> None:
        if point.purpose is Purpose.CALIBRATE and verdict.reproduces:
            self.original = point

    @property
    def proof(self) -> Point | None:
        """The point whose warm trials are wanted before any other; None if none is."""
        wanted = self.asked and self.rules is not None and self.rules.proof
        if not wanted or self.dropped or self.proven is not None or self.original is None:
            return None
        return self.original.asked_for(Purpose.PROBE, PROOF_REPLICA)

    def judge_of_proof(self) -> ProofJudge:
        return ProofJudge(self._cold_original)

    def learn(self, verdict: Verdict) -> None:
        """How the proof went."""
        self.proven = verdict.reproduces is True
        if verdict.reproduces is False:
            self.dropped = verdict.why

    def difference(self) -> str:
        """Where warm and cold trials of a configuration part beyond chance; nothing if nowhere."""
        pairs = [(self._cold.get(key, Tally()), warm) for key, warm in self._warm.items()]
        apart = (_compared(cold, warm) for cold, warm in pairs if _differ(cold, warm, _ALPHA))
        return "" if self.dropped else next(apart, "")

    def drop(self, why: str) -> None:
        self.dropped = why
        self._warm.clear()

    @property
    def _cold_original(self) -> Tally:
        key = self.original.config_key if self.original else ""
        return self._cold.get(key, Tally())


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


def _differ(cold: Tally, warm: Tally, alpha: float) -> bool:
    chance = fisher_exact(cold.reproduced, cold.evidence, warm.reproduced, warm.evidence)
    return chance < alpha


def _compared(cold: Tally, warm: Tally) -> str:
    return (
        f"warm trials failed {warm.reproduced} of {warm.evidence} times, cold ones "
        f"{cold.reproduced} of {cold.evidence}"
    )
