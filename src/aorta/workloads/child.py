"""One trial of a registered workload, in this process: `python -m aorta.workloads.child
ORDER.json`.

The result file appears whole or not at all, before cleanup begins: a process that segfaults or
exits simply leaves none. stdout is the workload's alone.

With `--alone`, as shipped with a reduction, the trial's directory is `AORTA_TRIAL_DIR`, and exit
code 1, and no other, says that the failure showed.

Standard library only, and nothing newer than Python 3.10: it also runs inside containers.
"""

import json
import logging
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from types import FrameType
from typing import Any

from aorta.core.errors import Terminated
from aorta.engine.atomic import write_whole
from aorta.version import __version__
from aorta.workloads.base import (
    RESERVED_PREFIX,
    Workload,
    WorkloadResult,
    check_launch,
    load_workload,
    rank_of,
)

ORDER_SCHEMA = "aorta.order/1"
RESULT_SCHEMA = "aorta.workload-result/1"
MAX_EXCEPTION_TEXT = 20_000

_logger = logging.getLogger("aorta.workloads.child")


class ChildExit(IntEnum):
    """How the child leaves. A death by signal is the workload's own."""

    PASSED = 0
    FAILED = 1  # run() returned passed=False
    RAISED = 3  # run() raised
    # The main work never began, or its result could not be kept: to every oracle an error.
    NO_EVIDENCE = 126


class Phase:
    """How far a trial got; `FINISHED` means that run() returned a result."""

    IMPORT = "import"
    LAUNCH = "launch"
    CONSTRUCT = "construct"
    SETUP = "setup"
    RUN = "run"
    PREDICATES = "predicates"
    FINISHED = "finished"


@dataclass(frozen=True)
class WorkloadOrder:
    """What to run. `given`: the reserved config keys; `trial_env`: names of the variables set for
    this trial; `rank`: of the process that gives the order (each rank its own under torchrun).
    """

    workload: str
    result: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict)
    trial_env: Sequence[str] = ()
    rank: int = 0
    predicate: str | None = None  # the one of the workload's that says whether it failed
    declare: bool = False  # run nothing: only say what the class declares

    def to_json(self) -> str:
        content = {"schema": ORDER_SCHEMA, **vars(self), "result": str(self.result)}
        return json.dumps(content, indent=2, allow_nan=False)

    @classmethod
    def read(cls, path: Path) -> "WorkloadOrder":
        """The order in this file; ValueError where it is none."""
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or content.pop("schema", None) != ORDER_SCHEMA:
            raise ValueError(f"{path}: not an {ORDER_SCHEMA} document")
        try:
            order = cls(**content)
        except TypeError as wrong:
            raise ValueError(f"{path}: {wrong}") from None
        reserved = [key for key in order.config if key.startswith(RESERVED_PREFIX)]
        if reserved:
            raise ValueError(f"{path}: config key {reserved[0]!r} is reserved; remove it")
        return cls(**{**content, "result": Path(order.result)})

    def full_config(self, environ: Mapping[str, str]) -> dict[str, Any]:
        """What the workload is constructed with. Variables are read here, never written."""
        trial_env = {name: environ[name] for name in self.trial_env if name in environ}
        return {**self.config, **self.given, f"{RESERVED_PREFIX}trial_env": trial_env}


class WorkloadTrial:
    """Takes one workload through its phases, remembering how far it got and what it said."""

    def __init__(self, order: WorkloadOrder, environ: Mapping[str, str]) -> None:
        self.order = order
        self.environ = environ
        self.phase = Phase.IMPORT
        self.workload: Workload | None = None
        self.result = WorkloadResult(passed=False)
        self.predicates: dict[str, bool] = {}
        self.exception: str | None = None
        self.cleanup_exception: str | None = None

    def perform(self) -> None:
        """Import, launch check, construct, setup, run. What is raised becomes a failed result."""
        try:
            kind = load_workload(self.order.workload)
            if self.order.declare:
                said = {"axes": list(kind.axes), "predicates": sorted(kind.predicates)}
                self.result, self.phase = WorkloadResult(True, metrics=said), Phase.FINISHED
                return
            self.phase = Phase.LAUNCH
            wanted = self.order.predicate
            check_launch(self.order.workload, kind, self.environ, wanted)
            self.phase = Phase.CONSTRUCT
            self.workload = kind(self.order.full_config(self.environ))
            self.phase = Phase.SETUP
            self.workload.setup()
            self.phase = Phase.RUN
            self.result = _checked(self.workload.run())
            self.phase = Phase.PREDICATES
            self.predicates = _answers(self.workload, self.result, wanted)
            self.phase = Phase.FINISHED
        except (Exception, SystemExit) as wrong:  # noqa: BLE001 - it is the result
            self.exception = _text_of(wrong)
            self.result = _failed_result(self.phase, wrong)

    def clean_up(self) -> None:
        """Always attempted once the workload exists; what it raises is reported only."""
        workload, self.workload = self.workload, None
        if workload is None:
            return
        try:
            workload.cleanup()
        except (Exception, SystemExit) as wrong:
            _logger.exception("%s: cleanup failed; the result stands", self.order.workload)
            self.cleanup_exception = _text_of(wrong)

    def keep(self) -> None:
        """Write the result to the requested path, or beside it for further ranks."""
        rank, target = rank_of(self.environ), self.order.result
        if rank != self.order.rank:  # `result.rank1.json` beside `result.json`
            target = target.with_name(f"{target.stem}.rank{rank}{target.suffix}")
        content = {
            "schema": RESULT_SCHEMA,
            "aorta_version": __version__,
            "workload": self.order.workload,
            "rank": rank,
            "phase": self.phase,
            **self.result.to_dict(),
            "predicates": self.predicates,
            "exception": self.exception,
            "cleanup_exception": self.cleanup_exception,
        }
        write_whole(target, json.dumps(content, indent=2, allow_nan=False) + "\n")

    def say(self) -> None:
        if self.exception is not None:
            _logger.error("%s: %s failed\n%s", self.order.workload, self.phase, self.exception)

    @property
    def exit_code(self) -> ChildExit:
        if self.result.main_work_started is False:
            return ChildExit.NO_EVIDENCE
        if self.phase == Phase.FINISHED:
            return ChildExit.PASSED if self.result.passed else ChildExit.FAILED
        return ChildExit.RAISED


def main(arguments: Sequence[str]) -> int:
    _speak_on_stderr()
    alone, paths = arguments[:1] == ["--alone"], [a for a in arguments if a != "--alone"]
    try:
        (path,) = paths
        order = WorkloadOrder.read(Path(path))
        trial = WorkloadTrial(_placed(order) if alone else order, os.environ)
    except (OSError, ValueError) as wrong:
        _logger.critical("cannot read the order: %s", wrong)
        return ChildExit.NO_EVIDENCE
    signal.signal(signal.SIGTERM, _terminate)
    try:
        ended = _carry_out(trial)
        return _exit_alone(trial, ended) if alone else ended
    except Terminated:
        os.kill(os.getpid(), signal.SIGTERM)  # its handler is the default one again
        return ChildExit.NO_EVIDENCE


def _carry_out(trial: WorkloadTrial) -> ChildExit:
    try:
        trial.perform()
        try:
            trial.keep()
        finally:  # where an oracle's pattern ends the trial, the result is there already
            trial.say()
        trial.clean_up()
        if trial.cleanup_exception is not None:
            trial.keep()
    except OSError as wrong:
        _logger.critical("cannot keep the result: %s", wrong)
        trial.clean_up()
        return ChildExit.NO_EVIDENCE
    except (Terminated, KeyboardInterrupt):
        trial.clean_up()
        raise
    return trial.exit_code


def _placed(order: WorkloadOrder) -> WorkloadOrder:
    """The order with a trial directory, which only the place that it runs in can give it."""
    folder = Path(os.environ.get("AORTA_TRIAL_DIR") or tempfile.mkdtemp(prefix="aorta-"))
    given = {
        f"{RESERVED_PREFIX}trial_index": 0,
        f"{RESERVED_PREFIX}trial_dir": str(folder),
        f"{RESERVED_PREFIX}log_prefix": str(folder / "workload"),
    }
    return replace(order, result=folder / order.result, given={**order.given, **given})


def _exit_alone(trial: WorkloadTrial, ended: ChildExit) -> ChildExit:
    """As a registered workload's oracle says it; step times go where commands put them."""
    result, predicate = trial.result, trial.order.predicate
    place = os.environ.get("AORTA_STEP_TIMES")
    if place and result.step_times_ms:
        Path(place).write_text("".join(f"{ms}\n" for ms in result.step_times_ms), encoding="utf-8")
    if ended is ChildExit.NO_EVIDENCE:
        return ended
    fired = result.failure_count > 0 if predicate is None else trial.predicates[predicate]
    if fired:
        # In the words of the oracle: its hint, or its error.
        first = next(iter(result.failure_details), {})
        hint = first.get("hint") or first.get("error") or "the workload reported a failure"
        _logger.error("failed: %s", " ".join(str(hint)[:200].split()))
        return ChildExit.FAILED
    return ChildExit.PASSED if result.passed else ChildExit.RAISED


def _speak_on_stderr() -> None:
    """Through a handler of our own: the root logger is the workload's to configure."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("aorta: %(message)s"))
    ours = logging.getLogger("aorta")
    ours.addHandler(handler)
    ours.propagate = False


def _terminate(_number: int, _frame: FrameType | None) -> None:
    """A workload is cleaned up before the process dies of it."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise Terminated


def _checked(returned: object) -> WorkloadResult:
    if not isinstance(returned, WorkloadResult):
        raise TypeError(f"run() returned a {type(returned).__name__}; expected a WorkloadResult")
    returned.check()
    return returned


def _failed_result(phase: str, wrong: BaseException) -> WorkloadResult:
    """An exception as a result; a missing module says that the place is broken."""
    began = None if phase == Phase.RUN and not isinstance(wrong, ImportError) else False
    error = f"{type(wrong).__name__}: {wrong}"
    detail = {"error": error, "type": type(wrong).__name__, "phase": phase}
    return WorkloadResult(
        passed=False, failure_count=1, failure_details=[detail], main_work_started=began
    )


def _answers(workload: Workload, result: WorkloadResult, wanted: str | None) -> dict[str, bool]:
    """What each predicate says; without the one that is wanted nothing can be told."""
    answers = {}
    for name, predicate in workload.predicates.items():
        try:
            answers[name] = bool(predicate(result))
        except Exception:
            _logger.exception("predicate %r failed", name)
    if wanted is not None and wanted not in answers:
        raise LookupError(f"the workload has no answer of the predicate {wanted!r}")
    return answers


def _text_of(wrong: BaseException) -> str:
    return "".join(traceback.format_exception(wrong)).rstrip()[-MAX_EXCEPTION_TEXT:]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
