"""`--watch` on a verb: the live page beside the run itself, from its first event to the end of the command."""

from collections.abc import Callable, Sequence
from pathlib import Path

from aorta.engine import events
from aorta.engine.events import Event, Listener
from aorta.engine.rundir import RunDir
from aorta.report.watch.server import WatchServer


class WatchBeside:
    """Passes events on to the other views, which also tell the address: two writers would garble a terminal."""

    def __init__(self, views: Sequence[Listener], say: Callable[[str], None]) -> None:
        self._views = views
        self._say = say
        self._server: WatchServer | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, events.RunStarted) and self._server is None:
            self._server = WatchServer(run_of(event.run_dir))
            self._server.serve_aside()
            self._tell(f"watch it at {self._server.address}")
        for view in self._views:
            view(event)

    def close(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

    def _tell(self, words: str) -> None:
        if not self._views:
            self._say(words)
        for view in self._views:
            view(events.Note(words))


def run_of(path: Path) -> Path:
    """The run that a stage belongs to: `RUN/stages/NAME` is part of RUN."""
    above = path.parent.parent
    return above if path.parent.name == "stages" and RunDir(above).about() else path
