"""Many reports of one cycle -> one analysis -> one decision that every reader gets.

It starts when all expected agents have reported, or, uncounted, none came for a moment. A report
that comes while it runs starts it once more; a later one changes nothing. It runs in a process of
its own, so that no large log, hanging mount or crash is felt by agents.
"""

import asyncio
import hashlib
import json
import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import Annotated, Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from pydantic import BeforeValidator, Field
from sqlalchemy.exc import SQLAlchemyError

from aorta.attribution import attribute
from aorta.attribution.documents import (
    WHOLE,
    Action,
    Advice,
    Decision,
    Evidence,
    LogPath,
    LogSource,
    LogTail,
    Rank,
    RankEnd,
    attribution_document,
    past_cycle,
)
from aorta.attribution.evidence import find_logs
from aorta.attribution.server import PathJail, PathRefusedError
from aorta.attribution.service.store import Answer, CycleKey, Reported, Store
from aorta.core.documents import StrictModel
from aorta.core.errors import UsageError
from aorta.executors.process_tree import die_with_parent

_logger = logging.getLogger(__name__)

# ---- what is reported

Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][!-.0-~]{0,199}$")]


def _moment(value: object) -> datetime:
    """Raises ValueError: as cycle_info.json writes it, or not at all."""
    moment = datetime.fromisoformat(value.upper()) if isinstance(value, str) else None
    if moment is None or moment.tzinfo is None:
        raise ValueError("neither seconds since the epoch nor ISO 8601 with an offset from UTC")
    return moment


_Seconds = Annotated[float, Field(ge=0, le=1e12)]  # since the epoch
_Moment = _Seconds | Annotated[datetime, BeforeValidator(_moment)]


class TailReport(StrictModel):
    rank: Rank | None = None
    text: Annotated[str, Field(max_length=4 << 20)]


class CycleReport(StrictModel):
    """What one agent knows about a failed cycle."""

    job_id: Id
    cycle_id: Id
    agent: Annotated[str, Field(min_length=1, max_length=200)]
    log_paths: list[LogPath] = Field(default=[], max_length=4096)
    tails: list[TailReport] = Field(default=[], max_length=4096)
    failures: list[RankEnd] = Field(default=[], max_length=8192)
    agents_expected: Annotated[int, Field(ge=1, le=1_000_000), WHOLE] | None = None
    # How long the cycle lived: told outright, or by when it began and ended.
    lived_sec: Annotated[float, Field(ge=0, le=1e10)] | None = None
    started: _Moment | None = None
    ended: _Moment | None = None
    # Beyond this a JSON number is not exact, and a description would promise what is refused.
    heartbeat_step: Annotated[int, Field(ge=0, le=1 << 53), WHOLE] | None = None

    @property
    def lifetime(self) -> float | None:
        """Seconds; None where the agent did not say."""
        if self.lived_sec is not None or self.started is None or self.ended is None:
            return self.lived_sec
        began, ended = (
            each.timestamp() if isinstance(each, datetime) else each
            for each in (self.started, self.ended)
        )
        return max(0.0, ended - began)


# ---- in the process of an analysis

_NICENESS = 10  # beside the process that answers agents
_ANSWERS_WITHIN = 5.0  # seconds after which a path that does not answer is left out
_LOOKS_AT_ONCE = 256


def analyse(recorded: Reported, jail: PathJail, no_progress_limit: int) -> Answer:
    """Finding and decision of a cycle."""
    reports = [CycleReport.model_validate_json(body) for body in recorded.reports]
    paths = {path for report in reports for path in report.log_paths}
    error_files = {end.error_file for report in reports for end in report.failures}
    silent = _silent(paths | {path for path in error_files if path})
    evidence = _gather(reports, recorded, silent, jail)
    result = attribute(evidence, no_progress_limit=no_progress_limit)
    if silent:
        words = f"{len(silent)} of the files reported did not answer: a mount may hang"
        advice = (*result.decision.advice, Advice("storage", words))
        result = replace(result, decision=replace(result.decision, advice=advice))
    return attribution_document(result)


def _silent(paths: Iterable[str]) -> set[str]:
    """Which of these paths do not answer in time; who looks there waits until this process ends."""
    pool = ThreadPoolExecutor(_LOOKS_AT_ONCE)
    looks = {pool.submit(os.path.exists, path): path for path in paths}
    return {looks[late] for late in wait(looks, _ANSWERS_WITHIN).not_done}


def _gather(
    reports: Sequence[CycleReport], recorded: Reported, silent: set[str], jail: PathJail
) -> Evidence:
    failures = {
        failure.rank: replace(_failure(failure, silent, jail), agent=report.agent)
        for report in reports
        for failure in report.failures
    }
    nodes: dict[int | None, str | None] = {rank: end.node for rank, end in failures.items()}
    paths = {path for report in reports for path in report.log_paths}
    logs = [log for path in sorted(paths - silent) for log in _logs(path, jail)]
    at_hand = {log.rank for log in logs} - {None}  # the log itself says more than its end
    findings = ((name, json.loads(answer).get("finding")) for name, answer in recorded.earlier)
    history = (past_cycle(finding, name) for name, finding in findings if finding)
    steps = [r.heartbeat_step for r in reports if r.heartbeat_step is not None]
    lives = [report.lifetime for report in reports if report.lifetime is not None]
    return Evidence(
        logs=tuple(replace(log, node=nodes.get(log.rank)) for log in logs),
        tails=tuple(
            LogTail(tail.text, tail.rank, nodes.get(tail.rank), f"tail from {report.agent}")
            for report in reports
            for tail in report.tails
            if tail.rank not in at_hand
        ),
        failures=tuple(failures.values()),
        history=tuple(cycle for cycle in history if cycle is not None),
        heartbeat_step=max(steps, default=None),
        lived_sec=max(lives, default=None),
        follow_links=False,
    )


def _failure(end: RankEnd, silent: set[str], jail: PathJail) -> RankEnd:
    """Without its error file where that may not be read, or does not answer."""
    if end.error_file and end.error_file not in silent:
        with suppress(PathRefusedError):
            return replace(end, error_file=str(jail.admit(end.error_file)))
    return replace(end, error_file=None)


def _logs(path: str, jail: PathJail) -> Sequence[LogSource]:
    """What is there of a path, if it may be read. An empty or missing one is no error."""
    try:
        return find_logs([jail.admit(path)])
    except (UsageError, OSError):
        return ()


# ---- who runs them

_LONGEST = 180.0  # seconds
_ATTEMPTS = 2
_AT_ONCE = 8
_context = multiprocessing.get_context("forkserver")


class Workers:
    """Runs analyses, each in a process forked from a server that has everything loaded."""

    def __init__(self, jail: PathJail, no_progress_limit: int) -> None:
        self._jail, self._no_progress_limit = jail, no_progress_limit
        self._turns = asyncio.Semaphore(_AT_ONCE)

    def start(self) -> None:
        """Have what every analysis needs loaded before the first, by a server that forks."""
        _context.set_forkserver_preload(["__main__", __name__])
        forkserver.ensure_running()

    async def analyse(self, recorded: Reported) -> Answer:
        """UNKNOWN where it takes too long, or is killed again and again."""
        async with self._turns:
            for _ in range(_ATTEMPTS):
                try:
                    return await self._in_a_process(recorded)
                except TimeoutError:
                    return _no_answer(f"the analysis took longer than {_LONGEST:.0f} s")
                except EOFError:
                    _logger.warning("the process of an analysis died in the middle of it")
        return _no_answer("the analysis was killed")

    async def _in_a_process(self, recorded: Reported) -> Answer:
        """TimeoutError: it is not done in time; EOFError: it died."""
        receiver, sender = _context.Pipe(duplex=False)
        arguments = (sender, recorded, self._jail, self._no_progress_limit)
        process = _context.Process(target=_run, args=arguments, daemon=True)
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        with receiver:
            with sender:
                await asyncio.to_thread(process.start)
            loop.add_reader(receiver.fileno(), ready.set)
            try:
                await asyncio.wait_for(ready.wait(), _LONGEST)
                return dict(receiver.recv())
            finally:
                loop.remove_reader(receiver.fileno())
                process.kill()


def _run(sender: Connection, *arguments: Any) -> None:
    """In the new process: leave Ctrl-C to the service, die with it, and stay behind it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(os.getppid())
    os.nice(_NICENESS)
    sender.send(analyse(*arguments))


def _no_answer(why: str) -> Answer:
    reason = f"{why}; restarting is the safe answer"
    decision = Decision(Action.UNKNOWN, reason, "analysis_failed")
    return {"finding": None, "decision": asdict(decision)}


# ---- one decision a cycle

SETTLE = 0.15  # seconds without a further report
SETTLE_AT_MOST = 1.0
_LAST_LINES = 3.0  # seconds: the peer's log server writes once a second
_REMEMBERED = 20_000
_ROUNDS = 3  # a decision is worth less than its delay: agents wait for it
_TRY_AGAIN = 1.0  # seconds until a store that refused is asked again


class Metrics:
    """What is counted, in the names of the contracts, of this service alone."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.triggers = Counter("aorta_triggers", "Reports received", registry=self.registry)
        self.analyses = Counter("aorta_analyses", "Analyses run", registry=self.registry)
        self.decisions = Counter(
            "aorta_decisions", "Decisions given", ["action"], registry=self.registry
        )
        self.seconds = Histogram(
            "aorta_analysis_seconds", "Time of one analysis", registry=self.registry
        )


@dataclass
class _Cycle:
    """What is known about one cycle in memory; the store knows the rest."""

    answered: asyncio.Event = field(default_factory=asyncio.Event)
    answer: Answer | None = None
    reports: int = 0  # that this process has kept
    agents: set[str] = field(default_factory=set)
    expected: int | None = None
    all_heard: asyncio.Event = field(default_factory=asyncio.Event)
    first_report: float = 0.0
    last_report: float = 0.0
    task: asyncio.Task[None] | None = None
    growing: bool = False  # its logs may still be written

    def hear(self, agent: str, expected: int | None) -> None:
        self.agents.add(agent)
        self.expected = expected or self.expected
        if self.expected is not None and len(self.agents) >= self.expected:
            self.all_heard.set()
        self.last_report = time.monotonic()
        self.first_report = self.first_report or self.last_report

    def decided(self, answer: Answer) -> None:
        self.answer = answer
        self.answered.set()

    async def all_reported(self) -> None:
        """Returns when all agents reported; uncounted, also when none came for a moment."""
        while not self.all_heard.is_set():
            wake = self.first_report + SETTLE_AT_MOST
            if self.expected is None:
                wake = min(wake, self.last_report + SETTLE)
            left = wake - time.monotonic()
            if left <= 0:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self.all_heard.wait(), left)


class Analyses:
    """The cycles that are reported to this service. Belongs to the event loop."""

    def __init__(self, store: Store, workers: Workers, metrics: Metrics) -> None:
        self._store, self._workers, self._metrics = store, workers, metrics
        self._cycles: dict[CycleKey, _Cycle] = {}

    async def start(self) -> None:
        """Take up what a predecessor left undecided."""
        self._workers.start()
        for key in await asyncio.wrap_future(self._store.undecided()):
            self._ensure_running(key, await self._cycle(key))

    async def close(self) -> None:
        tasks = [cycle.task for cycle in self._cycles.values() if cycle.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def report(self, report: CycleReport, growing: bool = False) -> tuple[bool, bool]:
        """Keep a report and see to its cycle. Returns whether it is decided, and was known."""
        self._metrics.triggers.inc()
        key = CycleKey(report.job_id, report.cycle_id)
        body = report.model_dump_json(exclude_defaults=True)
        digest = hashlib.sha256(body.encode()).hexdigest()
        cycle = await self._cycle(key)
        is_new = await asyncio.wrap_future(self._store.add_report(key, digest, body))
        cycle.reports += is_new
        cycle.hear(report.agent, report.agents_expected)
        if cycle.answer is None:
            cycle.growing |= growing
            self._ensure_running(key, cycle)
        return cycle.answer is not None, not is_new

    async def answer(self, key: CycleKey, wait: float = 0.0) -> Answer | None:
        """The answer, the moment it is known, reported already or not; None: not in time."""
        cycle = await self._cycle(key)
        if cycle.answer is None and wait:
            with suppress(TimeoutError):
                await asyncio.wait_for(cycle.answered.wait(), wait)
        return cycle.answer

    async def _cycle(self, key: CycleKey) -> _Cycle:
        cycle = self._cycles.get(key)
        if cycle is None:
            known = await asyncio.wrap_future(self._store.answer(key))
            if len(self._cycles) > _REMEMBERED:  # the decided ones can be read again
                being_decided = (k for k, c in self._cycles.items() if c.task and not c.answer)
                self._cycles = {key: self._cycles[key] for key in being_decided}
            cycle = self._cycles.setdefault(key, _Cycle())
            if known is not None and cycle.answer is None:
                cycle.decided(known)
        return cycle

    def _ensure_running(self, key: CycleKey, cycle: _Cycle) -> None:
        if cycle.task is None:
            cycle.task = asyncio.create_task(self._decide(key, cycle))

    async def _decide(self, key: CycleKey, cycle: _Cycle) -> None:
        """Nobody gets an uncommitted answer: a store that refuses is retried until it takes it."""
        while cycle.answer is None:
            try:
                answer = await self._last_analysis(key, cycle)
                cycle.decided(await asyncio.wrap_future(self._store.decide(key, answer)))
            except SQLAlchemyError as wrong:
                _logger.warning("the store refuses a decision (%s)", type(wrong).__name__)
                await asyncio.sleep(_TRY_AGAIN)
        self._metrics.decisions.labels(action=cycle.answer["decision"]["action"]).inc()

    async def _last_analysis(self, key: CycleKey, cycle: _Cycle) -> Answer:
        """The analysis during which no further report came, or that of the last round."""
        for _ in range(_ROUNDS):
            await cycle.all_reported()
            if cycle.growing:
                await asyncio.sleep(_LAST_LINES)
            read = cycle.reports
            recorded = await asyncio.wrap_future(self._store.reported(key))
            self._metrics.analyses.inc()
            with self._metrics.seconds.time():
                answer = await self._workers.analyse(recorded)
            if read == cycle.reports:
                break
        return answer


# Whoever imports this, the server that forks included, has its patterns compiled (300 ms).
_RAISED = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nMemoryError\n'
attribute(Evidence(tails=(LogTail(_RAISED),)))
