"""One line of the journal: a finished trial, with what it was asked for and what became of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aorta.core.oracle import Classified
from aorta.core.outcome import Outcome
from aorta.core.point import Point, Purpose, Value
from aorta.core.signature import Signature
from aorta.core.trial import TrialEnd


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
