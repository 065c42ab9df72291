"""The live view of a run on a terminal: what is tried, what is known, what was spent."""

import time
from collections import Counter, deque

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from aorta.core.axis import Point
from aorta.core.durations import show_duration
from aorta.core.stats import counted
from aorta.engine import events
from aorta.engine.events import Event
from aorta.views.lines import Describe, still_to_come

_COLOURS = {"reproduced": "red", "clean": "green", "other": "yellow", "error": "magenta"}
_RECENT = 6


class TerminalProgress:
    """Redraws in place and leaves one summary line behind; never writes to stdout."""

    def __init__(self, describe: Describe) -> None:
        self._describe = describe
        self._console = Console(stderr=True)
        self._began = time.monotonic()
        self._running: dict[tuple[Point, int], float] = {}
        self._outcomes: Counter[str] = Counter()
        self._verdicts: deque[Text] = deque(maxlen=_RECENT)
        self._best: Point | None = None
        self._judged, self._searched, self._left = 0, 0.0, ""
        self._live = Live(
            get_renderable=self._drawn, console=self._console, refresh_per_second=4, transient=True
        )
        self._live.start()

    def __call__(self, event: Event) -> None:
        match event:
            case events.TrialStarted(point, index):
                self._running[point, index] = time.monotonic()
            case events.TrialEnded(record, _):
                self._running.pop((record.point, record.index), None)
                self._outcomes[record.outcome.value] += 1
                self._searched = record.elapsed
            case events.TrialCancelled(point, index):
                self._running.pop((point, index), None)
            case events.PointDecided(point, verdict, best, left):
                self._best = best
                self._judged += 1
                self._left = still_to_come(left, self._searched / self._judged)
                if point.values:
                    word = {True: "reproduces", False: "does not", None: "cannot tell"}
                    line = f"{word[verdict.reproduces]:<11} {self._describe(point)} ({verdict.why})"
                    self._verdicts.append(Text(line, overflow="ellipsis", no_wrap=True))
            case events.Note(text):
                self._console.print(Text(text))
            case events.RunEnded():
                self._live.stop()

    def _drawn(self) -> Group:
        now = time.monotonic()
        trials = counted(self._outcomes.total(), "trial")
        counts = Text(
            f"{trials} in {show_duration(now - self._began)}{self._left}",
            overflow="ellipsis",
            no_wrap=True,
        )
        for outcome, count in self._outcomes.items():
            counts.append(f"   {count} {outcome}", style=_COLOURS[outcome])
        rows = Table.grid(padding=(0, 1))
        for (point, index), since in list(self._running.items()):
            what = f"running {show_duration(now - since):>6}  #{index} {self._describe(point)}"
            rows.add_row(Text(what, style="cyan", overflow="ellipsis", no_wrap=True))
        lines: list[Text | Table] = [*self._verdicts, rows, counts]
        if self._best is not None and self._best.values:
            best = f"best so far: {self._describe(self._best)}"
            lines.append(Text(best, style="bold", overflow="ellipsis", no_wrap=True))
        return Group(*lines)
