"""`aorta bisect`: which container, and which commit of which package, broke it?"""

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from aorta.core.stats import counted
from aorta.core.templates import template
from aorta.core.trial import Outcome
from aorta.report.charts import Curve
from aorta.report.page import Figure, Page, Section, TextLine
from aorta.report.pages.common import list_section, listing_section, own_words_page, seen_outcomes
from aorta.report.run_reader import Document, OpenedRun, Trial, read_json, read_tail

_ENDS = {"good": "last-known-good", "bad": "first-known-bad"}
_MOST_LOG_LINES = 300


def gather(root: Path) -> dict[str, Any]:
    return {
        "result": read_json(root / "result.json"),
        "timeline": read_json(root / "timeline.json"),
        "logs": {end: _log_of(root, name) for end, name in _ENDS.items()},
    }


def _log_of(root: Path, name: str) -> list[str]:
    """The end of one telling trial: both streams, as the trial left them."""
    folder = (root / name).resolve()
    if not folder.is_dir() or not folder.is_relative_to(root.resolve()):
        return []
    for place in (folder, *sorted(folder.glob("*/"), reverse=True)):
        found = [line for log in ("stdout.log", "stderr.log") for line in read_tail(place / log)]
        if any(line.strip() for line in found):
            return found[-_MOST_LOG_LINES:]
    return []


def page(run: OpenedRun) -> Page:
    result = run.documents.section("result")
    timeline = run.documents.section("timeline")
    probes = _probes(timeline, run.trials)
    ends = _ends(result, timeline, probes)
    commands = [f"{end}: {command}" for end, command in result.section("reproduce").items()]
    return own_words_page(
        run,
        result,
        picture=_picture(run, timeline, probes, ends) if probes else None,
        sections=[*list_section("See it yourself", commands), *_logs(run)],
    )


# -- the timeline

Probe = tuple[int, Trial]
"""How many changes a trial had, and the trial."""


def _probes(timeline: Document, trials: Sequence[Trial]) -> list[Probe]:
    """The trials that lie on the timeline; those of other orders and other stages do not."""
    packages = [row.text("package") for row in timeline.rows("histories")]
    places = _places(timeline)
    states = [tuple(str(trial.values.get(name, "")) for name in packages) for trial in trials]
    return [(places[at], trial) for at, trial in zip(states, trials, strict=True) if at in places]


def _places(timeline: Document) -> Mapping[tuple[str, ...], int]:
    """How many changes each state has: versions in the merged order, or a commit of a graph."""
    histories = [[str(v) for v in row.array("versions")] for row in timeline.rows("histories")]
    order, holds = timeline.array("order"), timeline.array("holds")
    if len(histories) == 1 and len(holds) == len(histories[0]):
        return {
            (version,): int(str(held), 16).bit_count()
            for version, held in zip(histories[0], holds, strict=True)
        }
    changes = [order.count(package) for package in range(len(histories))]
    if not histories or changes != [len(versions) - 1 for versions in histories]:
        return {}
    at = [0] * len(histories)
    found = {tuple(versions[0] for versions in histories): 0}
    for number_, package in enumerate(order, 1):
        at[package] += 1
        found[tuple(v[i] for v, i in zip(histories, at, strict=True))] = number_
    return found


def _ends(result: Document, timeline: Document, probes: Sequence[Probe]) -> tuple[int, int] | None:
    """Where the change lies: as the result says, else between the last pass and the first failure;
    none in a graph, where a pass on one branch says nothing of another.
    """
    places = _places(timeline)
    packages = [row.text("package") for row in timeline.rows("histories")]
    named = [tuple(result.section(end).text(name) for name in packages) for end in _ENDS]
    if all(state in places for state in named):
        return places[named[0]], places[named[1]]
    good = [at for at, trial in probes if trial.outcome is Outcome.CLEAN]
    bad = [at for at, trial in probes if trial.outcome is Outcome.REPRODUCED]
    if timeline.array("holds") or not good or not bad or max(good) >= min(bad):
        return None
    return max(good), min(bad)


def _picture(
    run: OpenedRun, timeline: Document, probes: Sequence[Probe], ends: tuple[int, int] | None
) -> Figure:
    dots: dict[str, list[tuple[float, float]]] = {}
    for order, (at, trial) in enumerate(probes, 1):
        dots.setdefault(trial.outcome.value, []).append((at, order))
    changes = timeline.array("order")
    sizes = ", ".join(
        f"{row.text('package')} {counted(changes.count(place), 'change')}"
        for place, row in enumerate(timeline.rows("histories"))
    )
    legend = seen_outcomes(run.trials)
    return Figure(
        f"Every probe on the timeline, the first on top: {sizes}",
        Curve(list(dots.items()), "changes applied, oldest first", downward=True, band=ends).draw,
        f"{counted(len(probes), 'probe')} on a timeline of {sizes}",
        legend=[*legend, ("culprit", "where the change is")] if ends else legend,
    )


# -- what the logs say


def _logs(run: OpenedRun) -> list[Section]:
    """A diff of the last passing and the first failing log, blind to addresses and times."""
    logs = run.documents.section("logs")
    good, bad = ([str(line) for line in logs.array(end)] for end in _ENDS)
    was, now = ([template(line) for line in log] for log in (good, bad))
    lines: list[TextLine] = []
    for tag, a, b, c, d in SequenceMatcher(None, was, now, autojunk=False).get_opcodes():
        if tag == "equal":
            lines += [TextLine(f"  {bad[i]}", i + 1) for i in range(c, d)]
            continue
        lines += [TextLine(f"- {good[i]}", i + 1, "removed") for i in range(a, b)]
        lines += [TextLine(f"+ {bad[i]}", i + 1, "added") for i in range(c, d)]
    name = "- the last that passes, + the first that fails"
    return listing_section("What its log says otherwise", name, lines)
