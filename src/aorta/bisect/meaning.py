"""What one trial means to a bisection: fails, passes, or says nothing about this state."""

from dataclasses import dataclass

from aorta.bisect.building import NOT_BUILT, UNTESTABLE
from aorta.core.oracle import Classified, Deciding, ExitCodeOracle
from aorta.core.outcome import Outcome, Tally, Verdict
from aorta.core.trial import TrialEnd, Watch


@dataclass(frozen=True)
class OneTrial:
    """A flaky search weighs single trials itself. Another failure is neither good nor bad."""

    def verdict(self, tally: Tally) -> Verdict | None:
        if tally.reproduced:
            return Verdict(True, tally, "fails")
        if tally.clean:
            return Verdict(False, tally, "passes")
        if tally.other:
            return Verdict(None, tally, "cannot be tested, or fails in another way")
        return None

    def needs(self, tally: Tally) -> int:
        return 0 if self.verdict(tally) else 1

    at_most = needs


@dataclass(frozen=True)
class Skipping:
    """Any oracle, and what every tool that bisects knows: a state that cannot be built or tested is neither."""

    oracle: Deciding

    def watch(self) -> Watch:
        return self.oracle.watch()

    def judge_end(self, end: TrialEnd) -> Classified | None:
        if why := (end.result or {}).get(NOT_BUILT):
            return Classified(Outcome.OTHER, str(why))
        if end.exit_code == UNTESTABLE:
            return Classified(Outcome.OTHER, "exit 125: this state cannot be tested")
        return self.oracle.judge_end(end)


def for_bisection(oracle: Deciding | None) -> Skipping:
    return Skipping(oracle or ExitCodeOracle())
