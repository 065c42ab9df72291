"""A trial before and after: what to run, the facts of how it ended, its outcome.

`reproduced` is evidence for; `clean` and `other` are evidence against; `error` is none.
"""

import re
import signal
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a trial names places; it never looks at them
    from pathlib import Path

STEP_TIMES_FILE = "step_times.txt"
"""In the trial's directory; what `AORTA_STEP_TIMES` points at: a line for each step, its time in
milliseconds.
"""


class RuntimeKind(StrEnum):
    HOST = "host"
    DOCKER = "docker"
    PODMAN = "podman"
    PYXIS = "pyxis"
    VENV = "venv"


@dataclass(frozen=True)
class Environment:
    """In what a trial runs. `env` is its own layer of variables, the weakest one."""

    name: str
    kind: RuntimeKind = RuntimeKind.HOST
    image: str | None = None
    venv: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[str, ...] = ()  # SOURCE:DESTINATION[:ro]
    options: tuple[str, ...] = ()  # further options of the container engine
    source: str = "aorta"

    @property
    def isolated(self) -> bool:
        """True where the host's own snapshot says nothing about what the trial sees."""
        return self.kind is not RuntimeKind.HOST


LOCAL = Environment("local")


@dataclass(frozen=True)
class WatchedPattern:
    """A regular expression looked for in the output while it is written."""

    pattern: str
    stream: str = "both"  # stdout | stderr | both
    stop: bool = True  # the first match ends the trial
    keep_last: bool = False  # report the last match instead of the first: for numbers that go on
    keep_all: bool = False  # beside `keep_last`: with the first group of every match


@dataclass(frozen=True)
class Watch:
    """What must be noticed while a trial runs: it ends the trial, or is gone afterwards."""

    patterns: tuple[WatchedPattern, ...] = ()
    silent_for: float | None = None  # seconds without output that make it a hang
    longer_than: float | None = None  # seconds of running that make it a hang
    # Brought back as result["metrics_file"], or why not as "metrics_problem".
    json_file: str | None = None


@dataclass(frozen=True)
class Resources:
    """What one trial needs of a machine or cluster."""

    gpus: int = 0  # on each of its nodes
    cpus: int = 1  # of each of its tasks
    nodes: int = 1
    tasks_per_node: int = 1
    partition: str | None = None
    account: str | None = None
    time_limit: float | None = None  # seconds after which a scheduler may end it
    nodelist: tuple[str, ...] = ()  # exactly these nodes, in the order of their ranks

    @property
    def tasks(self) -> int:
        return self.nodes * self.tasks_per_node


class Start(StrEnum):
    """How a trial may be started where its executor knows more than one way."""

    COLD = "cold"
    WATCHED = "watched"  # cold; what it imports is looked at, if nobody has seen it yet
    WARM = "warm"  # it may be forked from a process that has imported its libraries already


@dataclass(frozen=True)
class TrialSpec:
    """One run of something somewhere. `env` holds the resolved layers, never the host's all."""

    argv: tuple[str, ...]
    trial_dir: "Path"  # logs, scratch and result of this trial alone
    cwd: "Path"
    id: str = ""  # given by the engine
    env: Mapping[str, str] = field(default_factory=dict)
    environment: Environment = LOCAL
    watch: Watch = Watch()
    timeout: float | None = None
    resources: Resources = Resources()
    start: Start = Start.COLD
    # It makes what trials need, or looks at their machine, and is no trial itself.
    is_step: bool = False
    # Variables of the program's own that a search sets: no library reads them when it is imported.
    varied: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Match:
    """Where a watched pattern matched; `line` is bounded, `at` is seconds after the start."""

    pattern: str
    stream: str
    line: str
    at: float
    groups: tuple[str | None, ...] = ()
    every: Sequence[str] = ()  # first groups of all matches; of a long run the last ones

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Match":
        return cls(**{**content, "groups": tuple(content["groups"])})


@dataclass(frozen=True)
class StreamEnd:
    """One output stream: where its bytes are, how many were written, and when."""

    path: "Path"
    bytes_seen: int = 0
    last_at: float | None = None
    tail: str = ""  # the last few kilobytes, decoded with replacement


SIGNALLED = 128
"""Shells and container engines report a death by signal N as exit 128 + N."""

_FIRST_TASK = re.compile(r"(?m)^srun: error: \S+: tasks? \S+: Exited with exit code ([1-9]\d*)$")
_SIGNALS = frozenset(int(number) for number in signal.Signals)


@dataclass(frozen=True)
class Ended:
    """How a process ended. All of it empty: somehow, or nobody saw it."""

    exit_code: int | None = None
    signal: int | None = None
    oom_killed: bool = False
    hang: bool = False

    @property
    def status(self) -> int | None:
        """The exit code as a shell reports it: 128 + N for a death by signal N."""
        return self.exit_code if self.signal is None else SIGNALLED + self.signal

    @property
    def signal_number(self) -> int | None:
        """The signal that ended it, be it reported as a signal or as an exit code."""
        if self.signal is not None or self.exit_code is None:
            return self.signal
        return self.exit_code - SIGNALLED if self.exit_code - SIGNALLED in _SIGNALS else None

    @property
    def signal_name(self) -> str:
        """Such as SIGSEGV; empty where no signal ended it, or none that has a name."""
        number = self.signal_number
        return signal.Signals(number).name if number in _SIGNALS and number is not None else ""

    @property
    def text(self) -> str:
        if self.hang:
            return "hang"
        if self.signal is not None:
            return self.signal_name or f"signal {self.signal}"
        return "failed" if self.exit_code is None else self.signal_name or f"exit {self.exit_code}"

    def is_like(self, other: "Ended") -> bool:
        if self.hang or other.hang:
            return self.hang == other.hang
        return None in {self.status, other.status} or self.status == other.status


@dataclass(frozen=True)
class TrialEnd:
    """The facts of one finished trial. What they mean is the oracle's business."""

    trial_id: str
    stdout: StreamEnd
    stderr: StreamEnd
    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    hung: bool = False  # silent too long, or ran longer than the hang oracle allows
    cancelled: bool = False
    # Why nothing can be said: not started, node gone, container did not start.
    lost: str | None = None
    matches: tuple[Match, ...] = ()
    started_at: float = 0.0  # seconds since the epoch
    duration: float = 0.0
    host: str = ""
    image_digest: str | None = None
    result: Mapping[str, Any] | None = None  # what a workload left in result.json
    out_of_memory: bool = False  # the kernel's OOM killer ended one of its processes
    # Seconds of imports that a warm start saved; 0: it started cold. Its duration counts them, so
    # that every time means what it means for a cold start.
    saved: float = 0.0
    imports: float | None = None  # seconds that it spent on imports, where those were watched

    @property
    def failed(self) -> bool:
        return self.signal is not None or self.exit_code not in {0, None}

    @property
    def ended(self) -> Ended:
        """Of several tasks of srun the first counts: srun may exit with another's status."""
        code = self.exit_code
        if code and (first := _FIRST_TASK.search(self.stderr.tail)):
            code = int(first[1])
        return Ended(code, self.signal, self.out_of_memory, self.hung)


class Outcome(StrEnum):
    REPRODUCED = "reproduced"  # the oracle fired
    CLEAN = "clean"  # it ran, and did not fail
    OTHER = "other"  # it failed, but not with this failure
    ERROR = "error"  # could not tell


RETRIES = 2
"""So many more trials may fail to tell than tell, before no further one is started."""


@dataclass(frozen=True)
class Tally:
    """Counts of outcomes; only `evidence` counts for or against."""

    reproduced: int = 0
    clean: int = 0
    other: int = 0
    error: int = 0

    @classmethod
    def of(cls, outcomes: Iterable[Outcome]) -> "Tally":
        counts = Counter(outcomes)
        return cls(**{outcome.value: counts[outcome] for outcome in Outcome})

    @property
    def against(self) -> int:
        return self.clean + self.other

    @property
    def evidence(self) -> int:
        return self.reproduced + self.against

    @property
    def trials(self) -> int:
        return self.evidence + self.error

    @property
    def rate(self) -> float:
        """Reproductions among what is evidence; 0 without any."""
        return self.reproduced / self.evidence if self.evidence else 0.0

    def is_hopeless(self, retries: int = RETRIES) -> bool:
        """So many trials could not tell that no further one is worth its time."""
        return self.error > retries + self.evidence

    def __add__(self, more: "Outcome | Tally") -> "Tally":
        added = Tally(**{more.value: 1}) if isinstance(more, Outcome) else more
        pairs = zip(vars(self).values(), vars(added).values(), strict=True)
        return Tally(*(here + there for here, there in pairs))


@dataclass(frozen=True)
class Verdict:
    """What the judge says of one point. `reproduces` is None when it could not be told."""

    reproduces: bool | None
    tally: Tally = Tally()
    why: str = ""
    seconds: float | None = None  # the median duration of its trials, where known
