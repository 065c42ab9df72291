"""Engine listeners: `reduction_trace.jsonl` (every candidate), and a note on other failures."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aorta.core.axis import Point, Purpose, SubsetAxis, Value, Window, as_indexes
from aorta.core.failure import Failure, same_failure
from aorta.core.stats import rate_to_json
from aorta.core.trial import Outcome, Verdict
from aorta.engine.events import Event, PointDecided, TrialEnded, TrialRecord

MOST_ITEMS_NAMED = 200
_IDENTICAL = 3  # ends in a row that are not the failure
ENV_FINGERPRINT = "env_fingerprint"
_WORDS = {True: "reproduces", False: "does not reproduce", None: "could not tell"}


class Trace:
    """Remembers every decided point; `lines` are made when they are to be written. Told the same
    events again it makes the same lines."""

    def __init__(self) -> None:
        self._decided: list[tuple[Point, Verdict, bool, Sequence[TrialRecord]]] = []
        self._trials: dict[Point, list[TrialRecord]] = {}
        self._best: Point | None = None

    def __call__(self, event: Event) -> None:
        match event:
            case TrialEnded(record, _):
                self._trials.setdefault(record.point, []).append(record)
            case PointDecided(point, verdict, best):
                accepted, trials = self._accepted(point, verdict, best), self._trials.get(point, ())
                self._decided.append((point, verdict, accepted, tuple(trials)))
                self._best = best

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [self._line(number, *one) for number, one in enumerate(self._decided, 1)]

    def _accepted(self, point: Point, verdict: Verdict, best: Point | None) -> bool:
        if not verdict.reproduces:
            return False
        if point.purpose is not Purpose.PROBE:
            return True
        return best is not None and best != self._best and best.config_key == point.config_key

    def _line(
        self,
        number: int,
        point: Point,
        verdict: Verdict,
        accepted: bool,
        trials: Sequence[TrialRecord],
    ) -> dict[str, Any]:
        tally = verdict.tally
        return {
            "candidate": number,
            "purpose": point.purpose.value,
            "values": {name: _shown(value) for name, value in point.values},
            "verdict": _WORDS[verdict.reproduces],
            "accepted": accepted,
            "why": verdict.why,
            "outcomes": [record.outcome.value for record in trials],
            "rate": rate_to_json(tally.reproduced, tally.evidence),
            "durations_sec": [record.duration for record in trials],
            "median_sec": verdict.seconds,
            "env_fingerprint": next((record.kept[ENV_FINGERPRINT] for record in trials), None),
            "trials": [_trial_row(record) for record in trials],
        }


def fingerprint_of(snapshot: Mapping[str, Any], settings: Mapping[str, str]) -> str:
    """Changes when the machine as a trial sees it changes; when it was taken is no part of it."""
    lasting = {key: value for key, value in snapshot.items() if key != "captured_at"}
    text = json.dumps([lasting, sorted(settings.items())], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _shown(value: Value) -> Any:
    """A value as a reader wants it: for a subset how many items, and which."""
    if isinstance(value, tuple):
        return {"count": len(value), "kept": _ranges([index + 1 for index in value])}
    return size_of(value)


def size_of(value: Value) -> Any:
    match value:
        case Window(start, length):
            return [start, length]
        case tuple():
            return len(value)
        case _:
            return value


def items_of(axis: SubsetAxis, value: Value) -> list[Any]:
    """The kept items, or their numbers from 1 where there are many."""
    kept = as_indexes(value)
    if len(kept) > MOST_ITEMS_NAMED:
        return [index + 1 for index in kept]
    return [axis.items[index] for index in kept]


def _ranges(numbers: Sequence[int]) -> str:
    """`1-4,7` for 1, 2, 3, 4, 7."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def _trial_row(record: TrialRecord) -> dict[str, Any]:
    return {
        "outcome": record.outcome.value,
        "why": record.why,
        "exit_code": record.exit_code,
        "signal": record.signal,
        "timed_out": record.timed_out,
        "duration_sec": record.duration,
        "started_at": record.started_at,
        "host": record.host,
        "signature": record.failure.text if record.failure else None,
    }


class OtherEnds:
    """Engine listener: calls `act` once three candidates in a row end in the same other failure."""

    def __init__(self, act: Callable[[Failure], None]) -> None:
        self._act = act
        self._alike: list[Failure] = []

    def __call__(self, event: Event) -> None:
        if not isinstance(event, TrialEnded) or event.record.point.purpose is not Purpose.PROBE:
            return
        found = event.record.failure if event.record.outcome is Outcome.OTHER else None
        alike = [failure for failure in self._alike if found and same_failure(failure, found)]
        self._alike = [*alike, found] if found else []
        if found and len(self._alike) == _IDENTICAL:
            self._act(found)
