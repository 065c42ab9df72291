"""The frozen data of this package, as JSON and in words for a terminal. Reads no files."""

import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    ValidationError,
)

from aorta.core.failure import Failure, failure_from_json, failure_to_json
from aorta.core.templates import shortened
from aorta.core.trial import Ended


class FailureClass(StrEnum):
    IMPORT_ERROR = "import_error"
    SYNTAX_ERROR = "syntax_error"
    BAD_ARGUMENTS = "bad_arguments"
    BAD_CONFIG = "bad_config"
    SHAPE_MISMATCH = "shape_mismatch"
    CHECKPOINT_MISMATCH = "checkpoint_mismatch"
    CHECKPOINT_CORRUPT = "checkpoint_corrupt"
    MISSING_FILE = "missing_file"
    PERMISSION_DENIED = "permission_denied"
    DISK_FULL = "disk_full"
    STORAGE_FAULT = "storage_fault"
    DEVICE_OOM = "device_oom"
    HOST_OOM = "host_oom"
    DEVICE_ASSERT = "device_assert"
    ILLEGAL_ACCESS = "illegal_access"
    HARDWARE_FAULT = "hardware_fault"
    LINK_FAULT = "link_fault"
    SEGFAULT = "segfault"
    ABORT = "abort"
    ASSERTION = "assertion"
    USER_EXCEPTION = "user_exception"
    DATA_ERROR = "data_error"
    NAN = "nan"
    COLLECTIVE_TIMEOUT = "collective_timeout"
    HANG = "hang"
    RENDEZVOUS_ERROR = "rendezvous_error"
    PORT_IN_USE = "port_in_use"
    NETWORK_LOSS = "network_loss"
    PREEMPTED = "preempted"
    KILLED = "killed"
    TIME_LIMIT = "time_limit"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


# What the code, its files, its configuration or its command line are to blame for.
_C = FailureClass
USER_ERRORS = frozenset(
    {
        _C.IMPORT_ERROR, _C.SYNTAX_ERROR, _C.BAD_ARGUMENTS, _C.BAD_CONFIG, _C.SHAPE_MISMATCH,
        _C.CHECKPOINT_MISMATCH, _C.CHECKPOINT_CORRUPT, _C.MISSING_FILE, _C.PERMISSION_DENIED,
    }
)  # fmt: skip
# How a failure shows, and not what it is.
HOW_IT_SHOWS = frozenset({_C.ABORT, _C.ASSERTION, _C.USER_EXCEPTION, _C.UNKNOWN})


class CycleState(StrEnum):
    """Whether there is a failure to name at all."""

    FAILED = "failed"
    ENDED_WELL = "ended_well"
    STILL_RUNNING = "still_running"  # as far as its log shows


class Action(StrEnum):
    RESTART = "RESTART"
    STOP = "STOP"
    UNKNOWN = "UNKNOWN"  # acts as RESTART


class Role(StrEnum):
    """What an event says about the rank that shows it."""

    ROOT = "root"  # this can kill a job
    CASCADE = "cascade"  # only follows from another rank's failure
    WAITING = "waiting"  # waited in vain; the blame is on a rank that does not say so
    CONFIRM = "confirm"  # names the cause of a death that another fact reports
    STACK = "standing"  # where a rank stood when its stack was asked for
    END = "end"  # how a process ended, in its launcher's words


class Certainty(StrEnum):
    CERTAIN = "certain"
    LIKELY = "likely"
    WEAK = "weak"

    @property
    def weight(self) -> int:
        return {"certain": 3, "likely": 2, "weak": 1}[self.value]


_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}
_POLITE = {signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}
_SHELL = 128
_WAYS_TO_EXIT = USER_ERRORS - {_C.SHAPE_MISMATCH} | {
    _C.USER_EXCEPTION, _C.ASSERTION, _C.DATA_ERROR, _C.NAN,
}  # fmt: skip
_NOT_EXECUTABLE, _NOT_FOUND = 126, 127  # what shells, env and container engines exit with
# What shells, schedulers and the C library call a signal.
_SIGNALS = {str(signal.strsignal(number)).lower(): int(number) for number in signal.valid_signals()}
_SIGNALS |= {each.name.removeprefix("SIG").lower(): each.value for each in signal.Signals}
_SIGNALS["out of memory"] = signal.SIGKILL.value


def signal_number(name: str) -> int | None:
    """A signal's number: of "9", "SIGKILL", "KILL", "Segmentation fault"; else None."""
    text = name.strip().lower()
    if text.isdigit():
        return int(text) if 1 <= int(text) <= signal.NSIG else None
    return _SIGNALS.get(text.removeprefix("sig"))


def _whole(value: object) -> object:
    """JSON knows one kind of number: 3.0 is 3 there."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _signal(value: object) -> object:
    """9, 9.0, "9", "SIGKILL" and "Killed" are one signal."""
    number = signal_number(value) if isinstance(value, str) else None
    return _whole(value) if number is None else number


WHOLE = BeforeValidator(_whole)
_STRICT = Field(strict=True)
_Signal = Annotated[int, Field(ge=1, le=64, strict=True), BeforeValidator(_signal)]
Rank = Annotated[int, Field(ge=0, lt=1 << 31, strict=True), WHOLE]
LogPath = Annotated[str, Field(pattern=r"^/[^\x00]{0,4094}$")]
_Name = Annotated[str, Field(max_length=200)]


@dataclass(frozen=True)
class RankEnd:
    """How one rank ended, as its launcher saw it. `time`: on any clock that the ranks share."""

    __pydantic_config__ = ConfigDict(strict=False)  # a mapping is one too; its values are strict

    rank: Rank
    exit_code: Annotated[int, Field(ge=-255, le=255, strict=True), WHOLE] | None = None
    signal: _Signal | None = None
    error_file: LogPath | None = None  # what torch's `record` wrote
    time: Annotated[float, Field(ge=0, le=1e12, strict=True)] | None = None
    node: _Name | None = None
    device: _Name | None = None
    agent: _Name | None = None  # of its launcher, which ran and watched it
    hung: Annotated[bool, _STRICT] = False  # stopped because it was silent too long
    stopped_by_agent: Annotated[bool, _STRICT] = False  # after another rank had failed

    @property
    def died_of(self) -> int | None:
        """The signal it died of, also where a shell reported it as 128 + n."""
        if self.signal is not None:
            return self.signal
        code = self.exit_code
        if code is not None and _SHELL < code <= _SHELL + 64:
            return code - _SHELL
        return -code if code is not None and code < 0 else None

    @property
    def failed(self) -> bool:
        return self.hung or self.signal is not None or self.exit_code not in {0, None}

    @property
    def was_asked_to_stop(self) -> bool:
        """Ended the way a launcher ends a rank that did nothing wrong."""
        return self.died_of in _POLITE

    @property
    def ended_by_launcher(self) -> bool:
        """Stopped by its agent, unless it died otherwise on the way."""
        by_force = self.was_asked_to_stop or self.died_of == signal.SIGKILL
        return self.stopped_by_agent and by_force

    @property
    def meaning(self) -> tuple[FailureClass, Certainty]:
        """The class where nothing was written; a signal says more than a code."""
        number = self.died_of
        if self.hung:
            return FailureClass.HANG, Certainty.CERTAIN
        if number in _CRASHES:
            return FailureClass.SEGFAULT, Certainty.CERTAIN
        if number == signal.SIGABRT:
            return FailureClass.ABORT, Certainty.LIKELY
        if number == signal.SIGINT:
            return FailureClass.CANCELLED, Certainty.LIKELY
        if number is not None:
            return FailureClass.KILLED, Certainty.LIKELY
        if self.exit_code == _NOT_FOUND:
            return FailureClass.MISSING_FILE, Certainty.LIKELY
        if self.exit_code == _NOT_EXECUTABLE:
            return FailureClass.PERMISSION_DENIED, Certainty.LIKELY
        return FailureClass.UNKNOWN, Certainty.WEAK

    @property
    def fits_an_exception(self) -> bool:
        """Whether an uncaught Python exception fits how it exited: 1, an abort, or a signal."""
        by_python = {None, signal.SIGABRT, signal.SIGINT, *_POLITE}
        return self.died_of in by_python and self.exit_code != 0

    def fits(self, failure_class: FailureClass) -> bool:
        """Whether a line of this class fits how it exited: bad input brings no signal."""
        return self.fits_an_exception or failure_class not in _WAYS_TO_EXIT

    @property
    def words(self) -> str:
        if self.hung:
            return f"rank {self.rank} stopped making progress and was ended"
        number = self.died_of
        if number is None:
            return f"rank {self.rank} exited with code {self.exit_code}"
        return f"rank {self.rank} died of {Ended(signal=number).text}"

    def completed_by(self, other: "RankEnd") -> "RankEnd":
        """The same end with what another witness of it adds."""
        ended = self.exit_code is not None or self.signal is not None
        kept = {"exit_code", "signal"} if ended else set()
        more = {k: v for k, v in vars(other).items() if k not in kept and not getattr(self, k)}
        return replace(self, **more)


def _recorded_failure(content: object) -> Failure | None:
    """None where nobody recorded it, or not in our form."""
    if isinstance(content, Failure):
        return content
    try:
        return failure_from_json(content)
    except (LookupError, TypeError, ValueError, AttributeError):
        return None


_Class = Annotated[FailureClass, Field(alias="class")]
_Failure = Annotated[
    Failure | None, PlainValidator(_recorded_failure), PlainSerializer(failure_to_json)
]
_Unshown = Field(exclude=True)  # what `policy` reads, and no document shows


@dataclass(frozen=True)
class LogSource:
    """One log file; `rank` is None where the lines of several ranks are mixed in it."""

    path: Path
    rank: int | None = None
    node: str | None = None


@dataclass(frozen=True)
class LogTail:
    """The end of a log that was sent instead of a path."""

    text: str
    rank: int | None = None
    node: str | None = None
    name: str = "tail"


@dataclass(frozen=True)
class PastCycle:
    """What an earlier cycle of the same job came to."""

    fingerprint: str
    failure_class: _Class
    last_step: int | None = None
    name: str = ""
    heartbeat_step: int | None = None
    lived_sec: float | None = None
    failure: _Failure = None  # None: an older version recorded the fingerprint alone


@dataclass(frozen=True)
class Evidence:
    """Everything known about one failed cycle of a job. `history` is oldest first."""

    logs: tuple[LogSource, ...] = ()
    tails: tuple[LogTail, ...] = ()
    failures: tuple[RankEnd, ...] = ()
    kernel_logs: tuple[LogSource, ...] = ()
    flight_recorder: tuple[Path, ...] = ()  # dump files, one a rank
    history: tuple[PastCycle, ...] = ()
    heartbeat_step: int | None = None  # the furthest step a heartbeat reported
    lived_sec: float | None = None  # from the start of its workers to their end
    follow_links: bool = True  # False: others named the paths, and a link among them is not opened


@dataclass(frozen=True)
class Root:
    rank: int | None = None
    node: str | None = None
    device: str | None = None


@dataclass(frozen=True)
class EvidenceLine:
    file: str
    line: int
    text: str


@dataclass(frozen=True)
class Cascade:
    """Ranks whose failure only follows from the root's."""

    failure_class: _Class
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Advice:
    kind: str
    text: str


@dataclass(frozen=True)
class Finding:
    """What failed. Where nothing did (`state`), only the summary and the steps say anything."""

    failure_class: _Class
    confidence: float
    root: Root
    suspect_ranks: tuple[int, ...]
    fingerprint: str
    summary: str
    first_step: int | None = None
    last_step: int | None = None
    evidence: tuple[EvidenceLine, ...] = ()
    cascade: tuple[Cascade, ...] = ()
    advice: Annotated[tuple[Advice, ...], _Unshown] = ()
    # Of how many nodes only one, and of how many ranks only some show this failure.
    one_node_of: Annotated[int | None, _Unshown] = None
    some_ranks_of: Annotated[int | None, _Unshown] = None
    # Seen to be so; silence about steps says nothing.
    before_first_step: Annotated[bool, _Unshown] = False
    made_steps: Annotated[bool, _Unshown] = False  # whether steps were seen, counted or not
    heartbeat_step: int | None = None  # as the launcher reported it, if it did
    lived_sec: float | None = None
    failure: _Failure = None  # what failed, as `same_failure` compares it
    basis: str = ""  # what the confidence rests on: a rule file, and how sure its pattern is
    state: CycleState = CycleState.FAILED


@dataclass(frozen=True)
class Decision:
    action: Action
    reason: str
    rule: str
    advice: tuple[Advice, ...] = ()


@dataclass(frozen=True)
class Attribution:
    finding: Finding
    decision: Decision
    elapsed_ms: float = field(default=0.0, compare=False)


# ---- as documents

SCHEMA = "aorta.attribution/1"
_LONGEST_LINE = 160  # of evidence, for a terminal
# What `past_cycle` reads of a finding: all that later cycles are compared with.
REMEMBERED = ("fingerprint", "class", "last_step", "heartbeat_step", "lived_sec", "failure")
_FINDING, _PAST_CYCLE = TypeAdapter(Finding), TypeAdapter(PastCycle)


def finding_document(finding: Finding) -> dict[str, Any]:
    document: dict[str, Any] = _FINDING.dump_python(finding, mode="json", by_alias=True)
    return document


def attribution_document(attribution: Attribution) -> dict[str, Any]:
    """All of `aorta attribute --json` but its schema."""
    return {
        "finding": finding_document(attribution.finding),
        "decision": asdict(attribution.decision),
        "elapsed_ms": attribution.elapsed_ms,
    }


def past_cycle(document: Mapping[str, Any], name: str = "") -> PastCycle | None:
    """What a saved finding says about a past cycle; None where it is not one."""
    try:
        return _PAST_CYCLE.validate_python({**document, "name": name})
    except ValidationError:
        return None


def described(attribution: Attribution) -> str:
    """The answer for a terminal, the action first."""
    finding, decision = attribution.finding, attribution.decision
    made = f"{finding.first_step} to {finding.last_step}"
    steps = f"  steps     {'none reported' if finding.last_step is None else made}"
    if finding.state is not CycleState.FAILED:
        ended_well = finding.state is CycleState.ENDED_WELL
        state = "ENDED WELL" if ended_well else "NO FAILURE SEEN"
        return f"{state}  {finding.summary}\n{steps}"
    root = [f"{name} {value}" for name, value in vars(finding.root).items() if value is not None]
    rows = [
        f"{decision.action}  {decision.reason}",
        f"  class     {finding.failure_class} (confidence {finding.confidence:.2f})",
        f"  root      {', '.join(root) or 'nobody in particular'}",
        steps,
        f"  bug       {finding.fingerprint}",
        f"  rule      {decision.rule}",
    ]
    rows += [f"  advice    {advice.text}" for advice in decision.advice]
    for follower in finding.cascade:
        ranks = ", ".join(map(str, follower.ranks))
        rows.append(f"  followed  rank {ranks}: {follower.failure_class}")
    rows += [f"  {e.file}:{e.line}: {shortened(e.text, _LONGEST_LINE)}" for e in finding.evidence]
    return "\n".join(rows)
