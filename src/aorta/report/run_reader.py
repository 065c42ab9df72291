"""From a run directory to an `OpenedRun`: verb, state, documents and trials, all scrubbed.

Pages say which files they need and never see the disk, so nothing unscrubbed can reach them.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aorta.bundle.layouts import layout_of
from aorta.bundle.source import this_site
from aorta.core.axis import Value, Window
from aorta.core.errors import UsageError
from aorta.core.templates import TERMINAL_SEQUENCE
from aorta.core.trial import Outcome, Tally
from aorta.engine.events import TrialRecord
from aorta.engine.journal import read_records
from aorta.engine.rundir import STAMP, RunDir
from aorta.executors.evidence import json_object, read_end
from aorta.runtimes.owner import Owner
from aorta.scrub.files import learn_document, scrub_document
from aorta.scrub.findings import Kind, SecretSpan
from aorta.scrub.scrubber import Rules, Scrubbed, Scrubber

_LARGEST_DOCUMENT = 64 << 20
_TAIL = 64 << 10
_BY_SIGNAL = 128  # exit codes above it
_LONGEST_TEXT = 600
ATTRIBUTION = "aorta.attribution/"


class Document(dict[str, Any]):
    """A JSON object: a part that is missing or of another shape is absent, never an exception."""

    def section(self, *path: str) -> "Document":
        """The object at a path of keys, or an empty one."""
        found: object = self
        for key in path:
            found = found.get(key) if isinstance(found, Mapping) else None
        return Document(found) if isinstance(found, Mapping) else Document()

    def rows(self, *path: str) -> "list[Document]":
        """The objects in the list at a path of keys."""
        found = self.section(*path[:-1]).array(path[-1])
        return [Document(row) for row in found if isinstance(row, Mapping)]

    def array(self, key: str) -> Sequence[Any]:
        found = self.get(key)
        return found if isinstance(found, list | tuple) else ()

    def text(self, key: str, otherwise: str = "") -> str:
        """The value as one text; lists and objects are no text."""
        found = self.get(key)
        return otherwise if found is None or isinstance(found, list | Mapping) else str(found)

    def number(self, key: str) -> float | None:
        """A finite number; a bool is none."""
        found = self.get(key)
        if isinstance(found, bool) or not isinstance(found, int | float):
            return None
        return found if abs(found) < float("inf") else None

    def count(self, key: str) -> int:
        return int(self.number(key) or 0)


Gather = Callable[[Path], dict[str, Any]]
"""What a verb's page needs from its directory, as JSON-native data."""


@dataclass(frozen=True)
class Trial:
    """A journal line with what pages show of it. A subset is the number of items it keeps."""

    values: Mapping[str, str | float]
    outcome: Outcome
    why: str
    signature: str
    duration: float
    elapsed: float


@dataclass(frozen=True)
class OpenedRun:
    """A run directory, scrubbed. `state`: running, done, or the word for how it stopped."""

    name: str
    verb: str
    state: str
    about: Document
    documents: Document
    trials: Sequence[Trial] = field(default_factory=tuple)

    @property
    def running(self) -> bool:
        return self.state == "running"

    @property
    def tally(self) -> Tally:
        return Tally.of(trial.outcome for trial in self.trials)


class _SecretsAlone(Scrubber):
    """For a page that stays on its own machine, where paths and node names are useful."""

    def replaced(
        self, text: str, where: str, findings: Sequence[SecretSpan], line: int = 1
    ) -> Scrubbed:
        secrets = [one for one in findings if one.kind is Kind.CREDENTIAL]
        return super().replaced(text, where, secrets, line)


def open_run(path: Path, gatherers: Mapping[str, Gather], *, shared: bool = False) -> OpenedRun:
    """All that a page may show. `shared`: paths, names, addresses are replaced beside secrets."""
    if not path.is_dir():
        raise UsageError("there is no such directory; expected a run directory", where=str(path))
    verb = verb_of(path)
    scrubber = (Scrubber if shared else _SecretsAlone)(Rules(identity=this_site(path)))
    # First: of a run that is over by then, all that it wrote is read.
    state = state_of(path, verb)
    records = read_records_of(path)
    said = [record.why for record in records]
    said += (record.failure.text for record in records if record.failure)
    values = (value for record in records for _, value in record.point.values)
    texts = sorted({*said, *(value for value in values if isinstance(value, str))})
    # A directory that is named by the second says nothing without the one it lies in.
    place, is_stamp = path.resolve(), STAMP.match(path.resolve().name) is not None
    raw = {
        "directory": f"{place.parent.name}/{place.name}" if is_stamp else place.name,
        "about": RunDir(path).about(),
        "documents": gatherers[verb](path),
        "texts": texts,
    }
    learn_document(scrubber, raw)
    clean = shortened(scrub_document(scrubber, raw))
    replaced = dict(zip(texts, clean["texts"], strict=True))
    return OpenedRun(
        name=clean["directory"],
        verb=verb,
        state=state,
        about=Document(clean["about"]),
        documents=Document(clean["documents"]),
        trials=[_trial(record, replaced) for record in records],
    )


def verb_of(path: Path) -> str:
    """Which verb wrote this directory; or `attribution`."""
    if known := layout_of(path):
        return known[0].verb
    if attribution_in(path):
        return "attribution"
    raise UsageError(
        "this is no run directory: neither .aorta/run.json nor a result says which verb wrote it; "
        "expected a directory of a verb, or one that holds an attribution",
        where=str(path),
    )


def attribution_in(path: Path) -> Document:
    """A finding that `aorta attribute --json` or a launcher left here."""
    for file in sorted(path.glob("*.json")):
        document = read_json(file)
        if document.text("schema").startswith(ATTRIBUTION):
            return document
    return Document()


def state_of(path: Path, verb: str) -> str:
    """A run whose process is gone without a last word has died, as far as can be seen."""
    run = RunDir(path)
    try:  # before its last word, which it writes while it holds the lock
        owner = Owner.from_label(run.lock.read_text())
    except OSError:
        return str(run.about().get("state") or "") or _state_without_owner(run, verb)
    if owner is not None and not owner.is_gone():
        return "running"
    return str(run.about().get("state") or "") or "died"


def _state_without_owner(run: RunDir, verb: str) -> str:
    if verb in {"launch", "attribution"}:
        infos = [read_json(file) for file in run.path.glob("cycle_*/cycle_info.json")]
        if any(info and info.get("ended") is None for info in infos):
            return "running"
        last = max(infos, key=lambda info: info.count("cycle"), default=Document())
        return "interrupted" if last.section("ending").count("exit_code") > _BY_SIGNAL else "done"
    # What was shipped has no private state, and nothing runs in it.
    return "died" if run.private.is_dir() else "done"


def read_json(path: Path) -> Document:
    with suppress(OSError):
        if path.stat().st_size <= _LARGEST_DOCUMENT:
            return Document(json_object(path) or {})
    return Document()


def read_json_lines(path: Path) -> list[Document]:
    """Every whole line that is an object; a torn one is left out."""
    found: list[Document] = []
    with suppress(OSError), path.open("rb") as file:
        for line in file:
            with suppress(ValueError):
                content = json.loads(line)
                found += [Document(content)] if isinstance(content, dict) else []
    return found


def read_tail(path: Path) -> list[str]:
    """The last lines of a log, without colours."""
    try:
        data = read_end(path, _TAIL + 1)
    except OSError:
        return []
    text = TERMINAL_SEQUENCE.sub("", data.decode("utf-8", "replace").rstrip())
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[1:] if len(data) > _TAIL else lines  # the first of a longer log is cut


def shortened(value: Any) -> Any:
    """The same data with no text longer than anyone reads on a page."""
    if isinstance(value, str):
        rest = len(value) - _LONGEST_TEXT
        return value if rest <= 0 else f"{value[:_LONGEST_TEXT]} … ({rest} more characters)"
    if isinstance(value, Mapping):
        return {shortened(key): shortened(inner) for key, inner in value.items()}
    return [shortened(inner) for inner in value] if isinstance(value, list) else value


def read_records_of(path: Path) -> list[TrialRecord]:
    """The trials of the run and of its stages, in the order they ended."""
    found: list[TrialRecord] = []
    for journal in (RunDir(path).journal, *sorted(path.glob("stages/*/.aorta/journal.jsonl"))):
        try:
            found += read_records(journal)
        except (OSError, KeyError, ValueError, TypeError, AttributeError):
            continue  # another version's journal, or none: the documents still say what they say
    return sorted(found, key=lambda record: record.started_at + record.duration)


def _trial(record: TrialRecord, replaced: Mapping[str, str]) -> Trial:
    return Trial(
        values={name: _size_of(value, replaced) for name, value in record.point.values},
        outcome=record.outcome,
        why=replaced[record.why],
        signature=replaced[record.failure.text] if record.failure else "",
        duration=record.duration,
        elapsed=record.elapsed,
    )


def _size_of(value: Value, replaced: Mapping[str, str]) -> str | float:
    if isinstance(value, str):
        return replaced[value]
    if isinstance(value, Window):
        return value.length
    return len(value) if isinstance(value, tuple) else value
