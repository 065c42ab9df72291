"""Plain progress: one line an event that matters, for logs, pipes and people without a terminal."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from aorta.core.axis import Point, Purpose, show_value
from aorta.core.durations import show_duration
from aorta.core.stats import counted
from aorta.engine import events
from aorta.engine.events import Event, Listener

Describe = Callable[[Point], str]


def describe_values(point: Point) -> str:
    """`NUM_STEPS=137 SHAPES_FILE=3 items STEPS=0+20`, or nothing for a point without values."""
    return " ".join(f"{name}={show_value(value)}" for name, value in point.values)


def still_to_come(left: int | None, seconds: float) -> str:
    """`; about 12 candidates left, 2m10s`, at `seconds` each; "" where it is not known."""
    if not left:
        return ""
    return f"; about {counted(left, 'candidate')} left, {show_duration(left * seconds)}"


@dataclass
class PlainProgress:
    """Words on stderr; every line stands alone and says when."""

    describe: Describe
    verbose: bool = False
    _began: float = field(default_factory=time.monotonic)
    _trials: int = 0
    _replayed: int = 0
    _best: Point | None = None
    _judged: int = 0
    _searched: float = 0.0  # seconds, those of a run that is resumed too

    def __call__(self, event: Event) -> None:
        match event:
            case events.TrialEnded(record, replayed):
                self._trials += 1
                self._replayed += replayed
                self._searched = record.elapsed
                if not replayed:
                    waited = show_duration(record.duration - record.saved)
                    waited += " (warm)" if record.saved else ""
                    what = f"trial {self._trials}: {record.outcome.value} in {waited}"
                    self._line(f"{what}{self._of(record.point)}: {record.why}")
            case events.PointDecided(point, verdict, best, left) if point.values:
                words = {True: "reproduces", False: "does not reproduce", None: "could not tell"}
                changed = self._changed(point) or "the answer so far"
                self._judged += 1
                still = still_to_come(left, self._searched / self._judged)
                # Of a resumed run whatever the journal holds was said before.
                if not self._replayed or self._replayed < self._trials:
                    self._line(f"{changed}: {words[verdict.reproduces]} ({verdict.why}){still}")
                self._best = best
            case events.TrialCancelled(point, index) if self.verbose:
                self._line(f"trial {index} no longer matters{self._of(point)}")
            case events.Note(text):
                self._line(text)
            case events.RunEnded() if self._replayed:
                self._line(f"{self._replayed} of {self._trials} trials came from the journal")

    def _of(self, point: Point) -> str:
        words = self._changed(point)
        return f" ({words})" if words else ""

    def _changed(self, point: Point) -> str:
        """What differs from the best so far, all of it before there is one; or a verb's words."""
        if self.describe is not describe_values:
            return self.describe(point)
        if point.purpose is Purpose.CALIBRATE:
            return "the original"
        best = dict(self._best.values) if self._best is not None else {}
        values = dict(point.values)
        other = {name: value for name, value in values.items() if best.get(name) != value}
        one = len(other) == len(values)
        return self.describe(point if one else Point.of(other))

    def _line(self, text: str) -> None:
        since = show_duration(time.monotonic() - self._began)
        print(f"[{since:>6}] {text}", file=sys.stderr, flush=True)


def progress_for(describe: Describe, *, quiet: bool, verbose: bool) -> list[Listener]:
    """No view, the live one on a terminal, or plain lines elsewhere."""
    if quiet:
        return []
    if sys.stderr.isatty() and not verbose:
        from aorta.views.terminal import TerminalProgress

        return [TerminalProgress(describe)]
    return [PlainProgress(describe, verbose=verbose)]
