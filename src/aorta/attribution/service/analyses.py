"""Many reports of one cycle -> one analysis -> one decision that every reader gets and nothing
changes.

An analysis starts when the reports are complete: all expected agents are heard, or, uncounted, none
came for a moment. What comes while it runs starts it once more before the decision is given; what
comes later is kept and changes nothing.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from sqlalchemy.exc import SQLAlchemyError

from aorta.attribution.service.store import CycleKey, Store
from aorta.attribution.service.workers import AnalysisLostError, CycleReport, Workers, paths_in

SETTLE = 0.15  # seconds without a further report
SETTLE_AT_MOST = 1.0
_REMEMBERED = 20_000
_ROUNDS = 3  # a decision is worth less than its delay: agents wait for it
_TRY_AGAIN = 1.0  # seconds until a store that refused is asked again
_TIDY = 3600.0  # seconds between two looks for jobs kept long enough
_DAY = 86_400.0
_logger = logging.getLogger(__name__)


class Metrics:
    """What is counted, in the names of the contracts. A registry of its own: two services in one
    process do not count together.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.triggers = Counter("aorta_triggers", "Reports received", registry=self._registry)
        self.analyses = Counter("aorta_analyses", "Analyses run", registry=self._registry)
        self.decisions = Counter(
            "aorta_decisions", "Decisions given", ["action"], registry=self._registry
        )
        self.seconds = Histogram(
            "aorta_analysis_seconds", "Time of one analysis", registry=self._registry
        )

    def text(self) -> bytes:
        return generate_latest(self._registry)


@dataclass
class _Cycle:
    """What is known about one cycle in memory; the store knows the rest."""

    answered: asyncio.Event = field(default_factory=asyncio.Event)
    answer: dict[str, Any] | None = None
    reports: int = 0  # that this process has kept
    agents: set[str] = field(default_factory=set)
    expected: int | None = None
    all_heard: asyncio.Event = field(default_factory=asyncio.Event)
    first_report: float = 0.0
    last_report: float = 0.0
    task: asyncio.Task[None] | None = None
    written: Callable[[], Awaitable[None]] | None = None  # returns when its logs are whole

    def hear(self, agent: str, expected: int | None) -> None:
        self.agents.add(agent)
        self.expected = expected or self.expected
        if self.expected is not None and len(self.agents) >= self.expected:
            self.all_heard.set()
        self.last_report = time.monotonic()
        self.first_report = self.first_report or self.last_report

    def decided(self, answer: dict[str, Any]) -> None:
        self.answer = answer
        self.answered.set()

    async def settled(self) -> None:
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

    def __init__(
        self,
        store: Store,
        workers: Workers,
        metrics: Metrics,
        keep_days: float = 0.0,
    ) -> None:
        self._store, self._workers, self._metrics = store, workers, metrics
        self._keep_days = keep_days
        self._tidying: asyncio.Task[None] | None = None
        self._cycles: dict[CycleKey, _Cycle] = {}

    async def start(self) -> None:
        """Take up what a predecessor left undecided."""
        self._workers.start()
        for key in await asyncio.wrap_future(self._store.undecided()):
            self._ensure_running(key, await self._cycle(key))
        if self._keep_days:
            self._tidying = asyncio.create_task(self._keep_tidy())

    async def close(self) -> None:
        running = (self._tidying, *(cycle.task for cycle in self._cycles.values()))
        tasks = [task for task in running if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def report(
        self, report: CycleReport, written: Callable[[], Awaitable[None]] | None = None
    ) -> tuple[bool, bool]:
        """Keep a report and see that its cycle is analysed. Returns (is decided, was known
        already).

        `written` is awaited before the first look at the logs, where a report may come before their
        last lines.
        """
        self._metrics.triggers.inc()
        key = CycleKey(report.job_id, report.cycle_id)
        body = report.model_dump_json(exclude_defaults=True)
        digest = hashlib.sha256(body.encode()).hexdigest()
        cycle = await self._cycle(key)
        is_new = await asyncio.wrap_future(self._store.add_report(key, digest, body))
        cycle.reports += is_new
        cycle.hear(report.agent, report.agents_expected)
        if cycle.answer is None:
            cycle.written = cycle.written or written
            self._ensure_running(key, cycle)
        return cycle.answer is not None, not is_new

    async def _keep_tidy(self) -> None:
        while True:
            with suppress(SQLAlchemyError):
                before = time.time() - self._keep_days * _DAY
                gone = await asyncio.wrap_future(self._store.forget_before(before))
                if gone:
                    self._forget_decided()
                    _logger.warning(
                        "%d jobs last heard of %g days ago are forgotten", gone, self._keep_days
                    )
            await asyncio.sleep(_TIDY)

    async def answer(self, key: CycleKey, wait: float = 0.0) -> dict[str, Any] | None:
        """The answer, the moment it is known; None when `wait` seconds were not enough.

        A cycle that nobody has reported yet is waited for like any other: a leader may ask before
        its agents report.
        """
        cycle = await self._cycle(key)
        if cycle.answer is None and wait:
            with suppress(TimeoutError):
                await asyncio.wait_for(cycle.answered.wait(), wait)
        return cycle.answer

    async def is_reported(self, key: CycleKey) -> bool:
        return await asyncio.wrap_future(self._store.cycle(key)) is not None

    async def _cycle(self, key: CycleKey) -> _Cycle:
        cycle = self._cycles.get(key)
        if cycle is None:
            row = await asyncio.wrap_future(self._store.cycle(key))
            cycle = self._cycles.setdefault(key, _Cycle())
            if row is not None and row.answer is not None and cycle.answer is None:
                cycle.decided(row.answer)
            self._forget_old()
        return cycle

    def _forget_decided(self) -> None:
        for key in [key for key, cycle in self._cycles.items() if cycle.answer is not None]:
            del self._cycles[key]

    def _forget_old(self) -> None:
        """Decided cycles can be read from the store again; unreported ones are only questions."""
        while len(self._cycles) > _REMEMBERED:
            idle = (key for key, cycle in self._cycles.items() if cycle.answer or not cycle.task)
            oldest = next(idle, None)
            if oldest is None:
                return
            del self._cycles[oldest]

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

    async def _last_analysis(self, key: CycleKey, cycle: _Cycle) -> dict[str, Any]:
        """The analysis during which no further report came, or that of the last round."""
        if cycle.written is not None:
            await cycle.written()
        for _ in range(_ROUNDS):
            await cycle.settled()
            read = cycle.reports
            answer = await self._analyse(key)
            if read == cycle.reports:
                break
        return answer

    async def _analyse(self, key: CycleKey) -> dict[str, Any]:
        told = await asyncio.wrap_future(self._store.reported(key))
        paths = await asyncio.to_thread(paths_in, told.reports)
        silent = await self._workers.silent(paths)
        self._metrics.analyses.inc()
        with self._metrics.seconds.time():
            try:
                return await self._workers.analyse(told, silent)
            except AnalysisLostError as lost:
                return _no_answer(str(lost))


def _no_answer(why: str) -> dict[str, Any]:
    decision = {
        "action": "UNKNOWN",
        "reason": f"{why}; restarting is the safe answer",
        "rule": "analysis_failed",
        "advice": [],
    }
    return {"finding": None, "decision": decision}
