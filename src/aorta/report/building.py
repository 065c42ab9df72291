"""The one way from a run directory to its page, for the file, the live view and the list of runs."""

from collections.abc import Callable, Mapping
from pathlib import Path

from aorta.report.model import Page
from aorta.report.pages import attribution, bisect, diverge, launch, reduce, run, solve, triage
from aorta.report.run_reader import Gather, OpenedRun, RunReader

_GATHERERS: Mapping[str, Gather] = {
    "run": run.gather,
    "reduce": reduce.gather,
    "triage": triage.gather,
    "bisect": bisect.gather,
    "diverge": diverge.gather,
    "solve": solve.gather,
    "launch": launch.gather,
    "attribution": attribution.gather,
}
_PAGES: Mapping[str, Callable[[OpenedRun], Page]] = {
    "run": run.page,
    "reduce": reduce.page,
    "triage": triage.page,
    "bisect": bisect.page,
    "diverge": diverge.page,
    "solve": solve.page,
    "launch": launch.page,
    "attribution": attribution.page,
}


def reader_of(path: Path) -> RunReader:
    return RunReader(path, _GATHERERS)


def page_of(opened: OpenedRun) -> Page:
    return _PAGES[opened.verb](opened)
