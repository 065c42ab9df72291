"""Sources that need no service: attribution in this process, or in an MCP server started by it.

They run on the leader, over what all agents left on the board. On a job of one agent the leader is known beforehand, so
the analysis starts with the trigger and overlaps the rendezvous.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future

from aorta.launch.records import Verdict
from aorta.launch.sources import FailedCycle

Analyse = Callable[[FailedCycle], Verdict]


class LocalSource:
    def __init__(self, name: str, analyse: Analyse) -> None:
        self._name = name
        self._analyse = analyse
        self._begun: dict[str, Future[Verdict]] = {}
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self._name

    def trigger(self, failed: FailedCycle) -> None:
        if len(failed.start.nodes) == 1:
            self._run_once(failed)

    def read(self, failed: FailedCycle, decide_within: float) -> Verdict | None:
        del (
            decide_within
        )  # the panel keeps the time; an analysis in this process cannot be cut short
        return self._run_once(failed)

    def _run_once(self, failed: FailedCycle) -> Verdict:
        """One analysis per cycle, whoever asks first; the others wait for it."""
        with self._lock:
            mine = failed.start.cycle_id not in self._begun
            if mine:  # nobody asks about earlier cycles again
                self._begun = {failed.start.cycle_id: Future()}
            future = self._begun[failed.start.cycle_id]
        if mine:
            try:
                future.set_result(self._analyse(failed))
            except BaseException as wrong:
                future.set_exception(wrong)
                raise
        return future.result()
