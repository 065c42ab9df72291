"""Reports of a cycle -> one answer, in a process beside the one that answers agents: neither a
large log nor a slow file system nor a crash is felt there.

Each analysis has a process of its own, forked from a server that has everything loaded. So an
endless log delays nobody else's decision, and what hangs is killed.
"""

import asyncio
import json
import logging
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from multiprocessing import forkserver
from multiprocessing.connection import Connection
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
from aorta.attribution.service.store import Reported
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
T = TypeVar("T")


def analyse(
    told: Reported, silent: frozenset[str], jail: PathJail, no_progress_limit: int
) -> dict[str, Any]:
    """Finding and decision of a cycle, as they are stored and sent. `silent` are paths that do not
    answer: who looks there does not return.
    """
    result = attribute(gather(told, silent, jail), no_progress_limit=no_progress_limit)
    decision = decision_document(result.decision)
    if silent:
        words = f"{len(silent)} of the files reported did not answer: a mount may hang"
        decision["advice"].append({"kind": "storage", "text": words})
    return {"finding": finding_document(result.finding), "decision": decision}


def paths_in(reports: Iterable[str]) -> set[str]:
    """Every path that an analysis of these reports would look at."""
    told = [json.loads(body) for body in reports]
    failures = (failure for report in told for failure in report.get("failures", ()))
    errors = {failure["error_file"] for failure in failures if failure.get("error_file")}
    return errors | {path for report in told for path in report.get("log_paths", ())}


def gather(told: Reported, silent: frozenset[str], jail: PathJail) -> Evidence:
    reports = [CycleReport.model_validate_json(body) for body in told.reports]
    failures = {
        f.rank: replace(_failure(f, jail, silent), agent=r.agent)
        for r in reports
        for f in r.failures
    }
    nodes = {rank: failure.node for rank, failure in failures.items()}
    paths = {path for r in reports for path in r.log_paths}
    logs = tuple(_logs(paths - silent, jail, nodes))
    return Evidence(
        logs=logs,
        tails=tuple(_tails(reports, nodes, {log.rank for log in logs} - {None})),
        failures=tuple(failures.values()),
        history=tuple(_history(told.earlier)),
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


_LONGEST = 180.0  # seconds
_ATTEMPTS = 2
_AT_ONCE = 4
_NICENESS = 10  # of an analysis, beside the process that answers agents
_context = multiprocessing.get_context("forkserver")
_logger = logging.getLogger(__name__)


class AnalysisLostError(Exception):
    """No answer came of it. The message is a sentence without a path."""


class Analysts:
    """Analyses in processes of their own, a few at once."""

    def __init__(self, jail: PathJail, no_progress_limit: int) -> None:
        self._jail, self._no_progress_limit = jail, no_progress_limit
        self._turns = asyncio.Semaphore(_AT_ONCE)

    def start(self) -> None:
        """Have what every analysis needs loaded before the first, by a server that forks."""
        _context.set_forkserver_preload(["__main__", "aorta.attribution.service.preloaded"])
        forkserver.ensure_running()

    async def analyse(self, told: Reported, silent: frozenset[str]) -> dict[str, Any]:
        """Raises AnalysisLostError where it takes too long, or is killed again and again."""
        async with self._turns:
            for _ in range(_ATTEMPTS):
                with suppress(EOFError):
                    return await self._answer(
                        analyse, told, silent, self._jail, self._no_progress_limit
                    )
                _logger.warning("the process of an analysis died in the middle of it")
        raise AnalysisLostError("the analysis was killed")

    async def _answer(self, work: Callable[..., T], *arguments: object) -> T:
        """What `work` returns in a new process. EOFError: it died."""
        receiver, sender = _context.Pipe(duplex=False)
        process = _context.Process(target=_run, args=(sender, work, arguments), daemon=True)
        with receiver:
            with sender:
                await asyncio.to_thread(process.start)
            try:
                async with asyncio.timeout(_LONGEST):
                    await _readable(receiver)
                answer: T = receiver.recv()
            except TimeoutError:
                message = f"the analysis took longer than {_LONGEST:.0f} s"
                raise AnalysisLostError(message) from None
            finally:
                process.kill()
        return answer


async def _readable(connection: Connection) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(connection.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(connection.fileno())


def _run(sender: Connection, work: Callable[..., object], arguments: tuple[object, ...]) -> None:
    """In the new process: leave Ctrl-C to the service, die with it, and stay behind it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(os.getppid())
    os.nice(_NICENESS)
    sender.send(work(*arguments))
