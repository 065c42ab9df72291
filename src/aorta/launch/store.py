"""The board: what the agents of one job agree on, kept in the rendezvous store.

Every fact is written once: by compare-and-set where several agents might write it, or under a key that only one agent
owns. Keys, below one prefix per job:

    round/<r>               the outcome of rendezvous round r: a start or the ending
    ending                  why the job ended; the first writer wins
    left                    how many agents have read the ending
    cycle/<n>/failed        the first agent that saw cycle n fail, and what it saw
    cycle/<n>/evidence/<g>  what the agent of group rank g knows about the failure, or how its ranks ended
    cycle/<n>/done          how many agents finished cycle n with success
    cycle/<n>/dumped        how many agents have the dumps of their hanging ranks
    cycle/<n>/quiet/<g>     for how long the ranks of g have been silent

The board owns its own connection: a wait on the rendezvous' connection would hold up its keep-alive heartbeats.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, cast

from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed import DistError

from aorta.core.errors import InfrastructureError
from aorta.launch.records import (
    Ending,
    Evidence,
    Start,
    decode_ending,
    decode_evidence,
    decode_start,
    encode,
)

_ENDING = "ending"
_LEFT = "left"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.1


class StoreLostError(InfrastructureError):
    """The process that hosts the rendezvous store is gone, and every agreement with it."""

    kind = "store_lost"


class _Cloneable(Protocol):
    """Every store since torch 2.7; the type stubs do not know it yet."""

    def clone(self) -> Store: ...


class Board:
    def __init__(self, store: Store, run_id: str) -> None:
        connection = cast("_Cloneable", store).clone()
        self._store = PrefixStore(f"aorta/launch/{run_id}", connection)

    def settle(self, round_number: int, outcome: Start | Ending) -> Start | Ending:
        """Write a round's outcome unless it is written; returns what stands."""
        key = "start" if isinstance(outcome, Start) else "end"
        said = json.dumps({key: encode(outcome)})
        return _decode_outcome(self._compare_set(f"round/{round_number}", said))

    def outcome(self, round_number: int, timeout: float = 0.0) -> Start | Ending | None:
        """A round's outcome, waiting for it up to `timeout` seconds."""
        found = self._get(f"round/{round_number}", timeout)
        return _decode_outcome(found) if found is not None else None

    def last_start(self, before_round: int) -> Start | None:
        """The newest cycle that was started. Rounds whose leader died before deciding are passed over."""
        for number in range(before_round - 1, -1, -1):
            outcome = self.outcome(number)
            if isinstance(outcome, Start):
                return outcome
        return None

    def end(self, ending: Ending) -> Ending:
        return decode_ending(self._compare_set(_ENDING, encode(ending)))

    def ending(self) -> Ending | None:
        found = self._get(_ENDING)
        return decode_ending(found) if found is not None else None

    def leave(self) -> None:
        """Say that this agent has read the ending."""
        self._add(_LEFT, 1)

    def left(self) -> int:
        return self._add(_LEFT, 0)

    def announce_failure(self, cycle: int, what: str) -> str:
        """Mark a cycle as failed; returns what the first agent said that marked it."""
        return self._compare_set(f"cycle/{cycle}/failed", what).decode()

    def failure_of(self, cycle: int) -> str | None:
        found = self._get(f"cycle/{cycle}/failed")
        return found.decode() if found is not None else None

    def give_evidence(self, evidence: Evidence) -> None:
        key = f"cycle/{evidence.cycle}/evidence/{evidence.group_rank}"
        self._set(key, encode(evidence))

    def evidence(self, start: Start) -> tuple[Evidence, ...]:
        """What is there. Agents give theirs before they join the next round, so nothing needs waiting for."""
        keys = [f"cycle/{start.cycle}/evidence/{group}" for group in range(len(start.nodes))]
        found = (self._get(key) for key in keys)
        return tuple(decode_evidence(text) for text in found if text is not None)

    def forget_evidence(self, cycle: int, groups: int) -> None:
        """Evidence of cycles that are long decided would pile up in the store's memory."""
        with _store_answers():
            for group in range(groups):
                self._store.delete_key(f"cycle/{cycle}/evidence/{group}")

    def finish(self, cycle: int) -> None:
        """Say that this agent's ranks all succeeded."""
        self._add(f"cycle/{cycle}/done", 1)

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

    def _get(self, key: str, timeout: float = 0.0) -> bytes | None:
        """Polls instead of waiting in the store, whose waits cannot be interrupted and warn when they end."""
        deadline = time.monotonic() + timeout
        pause = _FIRST_PAUSE
        with _store_answers():
            while not self._store.check([key]):
                if time.monotonic() >= deadline:
                    return None
                time.sleep(pause)
                pause = min(pause * 1.5, _LONGEST_PAUSE)
            return self._store.get(key)

    def _set(self, key: str, value: str) -> None:
        with _store_answers():
            self._store.set(key, value)

    def _add(self, key: str, amount: int) -> int:
        with _store_answers():
            return self._store.add(key, amount)


@contextmanager
def _store_answers() -> Iterator[None]:
    try:
        yield
    except DistError as lost:
        raise StoreLostError(
            "the rendezvous store does not answer; the agent that hosts it has probably died"
        ) from lost


def _decode_outcome(text: bytes) -> Start | Ending:
    content = json.loads(text)
    if "start" in content:
        return decode_start(content["start"])
    return decode_ending(content["end"])
