"""What a decision costs does not grow with the number of agents, counted in requests to the
store.
"""

from collections.abc import Callable
from typing import Any

import pytest

from aorta.launch.records import CycleEvidence, CycleStart


@pytest.mark.parametrize("lost", [0, 1])
def test_the_leader_asks_the_same_few_times_for_the_evidence_of_few_and_of_many(
    lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _requests(128, lost, monkeypatch) == _requests(2, lost, monkeypatch) <= 11


def _requests(agents: int, lost: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Of a leader that looks whether all have told, reads what they told, and has it forgotten."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    from aorta.launch.store import JobStore, StoreCalls

    host = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    calls = StoreCalls(60)
    store = JobStore(host, lambda: host, "scale", calls)
    start = CycleStart("scale", 0, tuple(f"node{number}" for number in range(agents)))
    told = range(agents - lost)
    for group in told:
        store.give_evidence(start.cycle, _evidence(start, group, "first"))
        store.give_evidence(start.cycle, _evidence(start, group, "again"))
    made: list[object] = []
    make = StoreCalls.make

    def counted(self: StoreCalls, call: Callable[[], Any]) -> Any:
        made.append(call)
        return make(self, call)

    with monkeypatch.context() as counting:
        counting.setattr(StoreCalls, "make", counted)
        assert store.has_all_evidence(start) == (lost == 0)
        assert [piece.group_rank for piece in store.evidence(start)] == list(told)
        assert {piece.note for piece in store.evidence(start)} == {"again"}
        store.forget_evidence(start.cycle)
    return len(made)


def _evidence(start: CycleStart, group: int, note: str) -> CycleEvidence:
    node = start.nodes[group]
    return CycleEvidence(f"{node}:1", node, group, note=note)
