"""What the agents of a job agreed on, in the rendezvous store; and calls to that store that always end.

Every fact is written once: by compare-and-set where several agents might write it, or under a key that only one agent
owns. Keys, below one prefix per job:

    incarnation             of this submission; the first writer wins
    round/<r>               the outcome of rendezvous round r: a start or the ending
    round/<r>/leader        where the process of that round's leader listens while it lives
    ending                  why the job ended; the first writer wins
    left                    how many agents have read the ending
    cycle/<n>/failed        the first agent that saw cycle n fail, and what it saw
    cycle/<n>/over          that cycle n is over, for whatever reason: every agent waits for this key
    cycle/<n>/evidence/<g>  what the agent of group rank g knows about the failure, or how its ranks ended
    cycle/<n>/done          how many agents finished cycle n with success
    cycle/<n>/dumped        how many agents have the dumps of their hanging ranks
    cycle/<n>/quiet/<g>     for how long the ranks of g have been silent
"""

import json
import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Protocol, TypeVar, cast

from torch.distributed import DistError, DistNetworkError, PrefixStore, Store  # type: ignore[attr-defined]

from aorta.core.errors import InfrastructureError
from aorta.launch.records import (
    CycleEvidence,
    CycleStart,
    JobEnding,
    decode_ending,
    decode_evidence,
    decode_start,
    encode,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

_ENDING = "ending"
_LEFT = "left"
_NEVER = timedelta(days=20)  # the longest that the store takes

_FIRST_WAIT = 0.005  # seconds, of an agent whose write of the shared state came too late
_MOST_DOUBLINGS = 7  # of it: .64 s at most


class StoreLostError(InfrastructureError):
    """The process that hosts the rendezvous store is gone or silent, and every agreement with it."""

    kind = "store_lost"


class _Multi(Protocol):
    """Every store; the type stubs do not know it yet."""

    def multi_set(self, keys: list[str], values: list[Any]) -> None: ...

    def append(self, key: str, value: str) -> None: ...


class StorePatience:
    """How long the store may be silent: then it is said, and later given up. Shared by all connections to it."""

    def __init__(self, endpoint: str, say_after: float, give_up_after: float) -> None:
        self._endpoint = endpoint
        self.say_after = min(say_after, give_up_after)
        self.give_up_after = give_up_after
        self._said = False

    def say_silent(self) -> None:
        if not self._said:
            self._said = True
            log.warning(
                "the rendezvous store at %s has not answered for %g s; its host may be frozen or cut off. "
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
    """Makes the calls of one connection in a thread of its own, so that who waits hears signals and can give up.

    A call to a store blocks in C++: a frozen host would hold it, and with it every signal, for a quarter of an hour.
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
            except BaseException as wrong:  # noqa: BLE001 - it is raised again where the answer is awaited
                future.set_exception(wrong)


def _is_done_within(future: Future[Any], seconds: float) -> bool:
    try:
        future.exception(seconds)
    except TimeoutError:
        return future.done()
    return True


class DeadlineStore:
    """As much of torch's `Store` as torch elastic uses, through `StoreCalls`."""

    def __init__(self, store: Store, calls: StoreCalls) -> None:
        self.torch_store = store
        self.calls = calls
        self._too_late = 0  # how often in a row

    def prefixed(self, prefix: str) -> "DeadlineStore":
        return DeadlineStore(PrefixStore(prefix, self.torch_store), self.calls)

    def get(self, key: str) -> bytes:
        return self.calls.make(lambda: self.torch_store.get(key))

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return self.calls.make(lambda: self.torch_store.multi_get(keys))

    def set(self, key: str, value: Any) -> None:
        self.calls.make(lambda: self.torch_store.set(key, value))

    def multi_set(self, keys: list[str], values: list[Any]) -> None:
        store = cast("_Multi", self.torch_store)
        self.calls.make(lambda: store.multi_set(keys, values))

    def append(self, key: str, value: str) -> None:
        store = cast("_Multi", self.torch_store)
        self.calls.make(lambda: store.append(key, value))

    def add(self, key: str, amount: int) -> int:
        return self.calls.make(lambda: self.torch_store.add(key, amount))

    def check(self, keys: list[str]) -> bool:
        return self.calls.make(lambda: self.torch_store.check(keys))

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        """Who comes too late waits a while and looks again: else the next attempt of everybody comes too late as well."""
        stands = self.calls.make(lambda: self.torch_store.compare_set(key, expected, desired))
        if stands in (desired.encode(), expected.encode()):
            self._too_late = 0
            return stands
        self._too_late = min(self._too_late + 1, _MOST_DOUBLINGS)
        time.sleep(random.random() * _FIRST_WAIT * 2**self._too_late)
        return self.get(key)

    def delete_key(self, key: str) -> bool:
        return self.calls.make(lambda: self.torch_store.delete_key(key))

    def list_keys(self) -> list[str]:
        """Nothing before torch 2.8, which cannot tell; what torch's workers write there names their attempt."""
        if not hasattr(self.torch_store, "list_keys"):
            return []
        return self.calls.make(self.torch_store.list_keys)


class KeyWatch:
    """One blocking wait for a key, on a connection of its own: no request is made until the key is there."""

    def __init__(self, connect: Callable[[], Store]) -> None:
        self._connect = connect
        self._idle: queue.SimpleQueue[Store] = queue.SimpleQueue()
        self._key = ""
        self._answer: Future[None] = Future()

    def expect(self, key: str) -> None:
        """Wait for `key` from now on. A wait that is never answered is left behind with its connection."""
        if key != self._key:
            self._key, self._answer = key, Future()
            threading.Thread(
                target=self._wait_in_store,
                args=(key, self._answer),
                name="aorta-watch",
                daemon=True,
            ).start()

    def has_arrived(self, timeout: float = 0.0) -> bool:
        """Whether the key is there, waiting for it up to `timeout` seconds. Signals are heard meanwhile."""
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


class JobStore:
    """The agreements of one job. It has connections of its own: a wait must not hold up keep-alive heartbeats."""

    def __init__(
        self, connect_to_store: Callable[[], Store], run_id: str, patience: StorePatience
    ) -> None:
        prefix = f"aorta/launch/{run_id}"

        def connect() -> Store:
            return PrefixStore(prefix, connect_to_store())

        calls = StoreCalls(patience)
        with _store_answers():
            self._store = DeadlineStore(calls.make(connect), calls)
        self._watch = KeyWatch(connect)

    def mint(self, incarnation: str) -> str:
        """The id of this submission: the first one that an agent proposed."""
        return self._compare_set("incarnation", incarnation).decode()

    def settle(self, round_number: int, outcome: CycleStart | JobEnding) -> CycleStart | JobEnding:
        """Write a round's outcome unless it is written; returns what stands."""
        key = "start" if isinstance(outcome, CycleStart) else "end"
        said = json.dumps({key: encode(outcome)})
        return _decode_outcome(self._compare_set(f"round/{round_number}", said))

    def outcome(self, round_number: int) -> CycleStart | JobEnding | None:
        found = self._get(f"round/{round_number}")
        return _decode_outcome(found) if found is not None else None

    def tell_leader(self, round_number: int, where: str) -> None:
        """Where the process of a round's leader can be seen to live."""
        self._set(f"round/{round_number}/leader", where)

    def leader_of(self, round_number: int) -> str | None:
        found = self._get(f"round/{round_number}/leader")
        return found.decode() if found is not None else None

    def expect_outcome(self, round_number: int, timeout: float) -> bool:
        """Whether a round has its outcome, waiting for it up to `timeout` seconds."""
        self._watch.expect(f"round/{round_number}")
        return self._watch.has_arrived(timeout)

    def last_start(self, before_round: int) -> CycleStart | None:
        """The newest cycle that was started. Rounds whose leader died before deciding are passed over."""
        for number in range(before_round - 1, -1, -1):
            outcome = self.outcome(number)
            if isinstance(outcome, CycleStart):
                return outcome
        return None

    def end(self, ending: JobEnding) -> JobEnding:
        return decode_ending(self._compare_set(_ENDING, encode(ending)))

    def ending(self) -> JobEnding | None:
        found = self._get(_ENDING)
        return decode_ending(found) if found is not None else None

    def expect_ending(self, timeout: float) -> bool:
        self._watch.expect(_ENDING)
        return self._watch.has_arrived(timeout)

    def leave(self) -> None:
        """Say that this agent has read the ending."""
        self._add(_LEFT, 1)

    def left(self) -> int:
        return self._add(_LEFT, 0)

    def announce_failure(self, cycle: int, what: str) -> str:
        """Mark a cycle as failed; returns what the first agent said that marked it."""
        first = self._compare_set(f"cycle/{cycle}/failed", what).decode()
        self.announce_over(cycle)
        return first

    def failure_of(self, cycle: int) -> str | None:
        found = self._get(f"cycle/{cycle}/failed")
        return found.decode() if found is not None else None

    def announce_over(self, cycle: int) -> None:
        """Wake every agent: this cycle has failed, succeeded everywhere, or is left for another one."""
        self._set(f"cycle/{cycle}/over", "1")

    def is_over(self, cycle: int, timeout: float = 0.0) -> bool:
        """Whether a cycle was announced as over. It costs no request: the store itself tells."""
        self._watch.expect(f"cycle/{cycle}/over")
        return self._watch.has_arrived(timeout)

    def look_whether_over(self, cycle: int) -> bool:
        """Ask the store, for the case that its word was lost on the way."""
        with _store_answers():
            return any(self._store.check([f"cycle/{cycle}/{key}"]) for key in ("over", "failed"))

    def give_evidence(self, evidence: CycleEvidence) -> None:
        """And say that it is there: who asks for everybody's then needs no question for each."""
        self._set(_evidence_key(evidence.cycle, evidence.group_rank), encode(evidence))
        with _store_answers():
            self._store.append(f"cycle/{evidence.cycle}/told", f"{evidence.group_rank} ")

    def has_all_evidence(self, start: CycleStart) -> bool:
        return len(self._told(start.cycle)) == len(start.nodes)

    def evidence(self, start: CycleStart) -> tuple[CycleEvidence, ...]:
        """What is there. Agents give theirs before they join the next round, so nothing needs waiting for."""
        keys = [_evidence_key(start.cycle, group) for group in self._told(start.cycle)]
        if not keys:
            return ()
        with _store_answers():
            return tuple(decode_evidence(text) for text in self._store.multi_get(keys))

    def forget_evidence(self, cycle: int) -> None:
        """Evidence of cycles that are long decided would pile up in the store's memory."""
        keys = [_evidence_key(cycle, group) for group in self._told(cycle)]
        if keys:
            with _store_answers():
                self._store.multi_set(keys, [""] * len(keys))

    def _told(self, cycle: int) -> list[int]:
        """The groups that gave their evidence."""
        return sorted({int(group) for group in (self._get(f"cycle/{cycle}/told") or b"").split()})

    def finish(self, cycle: int, agents: int) -> None:
        """Say that this agent's ranks all succeeded; the last one wakes the others."""
        if self._add(f"cycle/{cycle}/done", 1) >= agents:
            self.announce_over(cycle)

    def finished(self, cycle: int) -> int:
        return self._add(f"cycle/{cycle}/done", 0)

    def say_dumped(self, cycle: int) -> None:
        """Say that this agent has asked its ranks where they hang, and needs them no longer."""
        self._add(f"cycle/{cycle}/dumped", 1)

    def dumped(self, cycle: int) -> int:
        return self._add(f"cycle/{cycle}/dumped", 0)

    def tell_quiet(self, cycle: int, group_rank: int, seconds: float) -> None:
        self._set(f"cycle/{cycle}/quiet/{group_rank}", f"{seconds:.1f}")

    def quiet(self, cycle: int, group_rank: int) -> float:
        """For how long a group has been silent, as its own agent measured it; 0 before it said so."""
        found = self._get(f"cycle/{cycle}/quiet/{group_rank}")
        return float(found) if found is not None else 0.0

    def _compare_set(self, key: str, value: str) -> bytes:
        with _store_answers():
            return self._store.compare_set(key, "", value)

    def _get(self, key: str) -> bytes | None:
        with _store_answers():
            return self._store.get(key) if self._store.check([key]) else None

    def _set(self, key: str, value: str) -> None:
        with _store_answers():
            self._store.set(key, value)

    def _add(self, key: str, amount: int) -> int:
        with _store_answers():
            return self._store.add(key, amount)


def _evidence_key(cycle: int, group_rank: int) -> str:
    return f"cycle/{cycle}/evidence/{group_rank}"


@contextmanager
def _store_answers() -> Iterator[None]:
    try:
        yield
    except DistError as lost:
        raise StoreLostError(_DOES_NOT_ANSWER) from lost


def _decode_outcome(text: bytes) -> CycleStart | JobEnding:
    content = json.loads(text)
    if "start" in content:
        return decode_start(content["start"])
    return decode_ending(content["end"])
