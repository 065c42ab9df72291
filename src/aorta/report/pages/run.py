"""`aorta run`: how often does it fail, how fast?"""

from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from aorta.core.stats import counted
from aorta.core.trial import Outcome, Tally
from aorta.engine.rundir import RunDir
from aorta.report.charts.drawing import linear_scale
from aorta.report.charts.trials import draw_dots, draw_rate
from aorta.report.documents import number as number_of
from aorta.report.documents import rows, section, words
from aorta.report.model import FactRows, Figure, Headline, Page, Section, Table, Tone
from aorta.report.pages.common import rate, seen_outcomes, state_words, trials_section, usual_facts
from aorta.report.run_reader import OpenedRun, Trial, read_json


def gather(root: Path) -> dict[str, Any]:
    result = dict(read_json(root / "result.json"))
    if RunDir(root).journal.is_file():
        result.pop("trials", None)  # the journal has them
    return {"result": result}


def _with_shipped_trials(run: OpenedRun) -> OpenedRun:
    """What was shipped has no journal; its result still tells every trial."""
    told = rows(section(run.documents, "result"), "trials")
    if run.trials or not told:
        return run
    known = {outcome.value for outcome in Outcome}
    return replace(
        run,
        trials=[
            Trial(
                values={},
                outcome=Outcome(words(row, "outcome")),
                why=words(row, "why"),
                signature="",
                duration=number_of(row, "duration_sec") or 0.0,
                elapsed=0.0,
            )
            for row in told
            if words(row, "outcome") in known
        ],
    )


def page(run: OpenedRun) -> Page:
    run = _with_shipped_trials(run)
    result = section(run.documents, "result")
    name = words(result, "workload") or words(run.about, "workload") or run.name
    return Page(
        verb="run",
        title=run.name,
        answer=_answer(run, name),
        facts=FactRows([*usual_facts(run), *_step_times(run)]),
        picture=_picture(run),
        sections=[*_rate(run.tally), *_failures(run), *trials_section(run)],
        missing=[] if run.trials or result else ["no trial has ended yet"],
    )


def _answer(run: OpenedRun, name: str) -> Headline:
    tally = run.tally
    more = "" if run.state == "done" else f"The run is {state_words(run)}."
    if run.running:
        more = "Still running: this is what is known so far."
    if not tally.evidence:
        words_ = f"{name}: nothing is known yet"
        if tally.error:
            words_ = f"{name} could not be tried: {counted(tally.error, 'trial')} ended in an error"
        return Headline(words_, Tone.UNSURE, more)
    if not tally.reproduced:
        bad = " but fails in other ways" if tally.other else ""
        sentence = f"{name} did not show the failure{bad}: {rate(0, tally.evidence, 'trial')}"
        return Headline(sentence, Tone.UNSURE if tally.other else Tone.FINE, more)
    return Headline(
        f"{name} fails in {rate(tally.reproduced, tally.evidence, 'trial')}", Tone.FOUND, more
    )


def _picture(run: OpenedRun) -> Figure | None:
    if not run.trials:
        return None
    dots: dict[str, list[tuple[float, float]]] = {}
    for order, trial in enumerate(run.trials, 1):
        dots.setdefault(trial.outcome.value, []).append((order, trial.duration))
    longest = max(trial.duration for trial in run.trials)
    says = f"{counted(len(run.trials), 'trial')}: how long each took and how it ended"
    return Figure(
        "How long each trial took, and how it ended",
        lambda width: draw_dots(dots, partial(linear_scale, [longest]), width, says, "trial", "s"),
        says,
        legend=seen_outcomes(run.trials),
    )


def _rate(tally: Tally) -> list[Section]:
    if not tally.evidence:
        return []
    hits, of = tally.reproduced, tally.evidence
    says = f"failure rate {rate(hits, of)}"
    figure = Figure(
        f"The failure rate: {rate(hits, of)}", lambda width: draw_rate(hits, of, width, says), says
    )
    return [Section("How often", [figure])]


def _failures(run: OpenedRun) -> list[Section]:
    """The distinct ways in which trials failed, most frequent first."""
    seen = Counter(
        (trial.outcome.value, trial.signature or trial.why)
        for trial in run.trials
        if trial.outcome.value != "clean"
    )
    if not seen:
        return []
    table_rows = [[outcome, said, count] for (outcome, said), count in seen.most_common()]
    table = Table(["outcome", "failure", "trials"], table_rows, frozenset({2}))
    return [Section("What failed", [table])]


def _step_times(run: OpenedRun) -> list[tuple[str, object]]:
    times = section(run.documents, "result", "step_time_ms")
    median, p90 = number_of(times, "median"), number_of(times, "p90")
    if median is None:
        return []
    more = f", 90 % under {p90:.4g} ms" if p90 is not None else ""
    return [("Step time", f"median {median:.4g} ms{more}")]
