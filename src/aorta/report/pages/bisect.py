"""`aorta bisect`: which container, and which commit of which package, broke it? And what is
believed about the culprit, replayed from the timeline and the journal.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from aorta.bisect.report import HEADLINES, headline, sides_words
from aorta.core.stats import counted
from aorta.core.templates import template
from aorta.core.trial import Outcome
from aorta.report.charts.timeline import Probe, Strip, draw_timeline
from aorta.report.documents import Document, count, items, number, rows, section, words
from aorta.report.model import (
    Beside,
    Block,
    Command,
    FactRows,
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
from aorta.report.pages.common import (
    missing_result,
    moment,
    percent,
    seen_outcomes,
    state_words,
    table_section,
    trials_section,
    usual_facts,
    warnings_section,
)
from aorta.report.run_reader import OpenedRun, Trial, read_json, read_tail
from aorta.search.belief import Belief, Counts
from aorta.search.bisection import rates_for
from aorta.search.timeline import GraphHistory, GraphTimeline, History, Timeline, Vector

Atoms = Sequence[tuple[int, int, float]]
"""`(first candidate, one past the last, weight of each)`: candidates between the same trials
share a weight.
"""


@dataclass(frozen=True)
class BeliefReplay:
    """The trials on the timeline, and what is believed about the culprit after them."""

    strip: Strip
    probes: Sequence[Probe]
    belief: Atoms


def replayed_belief(timeline: Timeline, trials: Sequence[Trial]) -> BeliefReplay:
    """Trials that are not on the timeline (other orders, other stages) are left out."""
    counts: dict[Vector, Counts] = {}
    probes: list[Probe] = []
    for order, trial in enumerate(trials, 1):
        vector = _vector(timeline, trial)
        position = _position(timeline, vector) if vector is not None else None
        if vector is None or position is None:
            continue
        probes.append(Probe(position, trial.outcome, _says(order, position, trial)))
        if trial.outcome is Outcome.ERROR:
            continue
        hits, misses = counts.get(vector, (0, 0))
        hit = trial.outcome is Outcome.REPRODUCED
        counts[vector] = (hits + hit, misses + (not hit))
    names = [history.package for history in timeline.histories]
    belief: Atoms = ()
    if counts:
        belief = list(Belief.after(rates_for(timeline), timeline, counts).runs(timeline.changes))
    return BeliefReplay(Strip(names, timeline.order, _likeliest(belief)), probes, belief)


def _position(timeline: Timeline, vector: Vector) -> int | None:
    """How many of the changes a state contains; None for one of another order."""
    on_path = timeline.position(vector) is not None
    return timeline.mask(vector).bit_count() if on_path else None


def timeline_of(document: Document) -> Timeline | None:
    """From `timeline.json`; None where it is not whole."""
    histories = [
        History(words(row, "package"), tuple(str(version) for version in items(row, "versions")))
        for row in rows(document, "histories")
    ]
    order = [index for index in items(document, "order") if isinstance(index, int)]
    holds = tuple(int(str(held), 16) for held in items(document, "holds"))
    if len(histories) == 1 and len(holds) == len(histories[0].versions):
        [history], none = histories, (0,) * len(order)
        return GraphTimeline(GraphHistory(history.package, history.versions, holds, none, none))
    changes = [history.changes for history in histories]
    if not histories or [order.count(i) for i in range(len(histories))] != changes:
        return None
    return Timeline(histories, order)


def _vector(timeline: Timeline, trial: Trial) -> Vector | None:
    ranks: list[int] = []
    for history in timeline.histories:
        version = str(trial.values.get(history.package, ""))
        if version not in history.versions:
            return None
        ranks.append(history.versions.index(version))
    return tuple(ranks)


def _says(number: int, position: int, trial: Trial) -> str:
    return f"trial {number}, after {position} changes: {trial.outcome.value} ({trial.why})"


def _likeliest(belief: Atoms) -> tuple[int, int] | None:
    """The group of candidates that is believed in most."""
    if not belief:
        return None
    start, stop, _ = max(belief, key=lambda atom: atom[2])
    return start, stop


_SIDES = {"good": ("last-known-good", "clean"), "bad": ("first-known-bad", "reproduced")}
_MOST_LOG_LINES = 300
_MOST_CANDIDATES = 20
_NO_ANSWERS = {"inconsistent", "did_not_reproduce", "never_good"}


def gather(root: Path) -> dict[str, Any]:
    return {
        "result": read_json(root / "result.json"),
        "timeline": read_json(root / "timeline.json"),
        "logs": {side: _side_log(root, name, wanted) for side, (name, wanted) in _SIDES.items()},
    }


def _side_log(root: Path, name: str, wanted: str) -> list[str]:
    """The end of one telling trial of a side: both streams, as the trial left them."""
    folder = (root / name).resolve()
    if not folder.is_dir() or not folder.is_relative_to(root.resolve()):
        return []
    for place in (folder, *sorted(folder.glob("*/"), reverse=True)):
        found = [line for log in ("stdout.log", "stderr.log") for line in read_tail(place / log)]
        if any(line.strip() for line in found):
            return found[-_MOST_LOG_LINES:]
    return []


def page(run: OpenedRun) -> Page:
    result = section(run.documents, "result")
    timeline = timeline_of(section(run.documents, "timeline"))
    sharp = replayed_belief(timeline, run.trials) if timeline else None
    missing = missing_result(result)
    if sharp is None:
        missing.append(
            "timeline.json: the order of the changes is not known, so no timeline is drawn"
        )
    return Page(
        verb="bisect",
        title=run.name,
        answer=_answer(run, result, sharp),
        facts=FactRows([*usual_facts(run), *_spent(result)]),
        picture=_timeline(run, sharp) if sharp else None,
        sections=[
            *warnings_section(result),
            *_culprits(result),
            *_belief(sharp),
            *_logs(run),
            *_versions(result),
            *_reproduce(result),
            *trials_section(run),
        ],
        missing=missing,
    )


def _answer(run: OpenedRun, result: Document, sharp: BeliefReplay | None) -> Headline:
    status, culprits = words(result, "status"), rows(result, "culprits")
    if status in _NO_ANSWERS:
        warnings = " ".join(map(str, items(result, "warnings")))
        return Headline(headline(status, (), None), Tone.UNSURE, warnings)
    if culprits and status in HEADLINES:
        tone = Tone.FOUND if status in {"found", "pair"} else Tone.UNSURE
        said = headline(status, culprits, number(result, "confidence"))
        return Headline(said, tone, _rates(result))
    more = f"The run is {state_words(run)}."
    tone = Tone.RUNNING if run.running else Tone.UNSURE
    if sharp and sharp.strip.culprit:
        start, stop = sharp.strip.culprit
        mass = sum((b - a) * w for a, b, w in sharp.belief if (a, b) == (start, stop))
        left = counted(stop - start, "change")
        return Headline(
            f"So far it is among {left} of {sharp.strip.changes} (probability {percent(mass)})",
            tone,
            more,
        )
    return Headline("The culprit is not known yet", tone, more)


def _rates(result: Document) -> str:
    seen = {
        side: {key: count(section(section(result, "seen"), side), key) for key in ("failed", "of")}
        for side in ("good", "bad")
    }
    return f"{sides_words(seen)}." if all(side["of"] for side in seen.values()) else ""


def _spent(result: Document) -> list[tuple[str, object]]:
    names = {"Builds": "builds", "Tests": "tests"}
    return [(name, count(result, key)) for name, key in names.items() if count(result, key)]


def _timeline(run: OpenedRun, sharp: BeliefReplay) -> Figure:
    says = (
        f"{counted(len(sharp.probes), 'probe')} on a timeline of "
        f"{counted(sharp.strip.changes, 'change')}"
    )
    table = Table(["probe"], [[probe.says] for probe in sharp.probes])
    return Figure(
        "The merged timeline and every probe, the first on top",
        lambda width: draw_timeline(sharp.strip, sharp.probes, width, says),
        says,
        table,
        [*seen_outcomes(run.trials), ("culprit", "where the change is")],
    )


def _belief(sharp: BeliefReplay | None) -> list[Section]:
    heavy = sorted(sharp.belief if sharp else (), key=lambda atom: -(atom[1] - atom[0]) * atom[2])
    return table_section(
        "How sure",
        ["changes", "probability of each", "together"],
        [
            [f"{a + 1} to {b}" if b > a + 1 else f"{b}", percent(w), percent((b - a) * w)]
            for a, b, w in heavy[:_MOST_CANDIDATES]
        ],
        frozenset({1, 2}),
    )


def _culprits(result: Document) -> list[Section]:
    """The commit card; where there are many candidates, a table of them."""
    culprits = rows(result, "culprits")
    if not culprits:
        return []
    blocks: list[Block] = [FactRows(_card(culprit)) for culprit in culprits[:3]]
    if len(culprits) > 3:
        table = Table(
            ["package", "commit", "title", "author", "date"],
            [
                [words(c, k) for k in ("package", "bad", "title", "author", "date")]
                for c in culprits
            ],
        )
        blocks = [table]
    partner = section(result, "partner")
    if partner:
        said = (
            f"It fails only together with {words(partner, 'package')} {words(partner, 'commit')}."
        )
        blocks.append(Words([said]))
    return [Section("The culprit" if len(culprits) == 1 else "The candidates", blocks)]


def _card(culprit: Document) -> list[tuple[str, object]]:
    names = (
        ("Package", "package"),
        ("Title", "title"),
        ("Commit", "commit"),
        ("Last good", "good"),
        ("First bad", "bad"),
        ("Author", "author"),
        ("Date", "date"),
        ("Merge", "merge"),
        ("Address", "url"),
    )
    said = [(name, words(culprit, key)) for name, key in names]
    return [(name, moment(value) if name == "Date" else value) for name, value in said if value]


def _logs(run: OpenedRun) -> list[Section]:
    logs = section(run.documents, "logs")
    good, bad = ([str(line) for line in items(logs, side)] for side in ("good", "bad"))
    if not good and not bad:
        return []
    left, right = _compared(good, bad)
    return [
        Section(
            "The two sides",
            [
                Beside(
                    Listing("good: the last that passes", left),
                    Listing("bad: the first that fails", right),
                )
            ],
        )
    ]


def _compared(good: Sequence[str], bad: Sequence[str]) -> tuple[list[TextLine], list[TextLine]]:
    """Both logs with what only one of them says marked; what differs from run to run, such as
    addresses and times, is no difference.
    """
    left: list[TextLine] = []
    right: list[TextLine] = []
    folded = [[template(line) for line in side] for side in (good, bad)]
    matcher = SequenceMatcher(None, folded[0], folded[1], autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        mark = "" if tag == "equal" else "only"
        left += [TextLine(good[i], i + 1, mark) for i in range(a, b)]
        right += [TextLine(bad[i], i + 1, mark) for i in range(c, d)]
        more = (d - c) - (b - a)
        (left if more > 0 else right).extend([TextLine("")] * abs(more))
    return left, right


def _versions(result: Document) -> list[Section]:
    good, bad = section(result, "good"), section(result, "bad")
    if not good:
        return []
    table_rows = [[name, words(good, name), words(bad, name)] for name in good]
    containers = section(result, "containers")
    if words(containers, "last_good") or words(containers, "first_bad"):
        table_rows.append(
            ["container", words(containers, "last_good"), words(containers, "first_bad")]
        )
    return [Section("Versions", [Table(["package", "last good", "first bad"], table_rows)])]


def _reproduce(result: Document) -> list[Section]:
    commands = section(result, "reproduce")
    said = {"good": "This passes:", "bad": "This fails:"}
    blocks = [
        Command(words(commands, side), why) for side, why in said.items() if words(commands, side)
    ]
    return [Section("See it yourself", blocks)] if blocks else []
