"""What the agents of a job agreed on, in a store of their own.

Every fact is written once: by compare-and-set where several agents might write it, or under a key
that only one agent owns. Keys, below one prefix per job:

| key | what it holds |
|---|---|
| `incarnation` | of this submission; the first writer wins |
| `beat/<node>` | a counter while the agent lives; empty once it has left |
| `newest_round` | the number of a round that is closed, and of which later ones may be |
| `round/<r>/joined` | the agents that want to be in round r, in the order they came |
| `round/<r>/members` | who is in it, by rank; the first writer wins, and the round is closed |
| `round/<r>` | its outcome: a start or the ending |
| `ending` | why the job ended; the first writer wins |
| `<key>/agreed` | that members, an outcome or the ending are there: every agent waits for these |
| `left` | how many agents have read the ending |
| `cycle/<n>/failed` | the first agent that saw cycle n fail, and what it saw |
| `cycle/<n>/over` | that cycle n is over, for whatever reason: every agent waits for this key |
| `cycle/<n>/evidence/<g>` | what the agent of group rank g knows about the end of its ranks |
| `cycle/<n>/told` | the group ranks whose evidence is there |
| `cycle/<n>/done`, `dumped` | how many agents finished it, or have the dumps of hanging ranks |
| `cycle/<n>/quiet/<g>` | for how long the ranks of g have been silent |
"""

import json
from collections.abc import Callable, Sequence

from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]

from aorta.launch.records import (
    CycleEvidence,
    CycleStart,
    JobEnding,
    Node,
    decode_ending,
    decode_evidence,
    decode_start,
    encode,
)
from aorta.launch.store_calls import (
    DeadlineStore,
    KeyWatch,
    RoundStore,
    StoreCalls,
    StorePatience,
    store_answers,
)

_ENDING = "ending"
_LEFT = "left"
_NEWEST = "newest_round"


class JobStore:
    """The agreements of one job. `another` makes further connections to `store`: a wait must not
    hold up anything else. Every method may raise `StoreLostError`.
    """

    def __init__(
        self, store: Store, another: Callable[[], Store], run_id: str, patience: StorePatience
    ) -> None:
        prefix = f"aorta/launch/{run_id}"
        self._store = DeadlineStore(PrefixStore(prefix, store), StoreCalls(patience))
        self._watch = KeyWatch(lambda: PrefixStore(prefix, another()))

    def mint(self, incarnation: str) -> str:
        """The id of this submission: the first one that an agent proposed."""
        return self._compare_set("incarnation", incarnation).decode()

    def decide_round(
        self, round_number: int, outcome: CycleStart | JobEnding
    ) -> CycleStart | JobEnding:
        """Write a round's outcome unless it is written; returns what stands."""
        key = "start" if isinstance(outcome, CycleStart) else "end"
        said = json.dumps({key: encode(outcome)})
        return _decode_outcome(self._agree(f"round/{round_number}", said))

    def outcome(self, round_number: int) -> CycleStart | JobEnding | None:
        found = self._get(f"round/{round_number}")
        return _decode_outcome(found) if found is not None else None

    def beat(self, node: str, count: str) -> None:
        self._set(f"beat/{node}", count)

    def mark_gone(self, node: str) -> None:
        self._set(f"beat/{node}", "")

    def beats(self, nodes: Sequence[str]) -> list[bytes]:
        """Of agents that have beaten at least once, or left."""
        with store_answers():
            return self._store.multi_get([f"beat/{node}" for node in nodes])

    def newest_round(self) -> int:
        """A round that is closed, or -1."""
        return int(self._get(_NEWEST) or -1)

    def join(self, round_number: int, node: Node) -> int:
        """Ask to be a member; returns how many have asked so far."""
        with store_answers():
            self._store.append(f"round/{round_number}/joined", f"{node.encoded()}\n")
        return self._add(f"round/{round_number}/count", 1)

    def joined(self, round_number: int) -> list[Node]:
        told = self._get(f"round/{round_number}/joined") or b""
        return list(dict.fromkeys(Node.decoded(line) for line in told.decode().splitlines()))

    def close_round(self, round_number: int, members: Sequence[Node]) -> tuple[Node, ...]:
        """Write who is in it unless it is written; returns who is."""
        said = json.dumps([node.encoded() for node in members])
        stands = self._agree(f"round/{round_number}/members", said)
        self._set(_NEWEST, str(round_number))
        return _decode_members(stands)

    def members(self, round_number: int) -> tuple[Node, ...] | None:
        """None while the round is open."""
        found = self._get(f"round/{round_number}/members")
        return _decode_members(found) if found is not None else None

    def expect_members(self, round_number: int, timeout: float) -> bool:
        """Whether a round is closed, waiting for it up to `timeout` seconds."""
        return self._is_agreed(f"round/{round_number}/members", timeout)

    def of_round(self, round_number: int, is_hopeless: Callable[[], bool]) -> RoundStore:
        """For what torch's agents tell each other about their workers."""
        return RoundStore(self._store, f"round/{round_number}/torch", is_hopeless)

    def expect_outcome(self, round_number: int, timeout: float) -> bool:
        """Whether a round has its outcome, waiting for it up to `timeout` seconds."""
        return self._is_agreed(f"round/{round_number}", timeout)

    def last_start(self, before_round: int) -> CycleStart | None:
        """The newest cycle that was started; rounds without a decision are passed over."""
        for number in range(before_round - 1, -1, -1):
            outcome = self.outcome(number)
            if isinstance(outcome, CycleStart):
                return outcome
        return None

    def end(self, ending: JobEnding) -> JobEnding:
        return decode_ending(self._agree(_ENDING, encode(ending)))

    def ending(self) -> JobEnding | None:
        found = self._get(_ENDING)
        return decode_ending(found) if found is not None else None

    def expect_ending(self, timeout: float) -> bool:
        return self._is_agreed(_ENDING, timeout)

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
        """Wake every agent: this cycle failed, succeeded everywhere, or is left for another."""
        self._set(f"cycle/{cycle}/over", "1")

    def is_over(self, cycle: int, timeout: float = 0.0) -> bool:
        """Whether a cycle was announced as over. It costs no request: the store itself tells."""
        self._watch.expect(f"cycle/{cycle}/over")
        return self._watch.has_arrived(timeout)

    def look_whether_over(self, cycle: int) -> bool:
        """Ask the store, for the case that its word was lost on the way."""
        with store_answers():
            return any(self._store.check([f"cycle/{cycle}/{key}"]) for key in ("over", "failed"))

    def give_evidence(self, evidence: CycleEvidence) -> None:
        """And say that it is there: who asks for everybody's then needs no question for each."""
        self._set(_evidence_key(evidence.cycle, evidence.group_rank), encode(evidence))
        with store_answers():
            self._store.append(f"cycle/{evidence.cycle}/told", f"{evidence.group_rank} ")

    def has_all_evidence(self, start: CycleStart) -> bool:
        return len(self._told(start.cycle)) == len(start.nodes)

    def evidence(self, start: CycleStart) -> tuple[CycleEvidence, ...]:
        """What is there: agents give theirs before they join, so nothing is waited for."""
        keys = [_evidence_key(start.cycle, group) for group in self._told(start.cycle)]
        if not keys:
            return ()
        with store_answers():
            return tuple(decode_evidence(text) for text in self._store.multi_get(keys))

    def forget_evidence(self, cycle: int) -> None:
        """Evidence of cycles that are long decided would pile up in the store's memory."""
        keys = [_evidence_key(cycle, group) for group in self._told(cycle)]
        if keys:
            with store_answers():
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

    def mark_dumped(self, cycle: int) -> None:
        """Say that this agent has asked its ranks where they hang, and needs them no longer."""
        self._add(f"cycle/{cycle}/dumped", 1)

    def dumped(self, cycle: int) -> int:
        return self._add(f"cycle/{cycle}/dumped", 0)

    def report_quiet(self, cycle: int, group_rank: int, seconds: float) -> None:
        self._set(f"cycle/{cycle}/quiet/{group_rank}", f"{seconds:.1f}")

    def quiet(self, cycle: int, group_rank: int) -> float:
        """How long a group has been silent, by its own agent's clock; 0 before it said so."""
        found = self._get(f"cycle/{cycle}/quiet/{group_rank}")
        return float(found) if found is not None else 0.0

    def _compare_set(self, key: str, value: str) -> bytes:
        with store_answers():
            return self._store.compare_set(key, "", value)

    def _agree(self, key: str, value: str) -> bytes:
        """The first value wins, and who waits for it is woken: by a second key, for a server of
        torch 2.4 wakes nobody for what was compared and set.
        """
        stands = self._compare_set(key, value)
        self._set(f"{key}/agreed", "1")
        return stands

    def _is_agreed(self, key: str, timeout: float) -> bool:
        self._watch.expect(f"{key}/agreed")
        return self._watch.has_arrived(timeout)

    def _get(self, key: str) -> bytes | None:
        with store_answers():
            return self._store.get(key) if self._store.check([key]) else None

    def _set(self, key: str, value: str) -> None:
        with store_answers():
            self._store.set(key, value)

    def _add(self, key: str, amount: int) -> int:
        with store_answers():
            return self._store.add(key, amount)


def _evidence_key(cycle: int, group_rank: int) -> str:
    return f"cycle/{cycle}/evidence/{group_rank}"


def _decode_members(text: bytes) -> tuple[Node, ...]:
    return tuple(Node.decoded(node) for node in json.loads(text))


def _decode_outcome(text: bytes) -> CycleStart | JobEnding:
    content = json.loads(text)
    if "start" in content:
        return decode_start(content["start"])
    return decode_ending(content["end"])
