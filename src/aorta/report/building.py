"""The one way from a run directory to its page."""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from aorta.core.errors import AortaError
from aorta.engine.events import Event, RunStarted
from aorta.engine.rundir import RunDir, write_atomically
from aorta.report.html import document
from aorta.report.page import Page
from aorta.report.pages import (
    attribution,
    bisect,
    diverge,
    isolate,
    launch,
    reduce,
    run,
    solve,
    triage,
)
from aorta.report.run_reader import Gather, OpenedRun, open_run

_PAGES: Mapping[str, tuple[Gather, Callable[[OpenedRun], Page]]] = {
    module.__name__.rpartition(".")[2]: (module.gather, module.page)
    for module in (run, reduce, triage, bisect, diverge, isolate, solve, launch, attribution)
}


def page_of(run_dir: Path, *, shared: bool = False) -> Page:
    """`shared`: for other eyes, without paths and names."""
    gatherers = {verb: gather for verb, (gather, _) in _PAGES.items()}
    run = open_run(run_dir, gatherers, shared=shared)
    _, make = _PAGES[run.verb]
    page = replace(make(run), running=run.running)
    if shared:
        page = replace(page, hidden="Names, addresses, paths and secrets are replaced")
    return page


def write_page(
    run_dir: Path, place: Path, *, shared: bool = False, live: bool = False
) -> tuple[Page, str]:
    """The page and its document. `live`: a browser loads it again while the run goes on."""
    page = page_of(run_dir, shared=shared)
    text = document(page, reload=live and page.running)
    write_atomically(place, text)
    return page, text


# -- `--watch`: `report.html` of a run, rewritten every few seconds; the browser reloads it

_EVERY = 2.0
_SHARE_OF_TIME = 0.1  # making pages may take at most this much of one core


class LivePage:
    """A listener that keeps the page of the first run it hears of, from its start to `close`."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunStarted) and self._thread is None:
            run = run_of(event.run_dir)
            place = run / "report.html"
            self._say(f"watch it at {place.resolve().as_uri()}")
            self._thread = threading.Thread(target=self._keep, args=(run, place), daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Writes the page of the end."""
        if self._thread is not None:
            self._over.set()
            self._thread.join()

    def _keep(self, run: Path, place: Path) -> None:
        is_last = False
        while not is_last:
            is_last = self._over.is_set()
            began = time.monotonic()
            # The run matters more than its page: one that cannot be written is tried again.
            with suppress(AortaError, OSError):
                write_page(run, place, live=True)
            spent = time.monotonic() - began
            self._over.wait(max(_EVERY, spent / _SHARE_OF_TIME))


def run_of(path: Path) -> Path:
    """The outermost run around a stage: RUN of `RUN/stages/NAME` or `RUN/.aorta/STAGE/NAME`."""
    around = [above for above in path.absolute().parents[:3] if RunDir(above).about()]
    return around[-1] if around else path
