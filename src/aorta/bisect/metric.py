"""Metric mode: a state is judged by numbers. Both ends are measured until their levels are known,
then each state until its values say which level it is at, or neither.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from aorta.core.axis import Point, Purpose
from aorta.core.documents import validated
from aorta.core.errors import UsageError
from aorta.core.oracle import Classified, MetricOracle
from aorta.core.stats import Levels
from aorta.core.trial import Outcome, Tally, TrialEnd, Verdict, Watch
from aorta.engine import events
from aorta.engine.events import Event
from aorta.search.bisection import Bisection
from aorta.search.ends import EndsVerdict
from aorta.search.timeline import Vector

METRICS_FILE = "metrics.json"

_FIRST, _STEP, _MOST = 4, 4, 24  # values of each end: at first, more at a time, at most
_REPEATS = 16  # values of a state on average, beyond which ends count as not to be told apart
_PATIENCE = 4.0  # times the average, before a state is left as ambiguous
_LEAST_PATIENCE, _MOST_PATIENCE = 12, 64
_AMBIGUOUS = 4  # states, and more than were decided: the levels were apart by luck
_STRICTER = 10  # one state is to be ten times surer than the whole answer


class MeasuredMetric(MetricOracle):
    """A metric whose levels are found by measuring both ends; samples may be given."""

    def _check_decidable(self) -> None:
        if bool(self.good) != bool(self.bad):
            raise UsageError("give samples of both sides, or of none")


def metric_named(name: str, good: tuple[float, ...], bad: tuple[float, ...]) -> MetricOracle:
    """`NAME` in the metrics file of a probe; with samples of both sides, or of none."""
    content = {"file": METRICS_FILE, "key": name, "good": good, "bad": bad}
    return validated(MeasuredMetric, content, file="command line", at="--metric-name")


def is_measured(oracle: object) -> TypeGuard[MetricOracle]:
    """Whether a number decides that no fixed threshold is given for."""
    return isinstance(oracle, MetricOracle) and oracle.above is None and oracle.below is None


def check_samples(oracle: MetricOracle) -> None:
    """Where no good end is known to measure, samples must be given."""
    if not oracle.good or not oracle.bad:
        raise UsageError(
            "no good end is measured here; give --passing-metric and --failing-metric samples"
        )


class Metric:
    """Values by point, and both levels once known; listens to trials, as judges see only counts."""

    def __init__(self, oracle: MetricOracle, confidence: float) -> None:
        self.oracle = oracle
        self.wanted = math.log(_STRICTER / (1 - confidence) - 1)
        self.levels: Levels | None = None
        self.undecided: dict[str, str] = {}  # why, by the key of a configuration
        self._ambiguous = self._decided = 0
        self._values: dict[Point, list[float]] = {}

    @property
    def least_separation(self) -> float:
        return math.sqrt(2 * self.wanted / _REPEATS)

    @property
    def most_values(self) -> int:
        """Of one state: several times what it takes on average at this separation."""
        separation = self.levels.sure_separation if self.levels else 1.0
        expected = 2 * self.wanted / max(separation, self.least_separation) ** 2
        return min(_MOST_PATIENCE, max(_LEAST_PATIENCE, math.ceil(_PATIENCE * expected)))

    def document(self) -> dict[str, Any] | None:
        """The two levels of the number that decided; None where they are not known."""
        if self.levels is None:
            return None
        good, bad = self.levels.centres
        return {
            "name": self.oracle.key or self.oracle.pattern,
            "good": {"mean": good, "values": len(self.levels.good)},
            "bad": {"mean": bad, "values": len(self.levels.bad)},
            "noise": self.levels.spread,
        }

    def take_samples(self) -> None:
        """The levels as the user gives them, where no end is measured."""
        check_samples(self.oracle)
        self.levels = Levels(self.oracle.good, self.oracle.bad)

    def begin_stage(self, *, measures: bool) -> None:
        """`measures`: the levels are about to be measured."""
        self._values = {}
        if measures:
            self.levels = None
            self._ambiguous = self._decided = 0

    def listen(self, event: Event) -> None:
        if isinstance(event, events.TrialEnded) and event.record.value is not None:
            self.take(event.record.point, event.record.value)

    def take(self, point: Point, value: float) -> None:
        self._values.setdefault(point, []).append(value)

    def of(self, point: Point) -> Sequence[float]:
        return self._values.get(point, ())

    # -- what the engine asks of an oracle and of judges

    def watch(self) -> Watch:
        return self.oracle.watch()

    def judge_end(self, end: TrialEnd) -> Classified | None:
        """The nearer level; what it means for the state is for the judge, who sees all values."""
        value = self.oracle.value_of(end)
        if value is None:
            gave_none = Classified(Outcome.ERROR, "the metric is missing")
            return None if end.failed or end.timed_out else gave_none
        if not math.isfinite(value):
            return Classified(Outcome.OTHER, f"the metric is {value}")
        odds = self.levels.log_odds([value]) if self.levels else 0.0
        outcome = Outcome.REPRODUCED if odds > 0 else Outcome.CLEAN
        return Classified(outcome, f"the metric is {value:g}", value=value)

    def judge_for(self, point: Point) -> "MetricJudge":
        return MetricJudge(self, point)

    def learn(self, point: Point, verdict: Verdict) -> None:
        """The levels stay where the ends are: one misjudged state must not move them."""
        if self.levels is None:
            return
        values = self.of(point)
        if verdict.reproduces is not None:
            self._decided += 1
        elif values:
            self.undecided[point.config_key] = verdict.why
            self._ambiguous += len(values) >= self.most_values
        self.levels = self.levels.with_noise_of(values)

    @property
    def tells_nothing(self) -> bool:
        return self._ambiguous >= _AMBIGUOUS and self._ambiguous > self._decided


@dataclass(frozen=True)
class MetricJudge:
    metric: Metric
    point: Point

    def verdict(self, tally: Tally) -> Verdict | None:
        found = self._by_values(tally)
        if found is None and tally.other:
            return Verdict(None, tally, "cannot be tested, or gives no number")
        return found

    def needs(self, tally: Tally) -> int:
        return 0 if self.verdict(tally) else 1

    def at_most(self, tally: Tally) -> int:
        left = self.metric.most_values - len(self.metric.of(self.point))
        return min(self.needs(tally), left) if self.metric.levels is None else left

    def _by_values(self, tally: Tally) -> Verdict | None:
        levels, values = self.metric.levels, self.metric.of(self.point)
        if levels is None:
            return Verdict(False, tally, "measured") if values else None
        if levels.are_missed_by(values):
            return Verdict(None, tally, f"at neither level: {shown(values)}")
        odds = levels.log_odds(values)
        if abs(odds) >= self.metric.wanted:
            return Verdict(odds > 0, tally, shown(values))
        if len(values) >= self.metric.most_values:
            return Verdict(None, tally, f"stays ambiguous: {shown(values)}")
        return None


class MeasuredEnds:
    """A search that measures both ends and goes on only where their levels differ."""

    def __init__(self, search: Bisection, metric: Metric) -> None:
        self.search, self._metric = search, metric
        metric.begin_stage(measures=True)
        self._rounds = _FIRST
        self._measured: set[Point] = set()
        self._known = False
        self.alike: str | None = None
        timeline = search.timeline
        self._ends = {"bad": timeline.bad_end, "good": timeline.good_end}

    def ask(self, n: int, pending: Collection[Point] = ()) -> Sequence[Point]:
        if self.done:
            return []
        if self._known:
            return self.search.ask(n, pending)
        return [p for p in self._points() if p not in self._measured and p not in pending][:n]

    def tell(self, point: Point, verdict: Verdict) -> None:
        if self._known:
            self.search.tell(point, verdict)
            if self._metric.tells_nothing and self._metric.levels:
                self.alike = _alike(self._metric.levels)
            return
        self._measured.add(point)
        if verdict.reproduces is None:
            self.search.tell(point, verdict)
        elif all(p in self._measured for p in self._points()):
            self._compare()

    def wants(self, point: Point) -> bool:
        return not self.done and (not self._known or self.search.wants(point))

    @property
    def done(self) -> bool:
        if self.alike is not None:
            return True
        return self.search.done if self._known else self.search.ends is not EndsVerdict.OPEN

    @property
    def best(self) -> Point | None:
        return self.search.best

    def _points(self) -> list[Point]:
        """Both ends in turn, the bad one first."""
        point = self.search.timeline.point
        return [
            point(vector, Purpose.CALIBRATE, replica)
            for replica in range(self._rounds)
            for vector in self._ends.values()
        ]

    def _compare(self) -> None:
        levels = Levels(self._values(self._ends["good"]), self._values(self._ends["bad"]))
        apart = levels.are_apart(self._metric.least_separation)
        if apart is None and self._rounds < _MOST:
            self._rounds += _STEP
        elif not apart:
            self.alike = _alike(levels)
        else:
            self._metric.levels = levels
            self._known = True
            ends = {self._ends["bad"]: (_FIRST, 0), self._ends["good"]: (0, _FIRST)}
            self.search.assume(ends)

    def _values(self, vector: Vector) -> tuple[float, ...]:
        point = self.search.timeline.point
        replicas = (point(vector, Purpose.CALIBRATE, n) for n in range(self._rounds))
        return tuple(value for replica in replicas for value in self._metric.of(replica))


def shown(values: Sequence[float]) -> str:
    listed = ", ".join(f"{value:g}" for value in values[:6])
    return f"{listed} ..." if len(values) > 6 else listed


def _alike(levels: Levels) -> str:
    good, bad = levels.centres
    return (
        "the metric does not tell the two ends apart: "
        f"good {good:.4g}, bad {bad:.4g}, noise {levels.spread:.2g} "
        f"after {len(levels.good)} values each; measure longer, or quieter"
    )
