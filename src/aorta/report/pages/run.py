"""`aorta run`: how often does it fail, how fast?"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from aorta.core.stats import counted
from aorta.core.trial import Outcome
from aorta.engine.rundir import RunDir
from aorta.report.charts import Curve
from aorta.report.page import Figure, Page, Tone
from aorta.report.pages.common import own_words_page, seen_outcomes
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
    tally = run.tally
    tone = Tone.FOUND if tally.reproduced else Tone.FINE if tally.clean else Tone.UNSURE
    result = run.documents.section("result")
    return own_words_page(run, result, picture=_picture(run), tone=tone)


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
