"""Calls to torch's store that always end: each has a deadline, and no thread that hears signals
waits in C++.

What the agents of a job agree on is in `store.py`; this module knows nothing of jobs.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

from torch.distributed import (  # type: ignore[attr-defined]
    DistError,
    DistNetworkError,
    DistStoreError,
    PrefixStore,
    Store,
)

from aorta.core.errors import InfrastructureError

log = logging.getLogger(__name__)

T = TypeVar("T")

_NEVER = timedelta(days=20)  # the longest that the store takes

_FIRST_LOOK, _LAST_LOOK = 0.01, 0.25  # seconds, for a key that another agent will write
_ASK_WHETHER_HOPELESS = 1.0


class StoreLostError(InfrastructureError):
    """The process that hosts the rendezvous store is gone or silent."""

    kind = "store_lost"


class StorePatience:
    """How long the store may be silent before that is said, and given up. Shared by all."""

    def __init__(self, endpoint: str, say_after: float, give_up_after: float) -> None:
        self._endpoint = endpoint
        self.say_after = min(say_after, give_up_after)
        self.give_up_after = give_up_after
        self._said = False

    def say_silent(self) -> None:
        if not self._said:
            self._said = True
            log.warning(
                "the rendezvous store at %s has not answered for %g s; its host may be frozen or "
                "cut off. "
                "The workers here go on; they are stopped if it stays silent for %g s",
                self._endpoint,
                self.say_after,
                self.give_up_after,
            )

    def say_answered(self) -> None:
        if self._said:
            self._said = False
            log.warning("the rendezvous store at %s answers again", self._endpoint)


class StoreCalls:
    """Makes the calls of one connection in a thread of its own, so that who waits hears signals and
    can give up.

    A call to a store blocks in C++: a frozen host would hold it, and with it every signal, for a
    quarter of an hour.
    """

    def __init__(self, patience: StorePatience) -> None:
        self._patience = patience
        self._waiting: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = (
            queue.SimpleQueue()
        )
        self._is_lost = False
        threading.Thread(target=self._serve, name="aorta-store", daemon=True).start()

    def make(self, call: Callable[[], T]) -> T:
        if self._is_lost:
            raise DistNetworkError("the store was given up")
        future: Future[T] = Future()
        self._waiting.put((future, call))
        if not _is_done_within(future, self._patience.say_after):
            self._patience.say_silent()
            rest = self._patience.give_up_after - self._patience.say_after
            if not _is_done_within(future, rest):
                self._is_lost = True
                raise DistNetworkError(
                    f"the store was silent for {self._patience.give_up_after:g} s"
                )
        self._patience.say_answered()
        return future.result()

    def _serve(self) -> None:
        while True:
            future, call = self._waiting.get()
            try:
                future.set_result(call())
            # It is raised again where the answer is awaited.
            except BaseException as wrong:  # noqa: BLE001
                future.set_exception(wrong)


def _is_done_within(future: Future[Any], seconds: float) -> bool:
    try:
        future.exception(seconds)
    except TimeoutError:
        return future.done()
    return True


class DeadlineStore:
    """As much of torch's `Store` as is used here, through `StoreCalls`."""

    def __init__(self, store: Store, calls: StoreCalls) -> None:
        self.torch_store: Any = store  # the type stubs do not know all that every store has
        self.calls = calls

    def get(self, key: str) -> bytes:
        return self.calls.make(lambda: bytes(self.torch_store.get(key)))

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return self.calls.make(lambda: list(self.torch_store.multi_get(keys)))

    def set(self, key: str, value: Any) -> None:
        self.calls.make(lambda: self.torch_store.set(key, value))

    def multi_set(self, keys: list[str], values: list[Any]) -> None:
        self.calls.make(lambda: self.torch_store.multi_set(keys, values))

    def append(self, key: str, value: str) -> None:
        self.calls.make(lambda: self.torch_store.append(key, value))

    def add(self, key: str, amount: int) -> int:
        return self.calls.make(lambda: int(self.torch_store.add(key, amount)))

    def check(self, keys: list[str]) -> bool:
        return self.calls.make(lambda: bool(self.torch_store.check(keys)))

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        return self.calls.make(lambda: bytes(self.torch_store.compare_set(key, expected, desired)))


class RoundStore(DeadlineStore):
    """What the agents of one round share. A key that only a lost node would write is given up."""

    def __init__(self, store: DeadlineStore, prefix: str, is_hopeless: Callable[[], bool]) -> None:
        super().__init__(PrefixStore(prefix, store.torch_store), store.calls)
        self._is_hopeless = is_hopeless
        self._next_question = time.monotonic() + _ASK_WHETHER_HOPELESS

    def get(self, key: str) -> bytes:
        self._wait_for([key])
        return super().get(key)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        self._wait_for(keys)
        return super().multi_get(keys)

    def _wait_for(self, keys: list[str]) -> None:
        pause = _FIRST_LOOK
        while not self.check(keys):
            if time.monotonic() >= self._next_question:
                self._next_question = time.monotonic() + _ASK_WHETHER_HOPELESS
                if self._is_hopeless():
                    raise DistStoreError("a node of this round was lost")
            time.sleep(pause)
            pause = min(pause * 1.5, _LAST_LOOK)


class KeyWatch:
    """One blocking wait for a key, on a connection of its own."""

    def __init__(self, connect: Callable[[], Store]) -> None:
        self._connect = connect
        self._idle: queue.SimpleQueue[Store] = queue.SimpleQueue()
        self._key = ""
        self._answer: Future[None] = Future()

    def expect(self, key: str) -> None:
        """Wait for `key` from now on. A wait without an answer is left behind."""
        if key != self._key:
            self._key, self._answer = key, Future()
            threading.Thread(
                target=self._wait_in_store,
                args=(key, self._answer),
                name="aorta-watch",
                daemon=True,
            ).start()

    def has_arrived(self, timeout: float = 0.0) -> bool:
        """Whether the key is there, waiting up to `timeout` s. Signals are heard meanwhile."""
        if timeout > 0:
            _is_done_within(self._answer, timeout)
        if not self._answer.done():
            return False
        if self._answer.exception() is not None:
            raise StoreLostError(_DOES_NOT_ANSWER)
        return True

    def _wait_in_store(self, key: str, answer: "Future[None]") -> None:
        try:
            try:
                store = self._idle.get_nowait()
            except queue.Empty:
                store = self._connect()
            store.wait([key], _NEVER)
        except DistError as lost:
            answer.set_exception(lost)
        else:
            self._idle.put(store)
            answer.set_result(None)


_DOES_NOT_ANSWER = "the rendezvous store does not answer; the agent that hosts it has probably died"


@contextmanager
def store_answers() -> Iterator[None]:
    try:
        yield
    except DistError as lost:
        raise StoreLostError(_DOES_NOT_ANSWER) from lost
