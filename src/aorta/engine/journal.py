"""The journal: an append-only file of JSON lines that holds every trial and every decision, in
order.

A line says that a point was opened, that a trial of it ended, that the point was settled and its
verdict told to the search, or that it was dropped. A resume reads these lines and does again what
they say: it needs to know neither how many trials ran side by side nor on which machine. A trial is
on disk before its outcome is used. Killed at any byte, the file loses at most the line being
written: a torn end is dropped with a note. A file that is damaged before its end is refused, and
not changed. Its first line carries a fingerprint of everything that decides what a trial means, so
that a resume never mixes two questions.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aorta.core.axis import Point, Purpose, value_from_json, value_to_json
from aorta.core.errors import InfrastructureError, ResumeError
from aorta.core.failure import failure_from_json, failure_to_json
from aorta.core.trial import Outcome, Tally, Verdict
from aorta.engine.atomic import write_whole
from aorta.engine.events import Dropped, Entry, Opened, Settled, TrialRecord
from aorta.engine.rundir import writing
from aorta.version import __version__

_SCHEMA = "aorta.journal/2"
_HEADER, _OPENED, _TRIAL, _SETTLED, _DROPPED = "header", "opened", "trial", "settled", "dropped"
_UNFIT = (KeyError, ValueError, TypeError, AttributeError)  # what a line that does not fit raises
SCRIPT, DATA = "script ", "data"
"""Parts of a fingerprint that are the user's own files: `script train.py`, `data`."""


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
        header = {"kind": _HEADER, "schema": _SCHEMA, "fingerprint": fingerprint(parts)}
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, _line(0, header))
        return cls(path, _Reading(lines=1))

    @classmethod
    def resume(cls, path: Path, parts: Mapping[str, object], *, changed: bool = False) -> "Journal":
        """`changed`: go on though scripts or data are others now. ResumeError where anything else
        is, or where the file is damaged."""
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
        read.notes += _check_header(read.header, fingerprint(parts), path, changed)
        if read.damage:
            raise ResumeError(damage, where=str(path))
        if read.torn:
            with writing(path):
                os.truncate(path, len(content) - read.torn)
            read.notes.append(f"dropped a torn last line of {read.torn} bytes from {path.name}")
        return cls(path, read)

    def entries(self, question: str) -> Sequence[Entry]:
        """What earlier processes wrote about this question, in order."""
        return self._entries.get(question, ())

    def append(self, entry: Entry, question: str) -> None:
        """Written when this returns, and never half a line; a trial is on the disk, which a power
        cut leaves too.

        A decision that a power cut takes is taken again from the trials before it.
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
    """Every trial that can be read, also while another process is writing, or around damage."""
    points: dict[str, Point] = {}
    records: list[TrialRecord] = []
    for raw in path.read_bytes().split(b"\n"):
        with suppress(*_UNFIT):
            line = json.loads(raw)
            if line["kind"] == _OPENED:
                points[line["key"]] = _point_in(line["point"])
            elif line["kind"] == _TRIAL:
                records.append(_record_in(line, points[line["key"]]))
    return records


# -- reading a whole file --------------------------------------------------------------------------


@dataclass
class _Reading:
    """What a journal holds. `entries` make sense in their order; `torn` bytes at its end do not."""

    lines: int = 0
    header: dict[str, Any] | None = None
    entries: dict[str, list[Entry]] = field(default_factory=dict)
    trials: int = 0
    torn: int = 0
    damage: str = ""
    notes: list[str] = field(default_factory=list)
    _points: dict[tuple[str, str], Point] = field(default_factory=dict)
    _open: set[tuple[str, str]] = field(default_factory=set)

    def take(self, line: Mapping[str, Any]) -> None:
        """ValueError, KeyError, TypeError or AttributeError for a line that does not fit."""
        if self.lines == 0:
            self.header = {"fingerprint": {}, "schema": None, **line}
        elif line["n"] != self.lines:
            raise ValueError("its number does not follow the one before")
        else:
            self._take_entry(line["kind"], line)
        self.lines += 1

    def _take_entry(self, kind: str, line: Mapping[str, Any]) -> None:
        question = line["question"]
        place = (question, line["key"])
        if kind == _OPENED:
            self._points[place] = _point_in(line["point"])
        elif place not in self._open:
            raise ValueError("it is about a point that is not open")
        point = self._points[place]
        entry: Entry
        if kind == _OPENED:
            self._open.add(place)
            entry = Opened(point)
        elif kind == _TRIAL:
            entry = _record_in(line, point)
            self.trials += 1
        elif kind == _SETTLED:
            self._open.remove(place)
            entry = Settled(point, _verdict_in(line))
        elif kind == _DROPPED:
            self._open.remove(place)
            entry = Dropped(point)
        else:
            raise ValueError(f"it is of no known kind: {kind!r}")
        self.entries.setdefault(question, []).append(entry)


def _read(content: bytes) -> _Reading:
    """Up to the first line that does not fit: damage if it or one behind it is whole JSON, else a
    torn end."""
    read, lines = _Reading(), content.split(b"\n")[:-1]
    read.torn = len(content)
    for number, raw in enumerate(lines):
        try:
            read.take(_object(raw))
        except _UNFIT as wrong:
            if any(_is_whole(line) for line in lines[number:]):
                where = f"line {number + 1} of {len(lines)}"
                read.damage = f"{where} is damaged ({wrong or 'it says too little'})"
            break
        read.torn -= len(raw) + 1
    return read


def _object(raw: bytes) -> dict[str, Any]:
    try:
        line = json.loads(raw)
    except ValueError:
        line = None
    if not isinstance(line, dict):
        raise TypeError("it is no whole line")
    return line


def _is_whole(raw: bytes) -> bool:
    with suppress(TypeError):
        _object(raw)
        return True
    return False


# -- single lines ----------------------------------------------------------------------------------


def _content(entry: Entry) -> dict[str, Any]:
    content: dict[str, Any] = {"key": entry.point.key}
    match entry:
        case Opened(point):
            said = {
                "values": {name: value_to_json(value) for name, value in point.values},
                "purpose": point.purpose,
                "replica": point.replica,
            }
            return {"kind": _OPENED, **content, "point": said}
        case TrialRecord():
            facts = {name: value for name, value in vars(entry).items() if name != "point"}
            facts["failure"] = failure_to_json(entry.failure)
            facts["signature"] = entry.failure.text if entry.failure else None
            return {"kind": _TRIAL, **content, **facts}
        case Settled(_, verdict):
            said = {**vars(verdict), "tally": vars(verdict.tally)}
            return {"kind": _SETTLED, **content, "verdict": said}
        case Dropped():
            return {"kind": _DROPPED, **content}


def _point_in(said: Mapping[str, Any]) -> Point:
    values = {name: value_from_json(value) for name, value in said["values"].items()}
    return Point.of(values, Purpose(said["purpose"]), said["replica"])


def _record_in(line: Mapping[str, Any], point: Point) -> TrialRecord:
    facts = {name: line[name] for name in TrialRecord.__dataclass_fields__ if name in line}
    facts["point"] = point
    facts["outcome"] = Outcome(line["outcome"])
    facts["failure"] = failure_from_json(line.get("failure"), line.get("signature"))
    facts["harmless"] = tuple(line.get("harmless", ()))
    return TrialRecord(**facts)


def _verdict_in(line: Mapping[str, Any]) -> Verdict:
    said = line["verdict"]
    return Verdict(said["reproduces"], Tally(**said["tally"]), said["why"], said["seconds"])


def _line(number: int, content: Mapping[str, Any]) -> bytes:
    return json.dumps({**content, "n": number}, separators=(",", ":")).encode() + b"\n"


def _check_header(
    header: Mapping[str, Any], now: Mapping[str, str], path: Path, may_change: bool
) -> list[str]:
    """What is to be said of a run that is gone on with; ResumeError where it is another one."""
    if header["schema"] != _SCHEMA:
        raise ResumeError(
            f"this journal was written by another version of aorta (expected {_SCHEMA}, found "
            f"{header['schema']!r}); go on with that version, or start a new run",
            where=str(path),
        )
    before = header["fingerprint"]
    changed = sorted(n for n in before.keys() | now.keys() if before.get(n) != now.get(n))
    if not changed:
        return []
    said = f"the {' and the '.join(changed)} changed since this run began"
    of_the_user = all(name == DATA or name.startswith(SCRIPT) for name in changed)
    if of_the_user and may_change:
        return [f"{said}: trials from before and from now on are counted together"]
    further = "; --resume --changed counts both together" if of_the_user else ""
    raise ResumeError(
        f"cannot resume: {said}; start a new run, or restore what it was{further}",
        where=str(path),
    )
