"""Plain progress: one line an event that matters, for logs, pipes and people without a terminal."""

import sys
import time
from collections.abc import Callable
from typing import TextIO

from aorta.core.axis import Point, Purpose, show_value
from aorta.core.durations import show_duration
from aorta.core.stats import counted
from aorta.engine import events
from aorta.engine.events import Event, Listener, TrialRecord

Describe = Callable[[Point], str]


def describe_values(point: Point) -> str:
    """`NUM_STEPS=137 SHAPES_FILE=3 items STEPS=0+20`, or nothing for a point without values."""
    return " ".join(f"{name}={show_value(value)}" for name, value in point.values)


def shown_time(record: TrialRecord) -> str:
    """How long it was waited for."""
    seconds = show_duration(record.duration - record.saved)
    return f"{seconds} (warm)" if record.saved else seconds


def still_to_come(left: int | None, seconds: float) -> str:
    """`; about 12 candidates left, 2m10s`, at `seconds` each; "" where it is not known."""
    if not left:
        return ""
    return f"; about {counted(left, 'candidate')} left, {show_duration(left * seconds)}"


class PlainProgress:
    """Words on stderr; every line stands alone and says when."""

    def __init__(
        self,
        describe: Describe = describe_values,
        *,
        out: TextIO | None = None,
        verbose: bool = False,
    ) -> None:
        self._describe = describe
        self._out = out or sys.stderr
        self._verbose = verbose
        self._began = time.monotonic()
        self._trials = 0
        self._replayed = 0
        self._best: Point | None = None
        self._judged = 0
        self._searched = 0.0  # seconds, those of a run that is resumed too

    def __call__(self, event: Event) -> None:
        match event:
            case events.TrialEnded(record, replayed):
                self._trials += 1
                self._replayed += replayed
                self._searched = record.elapsed
                if not replayed:
                    self._line(
                        f"trial {self._trials}: {record.outcome.value} in "
                        f"{shown_time(record)}{self._of(record.point)}: {record.why}"
                    )
            case events.PointDecided(point, verdict, best, left) if point.values:
                words = {True: "reproduces", False: "does not reproduce", None: "could not tell"}
                changed = self._changed(point) or "the answer so far"
                self._judged += 1
                still = still_to_come(left, self._searched / self._judged)
                # Of a resumed run whatever the journal holds was said before.
                if not self._replayed or self._replayed < self._trials:
                    self._line(f"{changed}: {words[verdict.reproduces]} ({verdict.why}){still}")
                self._best = best
            case events.TrialCancelled(point, index) if self._verbose:
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
        if self._describe is not describe_values:
            return self._describe(point)
        if point.purpose is Purpose.CALIBRATE:
            return "the original"
        best = dict(self._best.values) if self._best is not None else {}
        values = dict(point.values)
        other = {name: value for name, value in values.items() if best.get(name) != value}
        one = len(other) == len(values)
        return self._describe(point if one else Point.of(other))

    def _line(self, text: str) -> None:
        print(
            f"[{show_duration(time.monotonic() - self._began):>6}] {text}",
            file=self._out,
            flush=True,
        )


def progress_for(
    describe: Describe = describe_values, *, quiet: bool = False, verbose: bool = False
) -> list[Listener]:
    """No view, the live one on a terminal, or plain lines elsewhere."""
    if quiet:
        return []
    if sys.stderr.isatty() and not verbose:
        from aorta.views.terminal import TerminalProgress

        return [TerminalProgress(describe)]
    return [PlainProgress(describe, verbose=verbose)]
