"""The one way from a run directory to its page, for the file, the live view and the list of
runs.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from aorta.engine.rundir import write_atomically
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
from aorta.report.run_reader import Gather, OpenedRun, RunReader

_PAGES: Mapping[str, tuple[Gather, Callable[[OpenedRun], Page]]] = {
    module.__name__.rpartition(".")[2]: (module.gather, module.page)
    for module in (run, reduce, triage, bisect, diverge, isolate, solve, launch, attribution)
}


def reader_of(path: Path, *, shared: bool = False) -> RunReader:
    gatherers = {verb: gather for verb, (gather, _) in _PAGES.items()}
    return RunReader(path, gatherers, shared=shared)


def page_of(opened: OpenedRun) -> Page:
    _, page = _PAGES[opened.verb]
    return page(opened)


def write_page(run_dir: Path, place: Path, *, shared: bool = False) -> tuple[Page, str]:
    """The page and its document. `shared`: for other eyes, without paths and names."""
    page = page_of(reader_of(run_dir, shared=shared).open())
    if shared:
        page = replace(page, hidden="Names, addresses, paths and secrets are replaced")
    text = document(page)
    write_atomically(place, text)
    return page, text
