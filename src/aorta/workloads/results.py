"""The record of one trial as a file: `trial_d<D>_m<M>_t<T>.json`, schema "0.1".

`result.passed` is true only if neither the oracle nor the workload saw a failure. Step times are
read from what commands print where no file has them: `12.3 it/s`, `step time: 16 ms`.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from aorta.core.documents import StrictModel, validated
from aorta.core.errors import SpecError, UsageError
from aorta.core.failure import failure_to_json
from aorta.core.names import slug
from aorta.core.oracle import Classified
from aorta.core.trial import STEP_TIMES_FILE, Outcome, TrialEnd
from aorta.engine.events import TrialRecord
from aorta.version import __version__
from aorta.workloads.base import WorkloadResult
from aorta.workloads.child import RESULT_SCHEMA, Phase
from aorta.workloads.trial import STEPS, WorkloadRequest, describe_environment

_UNIT_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0}
_NUMBER_OF = r"(?P<{0}>\d+(?:\.\d+)?(?:e[-+]?\d+)?)"
_UNIT_OF_TIME = r"(?P<{0}>us|ms|s)(?:ec(?:ond)?s?)?"
_A_STEP = r"(?:it(?:er(?:ation)?s?)?|steps?|batch(?:es)?|updates?)"
_STEP_TIME = re.compile(
    "|".join(
        (
            _NUMBER_OF.format("rate") + rf"[ \t]*{_A_STEP}/s(?:ec(?:ond)?)?\b",
            _NUMBER_OF.format("each")
            + rf"[ \t]*{_UNIT_OF_TIME.format('each_unit')}[ \t]*(?:/|per)[ \t]*{_A_STEP}\b",
            rf"\b(?:(?:elapsed[ _])?time[ _]per[ _]{_A_STEP}|{_A_STEP}[ _-]?time)[ _]*"
            rf"[(\[]?(?:{_UNIT_OF_TIME.format('named_unit')}\b)?[)\]]?[\"']?[ \t]*[:=]?[ \t]*"
            + _NUMBER_OF.format("named")
            + rf"[ \t]*(?:{_UNIT_OF_TIME.format('unit')}\b)?",
        )
    ),
    re.IGNORECASE,
)
_ENOUGH_SAMPLES = 3


def printed_step_times(text: str) -> list[float]:
    """Step times in ms as `text` prints them, without the first, which pays for warming up."""
    times = [time for found in _STEP_TIME.finditer(text) if (time := _milliseconds(found)) > 0]
    return times[1:] if len(times) > _ENOUGH_SAMPLES else times


def _milliseconds(found: re.Match[str]) -> float:
    if found["rate"]:
        rate = float(found["rate"])
        return 1000 / rate if rate else 0.0
    unit = found["each_unit"] or found["unit"] or found["named_unit"] or "s"
    return float(found["each"] or found["named"]) * _UNIT_MS[unit.lower()]


STEP_TIMES_SOURCE = "step_times_told_by"
"""A metric of a command's result: whether its step times stood in the file it was given or in
its output.
"""
_LONGEST_WORDS = 200
_Decided = Classified | TrialRecord  # by an oracle, or by the engine

ExitStatus = Literal["ok", "workload_failed", "workload_setup_failed", "infrastructure_failed"]


@dataclass(frozen=True)
class TrialLabel:
    """Which trial of which cell. `d0`: aorta knows one dataset."""

    workload: str
    trial: int
    mitigation: int = 0

    @property
    def trial_id(self) -> str:
        return f"{self.workload}_d0_m{self.mitigation}_t{self.trial}"

    @property
    def relative_path(self) -> Path:
        name = f"trial_d0_m{self.mitigation}_t{self.trial}.json"
        return Path(slug(self.workload)) / name


class TrialProcess(StrictModel):
    """What the executor saw."""

    exit_code: int | None
    signal: int | None
    timed_out: bool
    hung: bool
    lost: str | None
    started_at: float = Field(ge=0, allow_inf_nan=False)
    host: str
    image_digest: str | None
    stdout: str
    stderr: str


class TrialDocument(StrictModel):
    """The file, key by key."""

    document: Literal["aorta.trial/1"] = Field(alias="schema")  # pydantic keeps `schema` to itself
    schema_version: Literal["0.1"]
    aorta_version: str
    trial_id: str
    workload: str
    execution_env: dict[str, Any]
    mitigations_applied: list[str]
    config: dict[str, Any]
    env: dict[str, Any]
    result: dict[str, Any]
    wall_clock_sec: float = Field(ge=0, allow_inf_nan=False)
    exit_status: ExitStatus
    request_fingerprint: str | None = Field(pattern=r"^[0-9a-f]{64}$")
    outcome: Literal["reproduced", "clean", "other", "error"]
    why: str
    signature: str | None
    failure: dict[str, Any] | None = None
    process: TrialProcess

    @model_validator(mode="after")
    def _consistent(self) -> "TrialDocument":
        result = self.workload_result
        if (self.exit_status == "ok") != result.passed:
            raise UsageError(
                f"exit_status is {self.exit_status} and result.passed is {result.passed}; "
                "they contradict each other"
            )
        return self

    @property
    def workload_result(self) -> WorkloadResult:
        return WorkloadResult.from_dict(self.result)

    def to_json(self) -> str:
        content = self.model_dump(by_alias=True)
        return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def trial_document(
    label: TrialLabel,
    request: WorkloadRequest,
    end: TrialEnd,
    found: _Decided,
    *,
    env: Mapping[str, Any],
) -> TrialDocument:
    """`env` is the snapshot of the machine (or the placeholder where none could be taken)."""
    result = _result_of(end, found)
    seen: dict[str, Any] = {name: getattr(end, name) for name in TrialProcess.model_fields}
    logs = {name: str(seen[name].path) for name in ("stdout", "stderr")}
    steps = {} if request.steps is None else {STEPS: request.steps}
    return TrialDocument(
        schema="aorta.trial/1",
        schema_version="0.1",
        aorta_version=__version__,
        trial_id=label.trial_id,
        workload=label.workload,
        execution_env=describe_environment(request.environment),
        mitigations_applied=[name for name, _ in request.mitigations],
        config={**request.config, **steps},
        env=dict(env),
        result=result.to_dict(),
        wall_clock_sec=end.duration,
        exit_status=_exit_status(end, found, result),
        request_fingerprint=None,
        outcome=found.outcome.value,
        why=_why(found, end),
        signature=found.failure.text if found.failure else None,
        failure=failure_to_json(found.failure),
        process=TrialProcess(**{**seen, **logs}),
    )


def read_trial(path: Path) -> TrialDocument:
    """The record in this file; SpecError where it is damaged, incomplete or contradicts itself."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as wrong:
        raise SpecError(f"not a readable trial record: {wrong}", where=str(path)) from None
    return validated(TrialDocument, content, file=str(path))


def _result_of(end: TrialEnd, found: _Decided) -> WorkloadResult:
    """The workload's own result where whole, saying no less than the oracle does."""
    own = WorkloadResult.from_dict(end.result) if end.result and _is_ours(end.result) else None
    if found.outcome is Outcome.CLEAN:
        return own or _timed(
            WorkloadResult(passed=True, elapsed_sec=end.duration, main_work_started=True), end
        )
    if own is not None and not own.passed:
        return own
    why = _why(found, end)
    detail = {"hint": why, "error": why, "type": found.outcome.value}
    base = own or _timed(WorkloadResult(passed=False, elapsed_sec=end.duration), end)
    return replace(base, passed=False, failure_count=1, failure_details=[detail])


def _timed(result: WorkloadResult, end: TrialEnd) -> WorkloadResult:
    """With a command's step times: from AORTA_STEP_TIMES, else as printed."""
    written = _written_step_times(end.stdout.path.with_name(STEP_TIMES_FILE))
    streams = (end.stdout.tail, end.stderr.tail)
    times = written or next(filter(None, map(printed_step_times, streams)), [])
    if not times:
        return result
    source = {STEP_TIMES_SOURCE: "file" if written else "output"}
    return replace(result, step_times_ms=times, metrics={**result.metrics, **source})


def _written_step_times(path: Path) -> list[float]:
    """Up to the first line that is no time: a command may be killed within one."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        return []
    times = []
    for line in lines:
        try:
            time = float(line)
        except ValueError:
            break
        if not 0 <= time < math.inf:
            break
        times.append(time)
    return times


def _why(found: _Decided, end: TrialEnd) -> str:
    """A bare exit status is no reason; the last line of stderr may be one."""
    last_line = next(
        (line.strip() for line in reversed(end.stderr.tail.splitlines()) if line.strip()), ""
    )
    bare = found.failure is None or " | " not in found.failure.text
    if found.outcome is Outcome.CLEAN or end.lost is not None or not bare or not last_line:
        return found.why
    return found.why if last_line in found.why else f"{found.why}: {last_line[:_LONGEST_WORDS]}"


def _is_ours(result: Mapping[str, Any]) -> bool:
    """A command may leave a result.json of its own, or a metrics file and nothing else."""
    return result.get("schema") == RESULT_SCHEMA


def _exit_status(end: TrialEnd, found: _Decided, result: WorkloadResult) -> ExitStatus:
    ours = end.result is not None and _is_ours(end.result)
    phase = end.result["phase"] if end.result is not None and ours else Phase.FINISHED
    if result.passed:
        return "ok"
    if phase == Phase.SETUP:
        return "workload_setup_failed"
    if phase != Phase.FINISHED or found.outcome is Outcome.ERROR:
        return "infrastructure_failed"
    return "workload_failed"
