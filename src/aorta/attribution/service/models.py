"""The bodies of the service's own wire, strict in what they take."""

import signal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from aorta.attribution.rank_end import RankEnd, signal_number

Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][!-.0-~]{0,199}$")]


def _whole(value: object) -> object:
    """JSON knows one kind of number: 3.0 is 3 there."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _signal(value: object) -> object:
    """9, 9.0, "9", "SIGKILL" and "KILL" are one signal."""
    number = signal_number(value) if isinstance(value, str) else None
    return _whole(value) if number is None else number


_WHOLE = BeforeValidator(_whole)
Rank = Annotated[int, Field(ge=0, lt=1 << 31), _WHOLE]
LogPath = Annotated[str, Field(pattern=r"^/[^\x00]{0,4094}$")]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


_NUMBER = Annotated[int, Field(ge=1, le=64)]
_NAMES = "|".join(sorted(name.removeprefix("SIG") for name in signal.Signals.__members__))
_NAME = Annotated[str, Field(pattern=rf"^(?:(?:SIG)?(?:{_NAMES})|[1-9]|[1-5][0-9]|6[0-4])$")]
_Signal = Annotated[_NUMBER, BeforeValidator(_signal, json_schema_input_type=_NUMBER | _NAME)]


class FailureReport(_Body):
    rank: Rank
    exit_code: Annotated[int, Field(ge=-255, le=255), _WHOLE] | None = None
    signal: _Signal | None = None
    error_file: LogPath | None = None
    time: Annotated[float, Field(ge=0, le=1e12)] | None = None
    node: Annotated[str, Field(max_length=200)] | None = None
    device: Annotated[str, Field(max_length=200)] | None = None
    hung: bool = False
    stopped_by_agent: bool = False

    def as_failure(self) -> RankEnd:
        """Without its error file: whether that may be read is for the path jail to say."""
        values = self.model_dump(exclude={"error_file", "stopped_by_agent"})
        return RankEnd(**values).stopped_by_agent(self.stopped_by_agent)


class TailReport(_Body):
    rank: Rank | None = None
    text: Annotated[str, Field(max_length=4 << 20)]


class CycleReport(_Body):
    """What one agent knows about a failed cycle."""

    job_id: Id
    cycle_id: Id
    agent: Annotated[str, Field(min_length=1, max_length=200)]
    log_paths: Annotated[list[LogPath], Field(max_length=4096)] = []
    tails: Annotated[list[TailReport], Field(max_length=4096)] = []
    failures: Annotated[list[FailureReport], Field(max_length=8192)] = []
    agents_expected: Annotated[int, Field(ge=1, le=1_000_000), _WHOLE] | None = None
    # How long the cycle lived: told outright, or by when it began and ended (since the epoch).
    lived_sec: Annotated[float, Field(ge=0, le=1e10)] | None = None
    started: Annotated[float, Field(ge=0, le=1e12)] | None = None
    ended: Annotated[float, Field(ge=0, le=1e12)] | None = None
    # Beyond this a JSON number is not exact, and a description would promise what is refused.
    heartbeat_step: Annotated[int, Field(ge=0, le=1 << 53), _WHOLE] | None = None

    @property
    def lifetime(self) -> float | None:
        """Seconds; None where the agent did not say."""
        if self.lived_sec is not None or self.started is None or self.ended is None:
            return self.lived_sec
        return max(0.0, self.ended - self.started)


class Accepted(BaseModel):
    job_id: str
    cycle_id: str
    status: Literal["pending", "decided"]
    duplicate: bool  # this very report was there already


class DecisionAnswer(BaseModel):
    status: Literal["pending", "decided"]
    decision: dict[str, Any] | None
    finding: dict[str, Any] | None
    opinion: dict[str, Any] | None = None  # a language model's words, once they are there


class JobSummary(BaseModel):
    job_id: str
    cycles: int
    decided: int
    latest: float


class JobList(BaseModel):
    jobs: list[JobSummary]


class CycleSummary(DecisionAnswer):
    cycle_id: str
    created: float
    decided_at: float | None


class JobHistory(BaseModel):
    job_id: str
    cycles: list[CycleSummary]


class ErrorBody(BaseModel):
    error_code: str
    message: str
    details: None = None


class Health(BaseModel):
    status: Literal["ok", "degraded"]
    backend: Literal["lib"]
    issues: list[str]
    version: str
