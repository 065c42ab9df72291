"""The journal: an append-only file of JSON lines, one a trial, on disk before its outcome is used.

Killed at any byte, it loses at most the line being written: a torn last line is dropped with a note. Its first line
carries a fingerprint of everything that decides what a trial means, so that a resume never mixes two questions.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta.core.errors import InfrastructureError, ResumeError
from aorta.core.oracle import Classified
from aorta.core.outcome import Outcome
from aorta.core.point import Point, Purpose, Value
from aorta.core.signature import Signature
from aorta.core.trial import TrialEnd
from aorta.version import __version__


@dataclass(frozen=True)
class TrialRecord:
    seq: int
    point: Point
    index: int  # the how-manieth trial of this point
    outcome: Outcome
    why: str
    signature: Signature | None
    exit_code: int | None
    signal: int | None
    timed_out: bool
    duration: float
    started_at: float
    elapsed: float  # seconds of searching up to this line, over every resume
    host: str
    image_digest: str | None
    path: str  # the trial's directory, relative to the run directory
    value: float | None = None  # what was measured, where a number decides

    @property
    def key(self) -> tuple[str, int]:
        return self.point.key, self.index

    @classmethod
    def of(
        cls,
        point: Point,
        index: int,
        found: Classified,
        end: TrialEnd,
        *,
        seq: int,
        elapsed: float,
        path: str,
    ) -> "TrialRecord":
        return cls(
            seq=seq,
            point=point,
            index=index,
            outcome=found.outcome,
            why=found.why,
            signature=found.signature,
            exit_code=end.exit_code,
            signal=end.signal,
            timed_out=end.timed_out,
            duration=round(end.duration, 6),
            started_at=round(end.started_at, 3),
            elapsed=round(elapsed, 3),
            host=end.host,
            image_digest=end.image_digest,
            path=path,
            value=found.value,
        )

    def to_json(self) -> dict[str, Any]:
        line = dict(vars(self))
        line["point"] = {
            "values": dict(self.point.values),
            "purpose": self.point.purpose.value,
            "replica": self.point.replica,
        }
        line["signature"] = self.signature.text if self.signature else None
        return {"kind": "trial", **line}

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> "TrialRecord":
        fields = {name: line[name] for name in cls.__dataclass_fields__ if name in line}
        point = line["point"]
        values: dict[str, Value] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in point["values"].items()
        }
        fields["point"] = Point.of(values, Purpose(point["purpose"]), point["replica"])
        fields["outcome"] = Outcome(line["outcome"])
        fields["signature"] = Signature(line["signature"]) if line["signature"] else None
        return cls(**fields)


_SCHEMA = "aorta.journal/1"
_UNUSED = "unused"


def fingerprint(parts: Mapping[str, object]) -> dict[str, str]:
    """A digest a part, so that a refusal can name what changed. The tool's own version is one of them."""
    return {
        name: hashlib.sha256(
            json.dumps(part, sort_keys=True, default=str, separators=(",", ":")).encode()
        ).hexdigest()[:16]
        for name, part in {**parts, "aorta version": __version__}.items()
    }


class Journal:
    """Open with `create` or `resume`; then `append`. `played` and `unused` hold what earlier processes wrote.

    A trial that was cancelled is a line too: not for its outcome, but because its slot was taken up to there, and a replay
    must hand out slots in the same order. `unused` maps such a trial to the number of its line.
    """

    def __init__(
        self,
        path: Path,
        played: list[TrialRecord],
        notes: list[str],
        unused: Mapping[tuple[str, int], int] | None = None,
    ) -> None:
        self.path = path
        self.played = played
        self.unused = dict(unused or {})
        self.notes = notes
        self.written = len(played) + len(self.unused)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    @classmethod
    def create(cls, path: Path, parts: Mapping[str, object]) -> "Journal":
        header = {"kind": "header", "schema": _SCHEMA, "fingerprint": fingerprint(parts)}
        with _disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            os.write(fresh, _line(header))
            os.fsync(fresh)
            os.close(fresh)
        return cls(path, [], [])

    @classmethod
    def resume(cls, path: Path, parts: Mapping[str, object]) -> "Journal":
        with _disk_errors(path):
            content = path.read_bytes()
        lines, torn = _whole_lines(content)
        if not lines:
            raise ResumeError(
                "the journal holds no header, so nothing was run yet", where=str(path)
            )
        _check_fingerprint(lines[0], fingerprint(parts), path)
        notes = []
        if torn:
            with _disk_errors(path):
                os.truncate(path, len(content) - torn)
            notes.append(f"dropped a torn last line of {torn} bytes from {path.name}")
        unused = {
            (line["key"], line["index"]): line["seq"]
            for line in lines[1:]
            if line["kind"] == _UNUSED
        }
        return cls(path, _records_in(lines), notes, unused)

    def append(self, record: TrialRecord) -> None:
        self._append(record.to_json())

    def append_unused(self, key: str, index: int) -> None:
        """A cancelled trial has ended."""
        self._append({"kind": _UNUSED, "seq": self.written, "key": key, "index": index})

    def _append(self, content: Mapping[str, Any]) -> None:
        """On disk when this returns; never half a line."""
        data = _line(content)
        with _disk_errors(self.path):
            size = os.lseek(self._file, 0, os.SEEK_END)
            try:
                written = os.write(self._file, data)
                if written < len(data):
                    os.write(self._file, data[written:])
                os.fdatasync(self._file)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(self._file, size)
                raise
        self.written += 1

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def read_records(path: Path) -> list[TrialRecord]:
    """The trials of a journal, also while another process is writing it."""
    lines, _ = _whole_lines(path.read_bytes())
    return _records_in(lines)


class _disk_errors:  # noqa: N801 - reads as a statement where it is used
    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, wrong: BaseException | None, _trace: object) -> None:
        if isinstance(wrong, OSError):
            raise InfrastructureError(
                f"cannot write or read the journal: {wrong.strerror}; mend that and resume",
                where=str(self._path),
            ) from None


def _records_in(lines: Sequence[Mapping[str, Any]]) -> list[TrialRecord]:
    return [TrialRecord.from_json(line) for line in lines[1:] if line["kind"] != _UNUSED]


def _line(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=True).encode() + b"\n"


def _whole_lines(content: bytes) -> tuple[list[dict[str, Any]], int]:
    """Every line that is whole, and the number of bytes behind them."""
    lines: list[dict[str, Any]] = []
    good = 0
    for raw in content.split(b"\n")[:-1]:
        try:
            line = json.loads(raw)
        except ValueError:
            break
        if not isinstance(line, dict):
            break
        lines.append(line)
        good += len(raw) + 1
    return lines, len(content) - good


def _check_fingerprint(header: Mapping[str, Any], now: Mapping[str, str], path: Path) -> None:
    if header.get("schema") != _SCHEMA:
        raise ResumeError(f"this is no {_SCHEMA} file", where=str(path))
    before = header["fingerprint"]
    changed = sorted(n for n in before.keys() | now.keys() if before.get(n) != now.get(n))
    if changed:
        raise ResumeError(
            f"cannot resume: the {' and the '.join(changed)} changed since this run began; "
            "start a new run, or restore what it was",
            where=str(path),
        )
