"""`aorta run`: how often does it fail, how fast?"""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from aorta.core.stats import counted
from aorta.core.trial import Outcome
from aorta.engine.rundir import RunDir
from aorta.report.charts import Curve
from aorta.report.page import FactRows, Figure, Headline, Page, Section, Tone
from aorta.report.pages.common import (
    rate,
    seen_outcomes,
    state_words,
    table_section,
    trials_section,
    usual_facts,
)
from aorta.report.run_reader import OpenedRun, Trial, read_json


def gather(root: Path) -> dict[str, Any]:
    result = dict(read_json(root / "result.json"))
    if RunDir(root).journal.is_file():
        result.pop("trials", None)  # the journal has them
    return {"result": result}


def _with_shipped_trials(run: OpenedRun) -> OpenedRun:
    """What was shipped has no journal; its result still names every trial."""
    recorded = run.documents.section("result").rows("trials")
    if run.trials or not recorded:
        return run
    known = {outcome.value for outcome in Outcome}
    trials = [
        Trial(
            values={},
            outcome=Outcome(row.text("outcome")),
            why=row.text("why"),
            signature="",
            duration=row.number("duration_sec") or 0.0,
            elapsed=0.0,
        )
        for row in recorded
        if row.text("outcome") in known
    ]
    return replace(run, trials=trials)


def page(run: OpenedRun) -> Page:
    run = _with_shipped_trials(run)
    result = run.documents.section("result")
    name = result.text("workload") or run.about.text("workload") or run.name
    return Page(
        verb="run",
        title=run.name,
        answer=_answer(run, name),
        facts=FactRows([*usual_facts(run), *_step_times(run)]),
        picture=_picture(run),
        sections=[*_failures(run), *trials_section(run)],
        missing=[] if run.trials or result else ["no trial has ended yet"],
    )


def _answer(run: OpenedRun, name: str) -> Headline:
    tally = run.tally
    more = "" if run.state == "done" else f"The run is {state_words(run)}."
    if run.running:
        more = "Still running: this is what is known so far."
    if not tally.evidence:
        sentence = f"{name}: nothing is known yet"
        if tally.error:
            errors = counted(tally.error, "trial")
            sentence = f"{name} could not be tried: {errors} ended in an error"
        return Headline(sentence, Tone.UNSURE, more)
    if not tally.reproduced:
        bad = " but fails in other ways" if tally.other else ""
        sentence = f"{name} did not show the failure{bad}: {rate(0, tally.evidence, 'trial')}"
        return Headline(sentence, Tone.UNSURE if tally.other else Tone.FINE, more)
    sentence = f"{name} fails in {rate(tally.reproduced, tally.evidence, 'trial')}"
    return Headline(sentence, Tone.FOUND, more)


def _picture(run: OpenedRun) -> Figure | None:
    if not run.trials:
        return None
    dots: dict[str, list[tuple[float, float]]] = {}
    for order, trial in enumerate(run.trials, 1):
        dots.setdefault(trial.outcome.value, []).append((order, trial.duration))
    curve = Curve(list(dots.items()), "trial", unit="s")
    says = f"{counted(len(run.trials), 'trial')}: how long each took and how it ended"
    title = "How long each trial took, and how it ended"
    return Figure(title, curve.draw, says, legend=seen_outcomes(run.trials))


def _failures(run: OpenedRun) -> list[Section]:
    """The distinct ways in which trials failed, most frequent first."""
    seen = Counter(
        (trial.outcome.value, trial.signature or trial.why)
        for trial in run.trials
        if trial.outcome is not Outcome.CLEAN
    )
    found = [[outcome, said, count] for (outcome, said), count in seen.most_common()]
    return table_section("What failed", ["outcome", "failure", "trials"], found, frozenset({2}))


def _step_times(run: OpenedRun) -> list[tuple[str, object]]:
    times = run.documents.section("result", "step_time_ms")
    median, p90 = times.number("median"), times.number("p90")
    if median is None:
        return []
    more = f", 90 % under {p90:.4g} ms" if p90 is not None else ""
    return [("Step time", f"median {median:.4g} ms{more}")]
