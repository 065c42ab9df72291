"""Many reports of one cycle -> one analysis -> one decision that every reader gets and nothing changes.

An analysis starts when the reports have settled: all expected agents are heard, or none came for a moment. What comes while it
runs starts it once more before the decision is given; what comes later is kept and changes nothing.
"""

import asyncio
import hashlib
import json
import multiprocessing
import time
from collections import OrderedDict
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from aorta.attribution.documents import past_cycle
from aorta.attribution.jail import PathJail
from aorta.attribution.nouns import Evidence, LogTail, PastCycle, RankFailure
from aorta.attribution.service import worker
from aorta.attribution.service.metrics import Metrics
from aorta.attribution.service.models import CycleReport, FailureReport
from aorta.attribution.service.store import CycleKey, Report, Store
from aorta.attribution.sources import find_logs

SETTLE = 0.15  # seconds without a further report
SETTLE_AT_MOST = 1.0
_REMEMBERED = 20_000
_ATTEMPTS = 2
_WORKERS = 1  # analyses take milliseconds; a second one would take the time of the answers
_ROUNDS = 3  # a decision is worth less than its delay: agents wait for it
_NO_ANSWER: dict[str, Any] = {
    "finding": None,
    "decision": {
        "action": "UNKNOWN",
        "reason": "the analysis itself failed; restarting is the safe answer",
        "rule": "analysis_failed",
        "advice": [],
    },
}


@dataclass
class _Cycle:
    """What is known about one cycle in memory; the store knows the rest."""

    answered: asyncio.Event = field(default_factory=asyncio.Event)
    answer: dict[str, Any] | None = None
    digests: set[str] = field(default_factory=set)
    agents: set[str] = field(default_factory=set)
    expected: int | None = None
    first_report: float = 0.0
    last_report: float = 0.0
    task: asyncio.Task[None] | None = None

    @property
    def all_heard(self) -> bool:
        return self.expected is not None and len(self.agents) >= self.expected


class Analyses:
    def __init__(self, store: Store, jail: PathJail, metrics: Metrics, rules: worker.Rules) -> None:
        self._store, self._jail, self._metrics, self._rules = store, jail, metrics, rules
        self._pool = self._new_pool()
        # One at a time: a hundred cycles that settle together must not take the interpreter from the answers.
        self._gathering = asyncio.Lock()
        self._cycles: OrderedDict[CycleKey, _Cycle] = OrderedDict()
        self._unkept: list[tuple[Report, asyncio.Future[None]]] = []
        self._keeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take up what a predecessor left undecided, and have a worker ready before it is needed."""
        asyncio.get_running_loop().run_in_executor(self._pool, worker.prepare)
        for row in await asyncio.wrap_future(self._store.undecided()):
            cycle = self._cycles.setdefault(row.key, _Cycle())
            self._ensure_running(row.key, cycle)

    async def close(self) -> None:
        tasks = [cycle.task for cycle in self._cycles.values() if cycle.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def report(self, report: CycleReport) -> tuple[bool, bool]:
        """Keep a report and see that its cycle is analysed. Returns (is decided, was known already)."""
        self._metrics.triggers.inc()
        key = CycleKey(report.job_id, report.cycle_id)
        body = report.model_dump(mode="json", exclude_defaults=True)
        digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        cycle = await self._cycle(key)
        duplicate = digest in cycle.digests
        if not duplicate:
            await self._keep(Report(key, digest, body))
            cycle.digests.add(digest)
        cycle.agents.add(report.agent)
        cycle.expected = report.agents_expected or cycle.expected
        now = time.monotonic()
        cycle.first_report, cycle.last_report = cycle.first_report or now, now
        if cycle.answer is None:
            self._ensure_running(key, cycle)
        return cycle.answer is not None, duplicate

    async def _keep(self, report: Report) -> None:
        """Return when the report is committed. What comes while a commit runs goes into the next one together."""
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unkept.append((report, kept))
        if self._keeping is None or self._keeping.done():
            self._keeping = asyncio.create_task(self._keep_all())
        await kept

    async def _keep_all(self) -> None:
        while self._unkept:
            batch, self._unkept = self._unkept, []
            try:
                await asyncio.wrap_future(self._store.add_reports([report for report, _ in batch]))
            except SQLAlchemyError as wrong:
                for _, kept in batch:
                    kept.set_exception(wrong)
            else:
                for _, kept in batch:
                    kept.set_result(None)

    async def answer(self, key: CycleKey, wait: float = 0.0) -> dict[str, Any] | None:
        """The answer, the moment it is known; None when `wait` seconds were not enough.

        A cycle that nobody has reported yet is waited for like any other: a leader may ask before its agents tell.
        """
        cycle = await self._cycle(key)
        if cycle.answer is None and wait > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(cycle.answered.wait(), wait)
        return cycle.answer

    async def is_reported(self, key: CycleKey) -> bool:
        return await asyncio.wrap_future(self._store.cycle(key)) is not None

    async def _cycle(self, key: CycleKey) -> _Cycle:
        cycle = self._cycles.get(key)
        if cycle is None:
            row = await asyncio.wrap_future(self._store.cycle(key))
            known = await asyncio.wrap_future(self._store.digests(key)) if row else set()
            cycle = self._cycles.setdefault(key, _Cycle())
            cycle.digests |= known
            if row is not None and row.answer is not None and cycle.answer is None:
                self._settle(cycle, row.answer)
            self._forget_old()
        self._cycles.move_to_end(key)
        return cycle

    def _forget_old(self) -> None:
        """Decided cycles can be read from the store again; those nobody reported are only questions."""
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
        read = -1
        answer = _NO_ANSWER
        for _ in range(_ROUNDS):
            if read == len(cycle.digests):
                break
            await self._settled(cycle)
            read = len(cycle.digests)
            answer = await self._analyse(key)
        self._settle(cycle, await asyncio.wrap_future(self._store.decide(key, answer)))
        action = (cycle.answer or answer)["decision"]["action"]
        self._metrics.decisions.labels(action=action).inc()

    def _settle(self, cycle: _Cycle, answer: dict[str, Any]) -> None:
        cycle.answer = answer
        cycle.answered.set()

    async def _settled(self, cycle: _Cycle) -> None:
        while not cycle.all_heard:
            now = time.monotonic()
            quiet_at = cycle.last_report + SETTLE
            wake = min(quiet_at, cycle.first_report + SETTLE_AT_MOST)
            if wake <= now:
                return
            await asyncio.sleep(min(wake - now, SETTLE / 3))

    async def _analyse(self, key: CycleKey) -> dict[str, Any]:
        async with self._gathering:
            evidence = await self._evidence(key)
        loop = asyncio.get_running_loop()
        for _ in range(_ATTEMPTS):
            self._metrics.analyses.inc()
            with self._metrics.seconds.time():
                try:
                    work = loop.run_in_executor(self._pool, worker.analyse, evidence, self._rules)
                    return dict(await work)
                except BrokenProcessPool:  # the worker was killed: its log may be to blame
                    self._pool = self._new_pool()
        return _NO_ANSWER

    async def _evidence(self, key: CycleKey) -> Evidence:
        bodies = await asyncio.wrap_future(self._store.reports(key))
        history = await self._history(key)
        return await asyncio.to_thread(self._gathered, bodies, history)

    def _gathered(self, bodies: list[dict[str, Any]], history: tuple[PastCycle, ...]) -> Evidence:
        """All reports as one. Paths are held against the jail again: files change between two looks."""
        reports = [CycleReport.model_validate(body) for body in bodies]
        failures = {f.rank: self._failure(f) for r in reports for f in r.failures}
        nodes: dict[int | None, str | None] = {
            rank: failure.node for rank, failure in failures.items()
        }
        paths = sorted({path for r in reports for path in r.log_paths})
        real = [self._jail.admit(path) for path in paths if self._jail.allows(path)]
        logs = find_logs([path for path in real if path.exists()])
        at_hand = {log.rank for log in logs if log.rank is not None}
        tails = [
            LogTail(tail.text, tail.rank, nodes.get(tail.rank), f"tail from {r.agent}")
            for r in reports
            for tail in r.tails
            if tail.rank not in at_hand  # the log itself says more than its end
        ]
        placed = tuple(
            replace(log, node=nodes.get(log.rank)) if log.rank in nodes else log for log in logs
        )
        return Evidence(placed, tuple(tails), tuple(failures.values()), history=history)

    def _failure(self, report: FailureReport) -> RankFailure:
        failure, error_file = report.as_failure(), report.error_file
        if error_file and self._jail.allows(error_file):
            return replace(failure, error_file=self._jail.admit(error_file))
        return failure

    async def _history(self, key: CycleKey) -> tuple[PastCycle, ...]:
        rows = await asyncio.wrap_future(self._store.cycles_of(key.job_id))
        own = next((row.created for row in rows if row.key == key), time.time())
        findings = [
            (row.key.cycle_id, row.answer.get("finding"))
            for row in rows
            if row.answer is not None and row.key != key and row.created <= own
        ]
        read = (past_cycle(finding, name) for name, finding in findings if finding)
        return tuple(cycle for cycle in read if cycle is not None)

    def _new_pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            _WORKERS,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=worker.prepare,
        )
