"""A rule around the oracle of a reduction: whether a failing trial was under load."""

import statistics
from dataclasses import dataclass, replace

from aorta.core.oracle import Classified, Deciding
from aorta.core.outcome import Outcome
from aorta.core.trial import TrialEnd, Watch, WatchedPattern
from aorta.reduce.spec import Gate


@dataclass(frozen=True)
class GatedOracle:
    """A failing trial counts only if it was under load."""

    inner: Deciding
    gate: Gate

    def watch(self) -> Watch:
        watch = self.inner.watch()
        if self.gate.min_step_time_ms is None:
            return watch
        times = WatchedPattern(self.gate.pattern, self.gate.stream, stop=False, keep_last=True)
        return replace(watch, patterns=(*watch.patterns, times))

    def judge_end(self, end: TrialEnd) -> Classified | None:
        found = self.inner.judge_end(end)
        if found is None or found.outcome is not Outcome.REPRODUCED:
            return found
        reason = self._not_under_load(end)
        return found if reason is None else Classified(Outcome.OTHER, f"not under load: {reason}")

    def _not_under_load(self, end: TrialEnd) -> str | None:
        least, seconds = self.gate.min_step_time_ms, self.gate.min_duration
        if seconds is not None and end.duration < seconds:
            return f"it took {end.duration:.3g} s, the gate asks for {seconds:g} s"
        if least is None:
            return None
        time = self._step_time(end)
        if time is None:
            return "no step time was seen"
        return None if time >= least else f"a step took {time:g} ms, the gate asks for {least:g} ms"

    def _step_time(self, end: TrialEnd) -> float | None:
        times = (end.result or {}).get("step_times_ms")
        if isinstance(times, list) and times:
            return statistics.median(float(time) for time in times)
        seen = [m for m in end.matches if m.pattern == self.gate.pattern and m.groups]
        said = max(seen, key=lambda match: match.at, default=None)
        try:
            return float(said.groups[0] or "") if said else None
        except ValueError:
            return None
