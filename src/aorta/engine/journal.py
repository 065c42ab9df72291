"""The journal: an append-only file of JSON lines that holds every trial and every decision, in
order.

A line says that a point was opened, that a trial of it ended, that the point was decided and its
verdict told to the search, or that it was dropped. A resume reads these lines and does again what
they say: it needs to know neither how many trials ran side by side nor on which machine. A trial is
on disk before its outcome is used. Killed at any byte, the file loses at most the line being
written: a torn end is dropped with a note. A file that is damaged otherwise is refused, and not
changed. Its first line carries a fingerprint of everything that decides what a trial means, so
that a resume never mixes two questions.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from aorta.core.axis import Point, Purpose, value_from_json, value_to_json
from aorta.core.errors import AnotherQuestionError, InfrastructureError, ResumeError
from aorta.core.failure import failure_from_json, failure_to_json
from aorta.core.trial import Outcome, Tally, Verdict
from aorta.engine.atomic import write_whole
from aorta.engine.events import Decided, Dropped, Entry, Opened, TrialRecord
from aorta.engine.rundir import writing
from aorta.version import __version__

_SCHEMA = "aorta.journal/2"
_UNFIT = (KeyError, ValueError, TypeError, AttributeError)  # what a line that does not fit raises


def fingerprint(parts: Mapping[str, object]) -> dict[str, str]:
    """A digest a part, so that a refusal can name what changed; our version is a part too."""
    return {
        name: hashlib.sha256(
            json.dumps(part, sort_keys=True, default=str, separators=(",", ":")).encode()
        ).hexdigest()[:16]
        for name, part in {**parts, "aorta version": __version__}.items()
    }


class Journal:
    """Open with `create` or `resume`. A run may ask several questions, one after the other."""

    def __init__(self, path: Path, read: "_Reading") -> None:
        self.path = path
        self.notes = read.notes
        self.trials = read.trials
        self._entries = read.entries
        self._lines = read.lines
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    @classmethod
    def create(cls, path: Path, parts: Mapping[str, object]) -> "Journal":
        header = {"kind": "header", "schema": _SCHEMA, "fingerprint": fingerprint(parts)}
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, _line(0, header))
        return cls(path, _Reading(lines=1))

    @classmethod
    def resume(cls, path: Path, parts: Mapping[str, object]) -> "Journal":
        """ResumeError where something else is asked now, or where the file is damaged."""
        with writing(path, "read the journal"):
            content = path.read_bytes()
        read = _read(content)
        damage = (
            f"{read.damage}: what was decided from there on is lost; nothing was changed. Restore "
            "the file, or start a new run; `aorta report` shows what can be read"
        )
        if read.header is None:
            why = damage if read.damage else "the journal holds no header: nothing was run yet"
            raise ResumeError(why, where=str(path))
        _check_header(read.header, fingerprint(parts), path)
        if read.damage:
            raise ResumeError(damage, where=str(path))
        if torn := len(content) - read.whole:
            with writing(path):
                os.truncate(path, read.whole)
            read.notes.append(f"dropped a torn last line of {torn} bytes from {path.name}")
        return cls(path, read)

    def entries(self, question: str) -> Sequence[Entry]:
        """What earlier processes wrote about this question, in order."""
        return self._entries.get(question, ())

    def append(self, entry: Entry, question: str) -> None:
        """Written when this returns, and never half a line; a trial survives a power cut, a
        decision need not: it is taken again from the trials before it.
        """
        data = _line(self._lines, {**_content(entry), "question": question})
        size = os.lseek(self._file, 0, os.SEEK_END)
        try:
            written = os.write(self._file, data)
            if written < len(data):
                os.write(self._file, data[written:])
            if isinstance(entry, TrialRecord):
                os.fdatasync(self._file)
        except OSError as wrong:
            with suppress(OSError):
                os.ftruncate(self._file, size)
            why = f"cannot write the journal: {wrong.strerror}; mend that and resume"
            raise InfrastructureError(why, where=str(self.path)) from None
        self._lines += 1
        self.trials += isinstance(entry, TrialRecord)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def read_records(path: Path) -> list[TrialRecord]:
    """Every trial that can be read, also while another process is writing."""
    entries = chain.from_iterable(_read(path.read_bytes()).entries.values())
    records = (entry for entry in entries if isinstance(entry, TrialRecord))
    return sorted(records, key=lambda record: record.seq)


# -- reading a whole file --------------------------------------------------------------------------


@dataclass
class _Reading:
    """What a journal holds, by question and in order; `whole` bytes of it make sense."""

    header: dict[str, Any] | None = None
    entries: dict[str, list[Entry]] = field(default_factory=dict)
    lines: int = 0
    trials: int = 0
    whole: int = 0
    damage: str = ""
    notes: list[str] = field(default_factory=list)
    _points: dict[str, Point] = field(default_factory=dict)  # by key

    def take(self, line: Mapping[str, Any]) -> None:
        """ValueError, KeyError, TypeError or AttributeError for a line that does not fit."""
        if self.header is None:
            self.header = {"fingerprint": {}, "schema": None, **line}
            return
        if line["n"] != self.lines:
            raise ValueError("its number does not follow the one before")
        key = line["key"]
        entry: Entry
        match line["kind"]:
            case "opened":
                point = line["point"]
                values = {name: value_from_json(value) for name, value in point["values"].items()}
                self._points[key] = Point.of(values, Purpose(point["purpose"]), point["replica"])
                entry = Opened(self._points[key])
            case "trial":
                entry = _record_in(line, self._points[key])
                self.trials += 1
            case "settled":
                said, tally = line["verdict"], Tally(**line["verdict"]["tally"])
                verdict = Verdict(said["reproduces"], tally, said["why"], said["seconds"])
                entry = Decided(self._points[key], verdict)
            case "dropped":
                entry = Dropped(self._points[key])
            case kind:
                raise ValueError(f"it is of no known kind: {kind!r}")
        self.entries.setdefault(line["question"], []).append(entry)


def _read(content: bytes) -> _Reading:
    """Up to the first line that does not fit: a torn end if it is the last and no JSON, else
    damage."""
    read, lines = _Reading(), content.split(b"\n")[:-1]
    for raw in lines:
        line = None
        try:
            line = json.loads(raw)
            read.take(line)
        except _UNFIT as wrong:
            if line is not None or read.lines + 1 < len(lines):
                why = wrong if line is not None else "it is no whole line"
                read.damage = f"line {read.lines + 1} of {len(lines)} is damaged ({why})"
            break
        read.lines += 1
        read.whole += len(raw) + 1
    return read


# -- single lines ----------------------------------------------------------------------------------


def _content(entry: Entry) -> dict[str, Any]:
    content: dict[str, Any] = {"key": entry.point.key}
    match entry:
        case Opened(point):
            opened = {
                "values": {name: value_to_json(value) for name, value in point.values},
                "purpose": point.purpose,
                "replica": point.replica,
            }
            return {"kind": "opened", **content, "point": opened}
        case TrialRecord():
            facts = {name: value for name, value in vars(entry).items() if name != "point"}
            facts["failure"] = failure_to_json(entry.failure)
            facts["signature"] = entry.failure.text if entry.failure else None
            return {"kind": "trial", **content, **facts}
        case Decided(_, verdict):
            decided = {**vars(verdict), "tally": vars(verdict.tally)}
            return {"kind": "settled", **content, "verdict": decided}
        case Dropped():
            return {"kind": "dropped", **content}


def _record_in(line: Mapping[str, Any], point: Point) -> TrialRecord:
    facts = {name: line[name] for name in TrialRecord.__dataclass_fields__ if name in line}
    facts["point"] = point
    facts["outcome"] = Outcome(line["outcome"])
    facts["failure"] = failure_from_json(line.get("failure"))
    facts["harmless"] = tuple(line.get("harmless", ()))
    return TrialRecord(**facts)


def _line(number: int, content: Mapping[str, Any]) -> bytes:
    return json.dumps({**content, "n": number}, separators=(",", ":")).encode() + b"\n"


def _check_header(header: Mapping[str, Any], now: Mapping[str, str], path: Path) -> None:
    """ResumeError where it is the journal of another question."""
    before = header["fingerprint"]
    changed = sorted(n for n in before.keys() | now.keys() if before.get(n) != now.get(n))
    if header["schema"] != _SCHEMA:
        why = (
            f"this journal was written by another version of aorta (expected {_SCHEMA}, found "
            f"{header['schema']!r}); go on with that version, or start a new run"
        )
    elif changed:
        what = f"the {' and the '.join(changed)} changed since this run began"
        why = f"cannot resume: {what}; start a new run, or restore what it was"
        raise AnotherQuestionError(why, where=str(path))
    else:
        return
    raise ResumeError(why, where=str(path))
