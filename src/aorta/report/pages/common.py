"""What the pages of several verbs show alike: how a run stands, its trials, what its marks mean."""

from collections.abc import Sequence

from aorta.core.trial import Outcome
from aorta.report.documents import Document, items, words
from aorta.report.model import Section, Table, Words
from aorta.report.run_reader import OpenedRun, Trial
from aorta.report.words import counted, moment, seconds

OUTCOMES: Sequence[tuple[str, str]] = (
    (Outcome.REPRODUCED.value, "reproduced the failure"),
    (Outcome.CLEAN.value, "clean"),
    (Outcome.OTHER.value, "failed in another way"),
    (Outcome.ERROR.value, "error: no evidence"),
)


def standing(run: OpenedRun) -> str:
    """How the run stands, in words."""
    said = {
        "running": "running",
        "done": "finished",
        "died": "its process is gone without a result",
        "budget": "stopped by its budget",
    }
    return said.get(run.state, run.state)


def usual_facts(run: OpenedRun) -> list[tuple[str, object]]:
    about = run.about
    facts: list[tuple[str, object]] = [("State", standing(run))]
    for name, key in (("Ticket", "ticket"), ("Workload", "workload")):
        if value := words(about, key):
            facts.append((name, value))
    if begun := words(about, "created"):
        facts.append(("Started", moment(begun)))
    if run.trials:
        spent = run.trials[-1].elapsed
        facts.append(("Trials", f"{len(run.trials)}" + (f" in {seconds(spent)}" if spent else "")))
    return facts


def seen_outcomes(trials: Sequence[Trial]) -> list[tuple[str, str]]:
    seen = {trial.outcome.value for trial in trials}
    return [(kind, meaning) for kind, meaning in OUTCOMES if kind in seen]


def table_section(
    title: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[object]],
    numeric: frozenset[int] = frozenset(),
    *,
    open: bool = True,  # noqa: A002 - as the section calls it
) -> list[Section]:
    """One table under its title; a table of nothing is no section."""
    return [Section(title, [Table(heads, rows, numeric)], open=open)] if rows else []


def warnings_section(document: Document) -> list[Section]:
    said = [str(warning) for warning in items(document, "warnings")]
    return [Section("Know this first", [Words(said, is_list=True)])] if said else []


def missing_result(result: Document) -> list[str]:
    return [] if result else ["result.json: the run has not written a result yet"]


def trials_section(run: OpenedRun) -> list[Section]:
    """Every trial, at the end of the page, folded."""
    many = any(trial.values for trial in run.trials)
    heads = ["#", "outcome", "time", *(["of"] if many else []), "why"]
    rows = [_row(number, trial, many) for number, trial in enumerate(run.trials, 1)]
    title = f"All {counted(len(run.trials), 'trial')}"
    return table_section(title, heads, rows, frozenset({0, 2}), open=False)


def _row(number: int, trial: Trial, many: bool) -> list[object]:
    return [
        number,
        trial.outcome.value,
        seconds(trial.duration),
        *([values_of(trial)] if many else []),
        trial.why,
    ]


def values_of(trial: Trial) -> str:
    return " ".join(f"{name}={value}" for name, value in trial.values.items())
