"""The data of this package, frozen: classes of failure, how a rank ended, what goes in (evidence),
and what comes out (finding, decision); these as the JSON of the contracts, and back
where another program hands them in; and in words for a terminal. Nothing here reads a file.
"""

import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from aorta.core.failure import Failure, failure_from_json, failure_to_json
from aorta.core.templates import shortened


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
USER_ERRORS = frozenset(
    {
        FailureClass.IMPORT_ERROR,
        FailureClass.SYNTAX_ERROR,
        FailureClass.BAD_ARGUMENTS,
        FailureClass.BAD_CONFIG,
        FailureClass.SHAPE_MISMATCH,
        FailureClass.CHECKPOINT_MISMATCH,
        FailureClass.CHECKPOINT_CORRUPT,
        FailureClass.MISSING_FILE,
        FailureClass.PERMISSION_DENIED,
    }
)
# How a failure shows, and not what it is.
HOW_IT_SHOWS = frozenset(
    {FailureClass.ABORT, FailureClass.ASSERTION, FailureClass.USER_EXCEPTION, FailureClass.UNKNOWN}
)


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
_WAYS_TO_EXIT = {
    *(USER_ERRORS - {FailureClass.SHAPE_MISMATCH}),
    FailureClass.USER_EXCEPTION,
    FailureClass.ASSERTION,
    FailureClass.DATA_ERROR,
    FailureClass.NAN,
}
_NOT_EXECUTABLE, _NOT_FOUND = 126, 127  # what shells, env and container engines exit with
_SPOKEN = {  # what shells and schedulers call a signal
    "killed": signal.SIGKILL,
    "terminated": signal.SIGTERM,
    "segmentation fault": signal.SIGSEGV,
    "aborted": signal.SIGABRT,
    "bus error": signal.SIGBUS,
    "illegal instruction": signal.SIGILL,
    "floating point exception": signal.SIGFPE,
    "interrupt": signal.SIGINT,
    "hangup": signal.SIGHUP,
    "out of memory": signal.SIGKILL,
    "quit": signal.SIGQUIT,
}


def signal_number(told: int | str) -> int | None:
    """A signal's number: of 9, "9", "SIGKILL", "KILL", "Segmentation fault"; else None."""
    if isinstance(told, int):
        return told if 1 <= told <= signal.NSIG else None
    text = told.strip()
    if text.isdigit():
        return signal_number(int(text))
    if text.lower() in _SPOKEN:
        return int(_SPOKEN[text.lower()])
    name = text.upper().removeprefix("SIG")
    found = signal.Signals.__members__.get(f"SIG{name}")
    return None if found is None else int(found)


@dataclass(frozen=True)
class RankEnd:
    """How one rank ended, as its launcher saw it."""

    rank: int
    exit_code: int | None = None
    signal: int | None = None
    error_file: Path | None = None  # what torch's `record` wrote
    time: float | None = None  # seconds on any clock shared by the ranks of this cycle
    node: str | None = None
    device: str | None = None
    agent: str | None = None  # of its launcher, which ran and watched it
    hung: bool = False  # the launcher stopped it because it was silent too long
    ended_by_launcher: bool = False  # after another rank had failed

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
    def by_force(self) -> bool:
        """Killed as a launcher kills a rank; with a code of its own it may have failed itself."""
        return self.was_asked_to_stop or self.died_of == signal.SIGKILL

    def stopped_by_agent(self, told: bool) -> "RankEnd":
        """The same where its agent says that it stopped it, unless it died otherwise on the way."""
        return replace(self, ended_by_launcher=True) if told and self.by_force else self

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
        return (
            self.died_of in {None, signal.SIGABRT, signal.SIGINT, *_POLITE} and self.exit_code != 0
        )

    def fits(self, failure_class: FailureClass) -> bool:
        """Whether a line of this class fits how it exited: bad input brings no signal."""
        return self.fits_an_exception or failure_class not in _WAYS_TO_EXIT

    @property
    def words(self) -> str:
        number = self.died_of
        if self.hung:
            return f"rank {self.rank} stopped making progress and was ended"
        if number is not None:
            try:
                name = signal.Signals(number).name
            except ValueError:
                name = f"signal {number}"
            return f"rank {self.rank} died of {name}"
        return f"rank {self.rank} exited with code {self.exit_code}"

    def completed_by(self, other: "RankEnd") -> "RankEnd":
        """The same end with what another witness of it adds."""
        unknown = self.exit_code is None and self.signal is None
        return replace(
            self,
            exit_code=other.exit_code if unknown else self.exit_code,
            signal=other.signal if unknown else self.signal,
            time=self.time if self.time is not None else other.time,
            node=self.node or other.node,
            device=self.device or other.device,
            error_file=self.error_file or other.error_file,
            ended_by_launcher=self.ended_by_launcher or other.ended_by_launcher,
        )


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
    failure_class: FailureClass
    last_step: int | None = None
    name: str = ""
    heartbeat_step: int | None = None
    lived_sec: float | None = None
    failure: Failure | None = None  # None: an older version recorded the fingerprint alone


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

    failure_class: FailureClass
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Advice:
    kind: str
    text: str


@dataclass(frozen=True)
class Finding:
    """What failed. Of a cycle that did not (`state`) only the summary and the steps say anything:
    its class is unknown, its confidence 0 and its fingerprint empty.
    """

    failure_class: FailureClass
    confidence: float
    root: Root
    suspect_ranks: tuple[int, ...]
    fingerprint: str
    summary: str
    first_step: int | None = None
    last_step: int | None = None
    evidence: tuple[EvidenceLine, ...] = ()
    cascade: tuple[Cascade, ...] = ()
    advice: tuple[Advice, ...] = ()
    one_node_of: int | None = None  # of how many nodes only one shows this failure
    some_ranks_of: int | None = None  # of how many ranks only some show this failure
    before_first_step: bool = False  # seen to be so; silence about steps says nothing
    made_steps: bool = False  # whether steps were seen, counted or not
    heartbeat_step: int | None = None  # as the launcher reported it, if it did
    lived_sec: float | None = None
    failure: Failure | None = None  # what failed, as `same_failure` compares it
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
# What `past_cycle` reads of a finding: all that later cycles are compared with.
REMEMBERED = ("fingerprint", "class", "last_step", "heartbeat_step", "lived_sec", "failure")


def finding_document(finding: Finding) -> dict[str, Any]:
    return {
        "state": finding.state.value,
        "class": finding.failure_class.value,
        "confidence": finding.confidence,
        "basis": finding.basis,
        "root": asdict(finding.root),
        "suspect_ranks": list(finding.suspect_ranks),
        "first_step": finding.first_step,
        "last_step": finding.last_step,
        "heartbeat_step": finding.heartbeat_step,
        "lived_sec": finding.lived_sec,
        "fingerprint": finding.fingerprint,
        "failure": failure_to_json(finding.failure),
        "summary": finding.summary,
        "evidence": [asdict(line) for line in finding.evidence],
        "cascade": [
            {"class": follower.failure_class.value, "ranks": list(follower.ranks)}
            for follower in finding.cascade
        ],
    }


def decision_document(decision: Decision) -> dict[str, Any]:
    return {
        "action": decision.action.value,
        "reason": decision.reason,
        "rule": decision.rule,
        "advice": [asdict(advice) for advice in decision.advice],
    }


def attribution_document(attribution: Attribution) -> dict[str, Any]:
    """All of `aorta attribute --json` but its schema."""
    return {
        "finding": finding_document(attribution.finding),
        "decision": decision_document(attribution.decision),
        "elapsed_ms": attribution.elapsed_ms,
    }


def past_cycle(document: Mapping[str, Any], name: str = "") -> PastCycle | None:
    """What a saved finding says about a past cycle; None where it is not one."""
    fingerprint, kind = document.get("fingerprint"), document.get("class")
    if not isinstance(fingerprint, str) or kind not in set(FailureClass):
        return None
    steps = (document.get(key) for key in ("last_step", "heartbeat_step"))
    last_step, heartbeat_step = (step if isinstance(step, int) else None for step in steps)
    lived = document.get("lived_sec")
    return PastCycle(
        fingerprint,
        FailureClass(kind),
        last_step,
        name,
        heartbeat_step,
        float(lived) if isinstance(lived, (int, float)) else None,
        _failure(document.get("failure")),
    )


def _failure(content: object) -> Failure | None:
    """What failed; None where nobody recorded it, or not in our form."""
    try:
        return failure_from_json(content)
    except (LookupError, TypeError, ValueError, AttributeError):
        return None


_NO_FAILURE = {CycleState.ENDED_WELL: "ENDED WELL", CycleState.STILL_RUNNING: "NO FAILURE SEEN"}
_LONGEST_LINE = 160


def described(attribution: Attribution) -> str:
    """The answer for a terminal, the action first."""
    finding, decision = attribution.finding, attribution.decision
    if finding.state is not CycleState.FAILED:
        return f"{_NO_FAILURE[finding.state]}  {finding.summary}\n  steps     {_steps(finding)}"
    rows = [
        f"{decision.action}  {decision.reason}",
        f"  class     {finding.failure_class} (confidence {finding.confidence:.2f})",
        f"  root      {_place(finding.root)}",
        f"  steps     {_steps(finding)}",
        f"  bug       {finding.fingerprint}",
        f"  rule      {decision.rule}",
    ]
    rows += [f"  advice    {advice.text}" for advice in decision.advice]
    rows += [
        f"  followed  rank {', '.join(map(str, cascade.ranks))}: {cascade.failure_class}"
        for cascade in finding.cascade
    ]
    rows += [
        f"  {line.file}:{line.line}: {shortened(line.text, _LONGEST_LINE)}"
        for line in finding.evidence
    ]
    return "\n".join(rows)


def _place(root: Root) -> str:
    parts = [
        f"rank {root.rank}" if root.rank is not None else "",
        f"node {root.node}" if root.node else "",
        f"device {root.device}" if root.device else "",
    ]
    return ", ".join(part for part in parts if part) or "nobody in particular"


def _steps(finding: Finding) -> str:
    if finding.last_step is None:
        return "none reported"
    return f"{finding.first_step} to {finding.last_step}"
