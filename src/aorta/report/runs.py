"""The runs below a directory, and what changed from one run to another."""

import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aorta.core.errors import AortaError
from aorta.core.failure import failure_from_json, same_failure
from aorta.core.stats import fisher_exact
from aorta.core.trial import Outcome, Tally
from aorta.engine.rundir import PRIVATE, RunDir
from aorta.probe.snapshot import differences
from aorta.report.building import page_of, reader_of
from aorta.report.pages.common import rate, seconds
from aorta.report.run_reader import Document, OpenedRun, read_json

_DEEPEST = 8
_SNAPSHOTS = ("host_env.json", "env.json", "shrunken/env.json", "case/env.json")
_VOLATILE = frozenset(
    {"run_dir", "output_dir", "run_timestamp", "aorta_version", "next", "elapsed_ms", "seconds",
     "trial_paths", "step_times_ms", "counts", "rate", "trace", "recipe_source", "resumed_trials"}
)  # fmt: skip
_MOST_LEAVES = 200


@dataclass(frozen=True)
class Listed:
    """One run, in a line."""

    path: Path
    verb: str
    ticket: str
    state: str
    answer: str
    created: datetime | None

    def to_json(self) -> dict[str, Any]:
        created = self.created.strftime("%Y-%m-%dT%H:%M:%SZ") if self.created else None
        ticket = self.ticket or None
        return {**vars(self), "path": str(self.path), "ticket": ticket, "created": created}


def list_runs(root: Path) -> list[Listed]:
    """Newest first. A run that cannot be read says why in place of its answer."""
    found = [_listed(path) for path in find_runs(root)]
    oldest = datetime.min.replace(tzinfo=UTC)
    return sorted(found, key=lambda run: (run.created or oldest, str(run.path)), reverse=True)


def find_runs(root: Path) -> Iterator[Path]:
    """Directories of our verbs, and a launcher's log directories; no links are followed."""
    for folder, inside, _ in os.walk(root):
        path = Path(folder)
        is_run = bool(RunDir(path).about().get("verb"))
        if is_run or any((path / name / "cycle_info.json").is_file() for name in inside):
            yield path
            inside.clear()
            continue
        depth = len(path.relative_to(root).parts)
        inside[:] = sorted(n for n in inside if n != PRIVATE) if depth < _DEEPEST else []


def _listed(path: Path) -> Listed:
    about = Document(RunDir(path).about())
    try:
        run = reader_of(path).open()
        verb, state, answer = run.verb, run.state, page_of(run).answer.sentence
        ticket = run.about.text("ticket") or run.documents.section("matrix").text("ticket")
    except AortaError as wrong:
        verb, state, answer, ticket = about.text("verb"), "unreadable", wrong.message, ""
    return Listed(path, verb, ticket, state, answer, _created(path, about))


def _created(path: Path, about: Document) -> datetime | None:
    try:
        return datetime.fromisoformat(about.text("created"))
    except ValueError:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)


@dataclass(frozen=True)
class Changed:
    what: str
    before: str
    after: str
    note: str = ""


def compare(before: Path, after: Path) -> list[Changed]:
    """The answers, how trials went, what the results say, and the machines; only what differs."""
    runs = [reader_of(path).open() for path in (before, after)]
    rows = [*_answers(*runs), *_trials(*runs), *_results(*runs), *_machines(before, after)]
    return [row for row in rows if row.before != row.after]


def _answers(a: OpenedRun, b: OpenedRun) -> Iterator[Changed]:
    yield Changed("verb", a.verb, b.verb)
    yield Changed("state", a.state, b.state)
    yield Changed("answer", page_of(a).answer.sentence, page_of(b).answer.sentence)


def _trials(a: OpenedRun, b: OpenedRun) -> Iterator[Changed]:
    if not a.trials or not b.trials:
        return
    if a.verb == b.verb == "run":
        before, after = (rate(run.tally.reproduced, run.tally.evidence) for run in (a, b))
        yield Changed("failure rate", before, after, _luck(a.tally, b.tally))
    yield Changed("median trial time", _median(a), _median(b))
    failures = [sorted({t.signature for t in run.trials if t.signature}) for run in (a, b)]
    if not _same_failures(*failures):
        yield Changed("failures seen", *("; ".join(seen) or "none" for seen in failures))


def _same_failures(before: Sequence[str], after: Sequence[str]) -> bool:
    """Whether each run has seen every failure of the other."""
    known = [[failure_from_json(None, text) for text in run] for run in (before, after)]
    pairs = [[failure for failure in run if failure is not None] for run in known]
    return all(
        any(same_failure(one, other) for other in others)
        for mine, others in (pairs, pairs[::-1])
        for one in mine
    )


def _luck(a: Tally, b: Tally) -> str:
    if not a.evidence or not b.evidence:
        return ""
    p = fisher_exact(a.reproduced, a.evidence, b.reproduced, b.evidence)
    return f"p = {p:.2g}" + ("" if p <= 0.05 else ": may be luck")


def _median(run: OpenedRun) -> str:
    times = [trial.duration for trial in run.trials if trial.outcome is not Outcome.ERROR]
    return seconds(statistics.median(times)) if times else ""


def _results(a: OpenedRun, b: OpenedRun) -> Iterator[Changed]:
    """The verbs' own documents, leaf by leaf."""
    if a.verb == b.verb:
        yield from _different("", _lasting(a.documents), _lasting(b.documents))


def _lasting(value: Any) -> Any:
    """Without what differs between any two runs; rows are matched by name, not place, words are
    joined, and other rows are counted.
    """
    if isinstance(value, Mapping):
        return {key: _lasting(inner) for key, inner in value.items() if key not in _VOLATILE}
    if isinstance(value, list):
        if value and all(isinstance(item, str) for item in value):
            return ", ".join(value)
        rows = Document(rows=value).rows("rows")
        named = {row.text("name"): _lasting(row) for row in rows}
        return named if len(named) == len(value) and all(named) else len(value)
    return value


def _different(prefix: str, before: Document, after: Document) -> Iterator[Changed]:
    for found in differences(before, after)[:_MOST_LEAVES]:
        values = (found.before, found.after)
        shown = ("absent" if value in (None, {}) else str(value) for value in values)
        yield Changed(prefix + found.path, *shown)


def _machines(before: Path, after: Path) -> Iterator[Changed]:
    snapshots = [_snapshot(path) for path in (before, after)]
    if all(snapshots):
        yield from _different("machine: ", *snapshots)


def _snapshot(path: Path) -> Document:
    for name in _SNAPSHOTS:
        if found := read_json(path / name):
            return found
    for file in sorted(path.glob("trial_*.json")):
        if found := read_json(file).section("env"):
            return found
    return Document()
