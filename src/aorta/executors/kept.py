"""One executor for questions that are asked one after the other: to open one takes 50 ms of CPU on this machine, and seconds
on a cluster."""

from collections.abc import Callable, Sequence

from aorta.core.trial import Start, TrialEnd, TrialSpec
from aorta.executors import Executor, WarmExecutor

_COLD = frozenset({Start.COLD, Start.WATCHED})


class KeptOpen:
    """Opens an executor when one is wanted, and keeps it while nobody has it. Whoever makes this closes it."""

    def __init__(self, open_one: Callable[[], Executor]) -> None:
        self._open_one = open_one
        self._idle: Executor | None = None

    def open(self) -> "LentExecutor":
        idle, self._idle = self._idle, None
        return LentExecutor(idle if idle is not None else self._open_one(), self)

    def give_back(self, executor: Executor, *, idle: bool) -> None:
        """One that is not idle, or did not answer as it should, is closed."""
        if idle and self._idle is None:
            self._idle = executor
        else:
            executor.close()

    def close(self) -> None:
        if self._idle is not None:
            self._idle.close()
            self._idle = None


class LentExecutor:
    """Implements `Executor`: closed while it is idle, it serves the next question. One that started trials warm ends, and with
    it the memory of their hosts."""

    def __init__(self, inner: Executor, kept: KeptOpen) -> None:
        self.inner = inner
        self._kept = kept
        self._is_open = True
        self._unended: set[str] = set()  # also one whose start failed
        self._all_cold = True

    @property
    def slots(self) -> int:
        return self.inner.slots

    def start(self, trial: TrialSpec) -> None:
        self._unended.add(trial.id)
        self._all_cold = self._all_cold and trial.start in _COLD
        self.inner.start(trial)

    def keeps_warm(self, trial: TrialSpec) -> bool:
        return isinstance(self.inner, WarmExecutor) and self.inner.keeps_warm(trial)

    def wait(self, timeout: float | None = None) -> Sequence[TrialEnd]:
        ended = self.inner.wait(timeout)
        self._unended.difference_update(end.trial_id for end in ended)
        return ended

    def cancel(self, trial_id: str) -> None:
        self.inner.cancel(trial_id)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._kept.give_back(self.inner, idle=self._all_cold and not self._unended)
