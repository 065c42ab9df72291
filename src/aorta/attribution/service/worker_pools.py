"""Where analyses run: processes beside the one that answers, so that neither a large log nor a
crash is felt by agents.

A pool is one worker that does one analysis at a time. Two pools: everything begins in the quick
one, and what takes longer there than an ordinary failure ever does starts again in the patient one.
So one endless log delays nobody else's decision. The worker of the patient pool is started when
something comes there: that is seldom, and half a second is nothing to it.
"""

import asyncio
import logging
import multiprocessing
import os
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from aorta.attribution.jail import PathJail
from aorta.attribution.service import worker

_QUICK = 3.0  # seconds: a log of one gigabyte takes one
_PATIENT = 180.0
_ATTEMPTS = 2
_logger = logging.getLogger(__name__)


class AnalysisLostError(Exception):
    """No answer came of it. The message is a sentence without a path."""


class WorkerPools:
    def __init__(self, jail: PathJail, rules: worker.AnalysisRules) -> None:
        self._jail, self._rules = jail, rules
        self._pools = (_Pool(_QUICK), _Pool(_PATIENT))

    async def analyse(self, told: worker.StoredCycle) -> worker.Analysed:
        for pool in self._pools:
            for _ in range(_ATTEMPTS):
                try:
                    return await pool.run(told, self._jail, self._rules)
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
                initializer=worker.prepare,
                initargs=(os.getpid(),),
            )
            self._pid = self._pool.submit(os.getpid)
        return self._pool

    async def run(
        self, told: worker.StoredCycle, jail: PathJail, rules: worker.AnalysisRules
    ) -> worker.Analysed:
        async with self._turn:
            pool = self.start()
            try:
                # The clock starts when the worker is there.
                await asyncio.shield(asyncio.wrap_future(self._pid))
                work = asyncio.wrap_future(pool.submit(worker.analyse, told, jail, rules))
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
