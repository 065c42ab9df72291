"""Reports of a cycle -> one answer, in processes beside the one that answers agents: neither a
large log nor a slow file system nor a crash is felt there.

A pool is one worker that does one analysis at a time. Two pools: everything begins in the quick
one, and what takes longer there than an ordinary failure ever does starts again in the patient one.
So one endless log delays nobody else's decision. The worker of the patient pool is started when
something comes there: that is seldom, and half a second is nothing to it.
"""

import asyncio
import json
import logging
import multiprocessing
import os
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from aorta.attribution import attribute
from aorta.attribution.documents import decision_document, finding_document, past_cycle
from aorta.attribution.evidence import find_logs
from aorta.attribution.jail import PathJail, PathRefusedError
from aorta.attribution.nouns import (
    Evidence,
    LogSource,
    LogTail,
    PastCycle,
    RankEnd,
    signal_number,
)
from aorta.core.errors import UsageError
from aorta.executors.process_tree import die_with_parent

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


N = TypeVar("N", int, float)

_FAILURE = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nMemoryError\n'
_BEHIND_THE_ANSWERS = 10  # how nice a worker is to the process that answers agents


def prepare(parent: int) -> None:
    """Load what every analysis needs, leave Ctrl-C to the parent, die with it, stay behind it."""
    if os.nice(0) < _BEHIND_THE_ANSWERS:
        os.nice(_BEHIND_THE_ANSWERS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(parent)
    attribute(Evidence(tails=(LogTail(_FAILURE),)))  # compiles the patterns, 100 ms


@dataclass(frozen=True)
class StoredCycle:
    """What the store holds of a cycle: its reports, and name and answer of those before. JSON."""

    reports: Sequence[str]
    earlier: Sequence[tuple[str, str]] = ()
    before: Sequence[str] = ()  # the reports of the cycle before
    silent: frozenset[str] = (
        frozenset()
    )  # paths that do not answer: who looks there does not return


def analyse(told: StoredCycle, jail: PathJail, no_progress_limit: int) -> dict[str, Any]:
    """Finding and decision of a cycle, as they are stored and sent."""
    result = attribute(gather(told, jail), no_progress_limit=no_progress_limit)
    decision = decision_document(result.decision)
    if told.silent:
        words = f"{len(told.silent)} of the files reported did not answer: a mount may hang"
        decision["advice"].append({"kind": "storage", "text": words})
    return {"finding": finding_document(result.finding), "decision": decision}


def paths_in(reports: Iterable[str]) -> set[str]:
    """Every path that an analysis of these reports would look at."""
    told = [json.loads(body) for body in reports]
    failures = (failure for report in told for failure in report.get("failures", ()))
    errors = {failure["error_file"] for failure in failures if failure.get("error_file")}
    return errors | {path for report in told for path in report.get("log_paths", ())}


def gather(told: StoredCycle, jail: PathJail) -> Evidence:
    reports = [CycleReport.model_validate_json(body) for body in told.reports]
    failures = {
        f.rank: replace(_failure(f, jail, told.silent), agent=r.agent)
        for r in reports
        for f in r.failures
    }
    nodes = {rank: failure.node for rank, failure in failures.items()}
    paths = {path for r in reports for path in r.log_paths}
    logs = tuple(_logs(paths - told.silent, jail, nodes))
    before = {path for body in told.before for path in json.loads(body).get("log_paths", ())}
    return Evidence(
        logs=logs,
        tails=tuple(_tails(reports, nodes, {log.rank for log in logs} - {None})),
        failures=tuple(failures.values()),
        history=tuple(_history(told.earlier)),
        earlier_logs=tuple(_logs(before - paths - told.silent, jail, {})),
        heartbeat_step=_most(report.heartbeat_step for report in reports),
        lived_sec=_most(report.lifetime for report in reports),
        follow_links=False,
    )


def _most(values: Iterable[N | None]) -> N | None:
    """The largest of what agents told; None where none told."""
    return max((value for value in values if value is not None), default=None)


def _failure(report: FailureReport, jail: PathJail, silent: frozenset[str]) -> RankEnd:
    """Without its error file where that may not be read, or does not answer."""
    values = report.model_dump(exclude={"error_file", "stopped_by_agent"})
    failure = RankEnd(**values).stopped_by_agent(report.stopped_by_agent)
    if report.error_file and report.error_file not in silent:
        with suppress(PathRefusedError):
            return replace(failure, error_file=jail.admit(report.error_file))
    return failure


def _logs(
    paths: Iterable[str], jail: PathJail, nodes: Mapping[int, str | None]
) -> Iterator[LogSource]:
    """What is there of the paths that may be read. An empty or missing one is no error."""
    for path in sorted(paths):
        try:
            found = find_logs([jail.admit(path)])
        except (UsageError, OSError):
            continue
        for log in found:
            yield log if log.rank is None else replace(log, node=nodes.get(log.rank))


def _tails(
    reports: Iterable[CycleReport], nodes: Mapping[int, str | None], at_hand: set[int | None]
) -> Iterator[LogTail]:
    for report in reports:
        for tail in report.tails:
            if tail.rank in at_hand:
                continue  # the log itself says more than its end
            node = None if tail.rank is None else nodes.get(tail.rank)
            yield LogTail(tail.text, tail.rank, node, f"tail from {report.agent}")


def _history(earlier: Iterable[tuple[str, str]]) -> Iterator[PastCycle]:
    for name, answer in earlier:
        finding = json.loads(answer).get("finding")
        cycle = past_cycle(finding, name) if finding else None
        if cycle is not None:
            yield cycle


_QUICK = 3.0  # seconds: a log of one gigabyte takes one
_PATIENT = 180.0
_ATTEMPTS = 2
_logger = logging.getLogger(__name__)


class AnalysisLostError(Exception):
    """No answer came of it. The message is a sentence without a path."""


class WorkerPools:
    def __init__(self, jail: PathJail, no_progress_limit: int) -> None:
        self._jail, self._no_progress_limit = jail, no_progress_limit
        self._pools = (_Pool(_QUICK), _Pool(_PATIENT))

    async def analyse(self, told: StoredCycle) -> dict[str, Any]:
        for pool in self._pools:
            for _ in range(_ATTEMPTS):
                try:
                    return await pool.run(told, self._jail, self._no_progress_limit)
                except BrokenProcessPool:  # the worker was killed: its log may be to blame
                    _logger.warning("a worker died in the middle of an analysis")
                except TimeoutError:
                    break
            else:
                raise AnalysisLostError("the analysis was killed")
        raise AnalysisLostError(f"the analysis took longer than {_PATIENT:.0f} s")

    def start(self) -> None:
        """Have the worker of the quick pool ready before it is needed."""
        self._pools[0].start()

    def close(self) -> None:
        for pool in self._pools:
            pool.close()


class _Pool:
    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._turn = asyncio.Lock()
        self._pool: ProcessPoolExecutor | None = None
        self._pid: Future[int]

    def start(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                1,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=prepare,
                initargs=(os.getpid(),),
            )
            self._pid = self._pool.submit(os.getpid)
        return self._pool

    async def run(
        self, told: StoredCycle, jail: PathJail, no_progress_limit: int
    ) -> dict[str, Any]:
        async with self._turn:
            pool = self.start()
            try:
                # The clock starts when the worker is there.
                await asyncio.shield(asyncio.wrap_future(self._pid))
                work = asyncio.wrap_future(pool.submit(analyse, told, jail, no_progress_limit))
                return await asyncio.wait_for(work, self._limit)
            except (BrokenProcessPool, TimeoutError):
                self.close()
                raise

    def close(self) -> None:
        """Let go of the worker, whatever it is doing; the next run starts another."""
        if self._pool is None:
            return
        pid = self._pid.result() if self._pid.done() and not self._pid.exception() else None
        for child in multiprocessing.active_children():
            if child.pid == pid:
                child.kill()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = None
