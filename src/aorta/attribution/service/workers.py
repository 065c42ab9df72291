"""Reports of a cycle -> one answer, in a process beside the one that answers agents: neither a
large log nor a slow file system nor a crash is felt there.
"""

import asyncio
import json
import logging
import multiprocessing
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
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


def analyse(
    told: Reported, silent: frozenset[str], jail: PathJail, no_progress_limit: int
) -> dict[str, Any]:
    """Finding and decision of a cycle, as they are stored and sent. `silent` are paths that do not
    answer: who looks there does not return.
    """
    result = attribute(gather(told, silent, jail), no_progress_limit=no_progress_limit)
    decision = decision_document(result.decision)
    answering = filter(jail.is_allowed, paths_in(told.reports) - silent)
    linked = [path for path in answering if jail.leads_through_a_link(path)]
    for paths, why in (
        (silent, "did not answer: a mount may hang"),
        (linked, "lead through a link and were not read"),
    ):
        if paths:
            words = f"{len(paths)} of the files reported {why}"
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
_NICENESS = 10  # of a worker, beside the process that answers agents
_ANSWERS_WITHIN = 5.0  # seconds after which a path that does not answer is left out
_LOOKS_AT_ONCE = 256
_LOOK_AGAIN = 0.25  # seconds between two looks at a log's size
_STILL = 1.5  # seconds: the peer's log server writes once a second
_STILL_AT_MOST = 10.0
_context = multiprocessing.get_context("forkserver")
_logger = logging.getLogger(__name__)


class AnalysisLostError(Exception):
    """No answer came of it. The message is a sentence without a path."""


class Workers:
    """What looks at files for the service, each in a process of its own, forked from a server that
    has everything loaded: a mount that hangs holds up all that look there, and a thread that waits
    there would keep the service from ending. A few analyses run at once.
    """

    def __init__(self, jail: PathJail, no_progress_limit: int) -> None:
        self._jail, self._no_progress_limit = jail, no_progress_limit
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._left_behind: dict[str, BaseProcess] = {}  # place -> who waits there

    def start(self) -> None:
        """Have what every analysis needs loaded before the first, by a server that forks."""
        _context.set_forkserver_preload(["__main__", __name__])
        forkserver.ensure_running()

    async def analyse(self, told: Reported, silent: frozenset[str]) -> dict[str, Any]:
        """Raises AnalysisLostError where it takes too long, or is killed again and again."""
        arguments = (told, silent, self._jail, self._no_progress_limit)
        async with self._turns:
            for _ in range(_ATTEMPTS):
                with suppress(EOFError):
                    try:
                        async with _worker(analyse, *arguments) as (_process, receiver):
                            answer: dict[str, Any] = await _received(receiver, _LONGEST)
                            return answer
                    except TimeoutError:
                        message = f"the analysis took longer than {_LONGEST:.0f} s"
                        raise AnalysisLostError(message) from None
                _logger.warning("the process of an analysis died in the middle of it")
        raise AnalysisLostError("the analysis was killed")

    async def silent(self, paths: Iterable[str]) -> frozenset[str]:
        """Which of these paths do not answer in time. Where somebody still waits nobody else is
        sent.
        """
        asked = {path for path in paths if self._jail.is_allowed(path)}
        self._left_behind = {at: who for at, who in self._left_behind.items() if who.is_alive()}
        waited_for = {
            path for path in asked if any(map(Path(path).is_relative_to, self._left_behind))
        }
        asked -= waited_for
        if not asked:
            return frozenset(waited_for)
        async with _worker(_stuck, sorted(asked)) as (process, receiver):
            try:
                stuck = await _received(receiver, 2 * _ANSWERS_WITHIN)
            except (TimeoutError, EOFError):
                stuck = {path: path for path in asked}
        self._left_behind |= dict.fromkeys(stuck.values(), process)
        return frozenset(waited_for.union(stuck))

    async def written(self, path: str) -> None:
        """Return when a log has been still for a while, or after the longest wait."""
        with suppress(TimeoutError, EOFError):
            async with _worker(_wait_until_still, path) as (_process, receiver):
                await _received(receiver, _STILL_AT_MOST + 1)


@asynccontextmanager
async def _worker(
    work: Callable[..., object], *arguments: object
) -> AsyncIterator[tuple[BaseProcess, Connection]]:
    """A new process that does `work`, and where its result comes; killed at the end."""
    receiver, sender = _context.Pipe(duplex=False)
    process = _context.Process(target=_run, args=(sender, work, arguments), daemon=True)
    with receiver:
        with sender:
            await asyncio.to_thread(process.start)
        try:
            yield process, receiver
        finally:
            process.kill()


async def _received(connection: Connection, patience: float) -> Any:
    """What a worker sends. TimeoutError: not in time; EOFError: it died."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(connection.fileno(), ready.set)
    try:
        async with asyncio.timeout(patience):
            await ready.wait()
    finally:
        loop.remove_reader(connection.fileno())
    return connection.recv()


def _run(sender: Connection, work: Callable[..., object], arguments: tuple[object, ...]) -> None:
    """In the new process: leave Ctrl-C to the service, die with it, and stay behind it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(os.getppid())
    os.nice(_NICENESS)
    sender.send(work(*arguments))


def _stuck(paths: Sequence[str]) -> dict[str, str]:
    """Those of these paths that do not answer in time, each with where on the way it waits."""
    at: dict[str, str] = {}

    def look(path: str) -> None:
        for place in (*reversed(Path(path).parents), Path(path)):
            at[path] = str(place)
            place.exists()

    pool = ThreadPoolExecutor(min(len(paths), _LOOKS_AT_ONCE))
    looks = {pool.submit(look, path): path for path in paths}
    late = (looks[each] for each in wait(looks, _ANSWERS_WITHIN).not_done)
    return {path: at.get(path, path) for path in late}


def _wait_until_still(path: str) -> None:
    began = still_since = time.monotonic()
    size = -1
    while (now := time.monotonic()) - began < _STILL_AT_MOST:
        before, size = size, 0
        with suppress(OSError):
            size = Path(path).stat().st_size
        if size != before:
            still_since = now
        if size and now - still_since >= _STILL:
            return
        time.sleep(_LOOK_AGAIN)


# Whoever imports this, the server that forks included, has its patterns compiled (300 ms).
_RAISED = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nMemoryError\n'
attribute(Evidence(tails=(LogTail(_RAISED),)))
