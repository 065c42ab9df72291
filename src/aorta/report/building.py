"""The one way from a run directory to its page."""

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
