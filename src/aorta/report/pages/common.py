"""Shared by pages: state of a run, its trials, legends; rates with intervals, counts, factors."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

from aorta.core.durations import show_duration
from aorta.core.stats import counted, percent_range, wilson
from aorta.core.trial import Outcome
from aorta.report.page import (
    Command,
    Figure,
    Headline,
    Listing,
    Page,
    Section,
    Table,
    TextLine,
    Tone,
    Words,
)
from aorta.report.run_reader import Document, OpenedRun, Trial


def percent(share: float) -> str:
    """`0.4 %` where rounding to whole percents would say none or all."""
    value = 100 * share
    if 0 < value < 1 or 99 < value < 100:
        return f"{value:.1f} %"
    return f"{value:.0f} %"


def rate(hits: int, trials: int, noun: str = "") -> str:
    """`3 of 10 (30 %, 95 % interval 11 to 60 %)`; with a noun, `3 of 10 trials (...)`."""
    trials_words = counted(trials, noun) if noun else str(trials)
    if not trials:
        return f"0 of {trials_words}"
    low, high = wilson(hits, trials)
    interval = f"95 % interval {percent_range(low, high, ' to ')}"
    return f"{hits} of {trials_words} ({percent(hits / trials)}, {interval})"


def seconds(value: float | None) -> str:
    return "" if value is None else show_duration(value)


def moment(text: str) -> str:
    """`2026-11-15 06:43 UTC` of a time as documents write it."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return text


def listed(names: Sequence[str], most: int = 4) -> str:
    """`a, b and c`; beyond `most` how many more there are."""
    shown = list(names[:most])
    if len(names) > most:
        return f"{', '.join(shown)} and {len(names) - most} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)


_TONES = {
    **dict.fromkeys(("reduced", "found", "pair", "several", "software", "solved"), Tone.FOUND),
    "same": Tone.FINE,
    "user_error": Tone.FAILED,
}
"""By a result's status; what is not here is no sure answer."""
OUTCOMES: Sequence[tuple[str, str]] = (
    (Outcome.REPRODUCED.value, "reproduced the failure"),
    (Outcome.CLEAN.value, "clean"),
    (Outcome.OTHER.value, "failed in another way"),
    (Outcome.ERROR.value, "error: no evidence"),
)


def state_words(run: OpenedRun) -> str:
    """How the run stands, in words."""
    words = {
        "running": "running",
        "done": "finished",
        "died": "its process is gone without a result",
        "budget": "stopped by its budget",
    }
    return words.get(run.state, run.state)


def usual_facts(run: OpenedRun) -> list[tuple[str, object]]:
    about = run.about
    facts: list[tuple[str, object]] = [("State", state_words(run))]
    for name, key in (("Ticket", "ticket"), ("Workload", "workload")):
        if value := about.text(key):
            facts.append((name, value))
    if begun := about.text("created"):
        facts.append(("Started", moment(begun)))
    if run.trials:
        # Of every question of a run together: each counts its own time from nothing.
        times = [*(trial.elapsed for trial in run.trials), 0.0]
        spent = sum(elapsed for elapsed, later in pairwise(times) if later < elapsed)
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


def list_section(title: str, points: Sequence[str]) -> list[Section]:
    """A point for each line; a list of nothing is no section."""
    return [Section(title, [Words(points)])] if points else []


def listing_section(title: str, name: str, lines: Sequence[TextLine]) -> list[Section]:
    """A text under its title; one without lines is no section."""
    return [Section(title, [Listing(name, lines)])] if lines else []


def own_words_page(
    run: OpenedRun,
    result: Document,
    *,
    picture: Figure | None = None,
    lead: Sequence[Section] = (),
    sections: Sequence[Section] = (),
    tone: Tone | None = None,
) -> Page:
    """The page of a result whose `summary` begins with the answer. `tone`: else by its status."""
    if result.text("status") not in {"", "partial"}:
        run = replace(run, state="done")  # the page is written before the run says its last word
    so_far, tally = "Nothing is known yet", run.tally
    if tally.evidence:
        failed = rate(tally.reproduced, tally.evidence, "trial")
        so_far = f"No answer yet: it failed in {failed}"
    answer, *rest = [str(line) for line in result.array("summary")] or [so_far]
    if answer.endswith(":") and rest:
        answer = f"{answer} {rest.pop(0).strip()}"
    printed = [TextLine(line.removeprefix("  ")) for line in rest]
    commands = [Command(str(command)) for command in result.array("next")]
    tone = tone or _TONES.get(result.text("status"), Tone.UNSURE)
    return Page(
        verb=run.verb,
        title=run.name,
        answer=Headline(answer, Tone.RUNNING if run.running else tone, unfinished(run)),
        facts=usual_facts(run),
        picture=picture,
        sections=[
            *lead,
            *listing_section("In its own words", "What it printed", printed),
            *sections,
            *([Section("What to do now", commands)] if commands else []),
            *trials_section(run),
        ],
        missing=[] if result else ["the run has not written a result yet"],
    )


def unfinished(run: OpenedRun) -> str:
    return "" if run.state == "done" else f"The run is {state_words(run)}."


def trials_section(run: OpenedRun) -> list[Section]:
    """Every trial, at the end of the page, folded."""
    many = any(trial.values for trial in run.trials)
    heads = ["#", "outcome", "time", *(["of"] if many else []), "why"]
    rows = [
        [
            number,
            trial.outcome.value,
            seconds(trial.duration),
            *([" ".join(f"{k}={v}" for k, v in trial.values.items())] if many else []),
            trial.why,
        ]
        for number, trial in enumerate(run.trials, 1)
    ]
    title = f"All {counted(len(run.trials), 'trial')}"
    return table_section(title, heads, rows, frozenset({0, 2}), open=False)
