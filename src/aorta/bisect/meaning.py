"""What one trial means to a bisection: fails, passes, or says nothing about this state."""

from dataclasses import dataclass

from aorta.bisect.building import UNTESTABLE
from aorta.core.oracle import Classified, ExitCodeOracle, Oracle
from aorta.core.outcome import Outcome, Tally, Verdict
from aorta.core.trial import TrialEnd


class BisectExitCode(ExitCodeOracle):
    """As every tool that bisects: 125 says that this state cannot be tested."""

    def judge_end(self, end: TrialEnd) -> Classified | None:
        if end.exit_code == UNTESTABLE:
            return Classified(Outcome.OTHER, "exit 125: this state cannot be tested")
        return super().judge_end(end)


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


def for_bisection(oracle: Oracle | None) -> Oracle:
    if oracle is None:
        return BisectExitCode()
    return BisectExitCode(codes=oracle.codes) if isinstance(oracle, ExitCodeOracle) else oracle
