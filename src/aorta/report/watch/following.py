"""Notices that a run directory has changed and makes its page anew; knows nothing of HTTP.

It looks at the files themselves, so it works on a directory that another host writes, before the run has begun to write
and after its process is gone.
"""

import threading
import time
from dataclasses import dataclass
from pathlib import Path

from aorta.core.errors import AortaError
from aorta.report.building import page_of, reader_of
from aorta.report.html import content, document
from aorta.report.markup import Markup
from aorta.report.model import FactRows, Headline, Page, Tone
from aorta.report.run_reader import RunReader, state_of

_LOOK_EVERY = 0.5
_SHARE_OF_TIME = 0.1  # making pages may take at most this much of one core
_WATCHED = (
    ".aorta/journal.jsonl",
    ".aorta/run.json",
    ".aorta/lock",
    "result.json",
    "matrix.json",
    "optimize.json",
    "timeline.json",
    "reduction_trace.jsonl",
    "stages/*/.aorta/journal.jsonl",
    "cycle_*/cycle_info.json",
    "current/rank_*.out",
    "current/rank_*.err",
    "case",
)
Stamp = tuple[object, ...]


@dataclass(frozen=True)
class Moment:
    """The page at one time; `number` grows with every change."""

    number: int
    fragment: str
    state: str


class Following:
    """Looks in a thread of its own until it is closed; readers wait for the next moment."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader: RunReader | None = None
        self._reading = threading.Lock()  # its scrubber learns while it reads
        self._refreshing = threading.Lock()  # an older picture never replaces a newer one
        self._changed = threading.Condition()
        self._closed = False
        self._stamp: Stamp | None = None
        self._moment = self._made(1)
        self._thread = threading.Thread(target=self._look, name="aorta-watch", daemon=True)
        self._thread.start()

    @property
    def moment(self) -> Moment:
        return self._moment

    @property
    def closed(self) -> bool:
        return self._closed

    def page(self) -> Page:
        """The page now; of a directory that cannot be read yet, the reason."""
        try:
            with self._reading:
                self._reader = self._reader or reader_of(self.path)
                return page_of(self._reader.open())
        except AortaError as wrong:
            return Page("watch", self.path.name, Headline(wrong.message, Tone.UNSURE), FactRows([]))

    def after(self, number: int, patience: float) -> Moment | None:
        """The moment after `number`, or None if there is none within `patience` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._moment.number > number or self._closed, patience)
            return self._moment if self._moment.number > number else None

    def refresh(self) -> None:
        """Look once more, now."""
        with self._refreshing:
            made = self._made(self._moment.number + 1)
            with self._changed:
                if made.fragment != self._moment.fragment:
                    self._moment = made
                self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(5)

    def _look(self) -> None:
        while not self._closed:
            began = time.monotonic()
            if self._stamp != self._stamp_now():
                self.refresh()
            spent = time.monotonic() - began
            with self._changed:
                self._changed.wait_for(
                    lambda: self._closed, max(_LOOK_EVERY, spent / _SHARE_OF_TIME)
                )

    def _made(self, number: int) -> Moment:
        # Before reading: what changes meanwhile is seen next time.
        self._stamp = self._stamp_now()
        page = self.page()
        state = next((str(value) for name, value in page.facts.rows if name == "State"), "")
        return Moment(number, content(page), state)

    def _stamp_now(self) -> Stamp:
        """The files, and whether the process lives: a death writes nothing."""
        state = state_of(self.path, self._reader.verb) if self._reader else ""
        return (state, *_files_of(self.path))


def whole_page(following: Following, live: Markup, script: Markup) -> str:
    return document(following.page(), script=script, live=live)


def _files_of(path: Path) -> Stamp:
    found: list[object] = []
    for pattern in _WATCHED:
        for file in sorted(path.glob(pattern)):
            try:
                status = file.stat()
            except OSError:
                continue
            found.append((str(file), status.st_size, status.st_mtime_ns))
    return tuple(found)
