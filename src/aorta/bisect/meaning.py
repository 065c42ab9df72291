"""What one trial means to a bisection: fails, passes, or says nothing about this state."""

import statistics
from dataclasses import dataclass

from aorta.bisect.building import UNTESTABLE
from aorta.core.errors import UsageError
from aorta.core.oracle import Classified, ExitCodeOracle, MetricOracle, Oracle
from aorta.core.outcome import Outcome, Tally, Verdict
from aorta.core.trial import TrialEnd

METRICS_FILE = "metrics.json"


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
    if isinstance(oracle, ExitCodeOracle):
        return BisectExitCode(codes=oracle.codes)
    if isinstance(oracle, MetricOracle) and oracle.good and oracle.bad:
        return halfway(oracle, oracle.good, oracle.bad)
    return oracle


def metric_between(name: str, good: tuple[float, ...], bad: tuple[float, ...]) -> MetricOracle:
    """`NAME` in the metrics file of a probe, against samples of both sides."""
    if not good or not bad:
        raise UsageError(
            "--metric-name needs at least one --passing-metric and one --failing-metric"
        )
    return MetricOracle(file=METRICS_FILE, key=name, good=good, bad=bad)


def halfway(oracle: MetricOracle, good: tuple[float, ...], bad: tuple[float, ...]) -> MetricOracle:
    """A number nearer to the bad samples fails. Numbers that often cross the middle make it flaky, and the search
    then repeats where that leaves doubt: a dead zone in the middle would throw their evidence away.
    """
    centre_good, centre_bad = statistics.fmean(good), statistics.fmean(bad)
    if centre_good == centre_bad:
        raise UsageError(
            "the passing and the failing metrics have the same mean; they tell nothing"
        )
    middle = (centre_good + centre_bad) / 2
    worse_above = centre_bad > centre_good
    return oracle.model_copy(
        update={
            "good": (),
            "bad": (),
            "above": middle if worse_above else None,
            "below": None if worse_above else middle,
        }
    )
