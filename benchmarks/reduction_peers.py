"""The same subset problem given to the reducers of others, counted the same way.

A peer is a function from (number of items, needed items) to the number of times it ran the test.
Each is driven through its own library as it ships; none is part of Aorta, so each is imported by
name and only when asked for.
"""

import importlib
import logging
from collections.abc import Callable, Collection

Peer = Callable[[int, frozenset[int]], int]


def installed_peers() -> tuple[dict[str, Peer], dict[str, str]]:
    """The peers that can be run here, and for the others why they cannot."""
    found: dict[str, Peer] = {}
    missing: dict[str, str] = {}
    for name, (module, peer) in _PEERS.items():
        try:
            importlib.import_module(module)
        except ImportError as wrong:
            missing[name] = f"{wrong} (python -m pip install '.[bench]')"
        else:
            found[name] = peer
    return found, missing


def picire(items: int, needed: frozenset[int]) -> int:
    """Delta debugging with its default cache and splitter."""
    library = importlib.import_module("picire")
    logging.getLogger("picire").setLevel(logging.ERROR)
    test = _Counted(needed)

    def outcome(config: list[int], _config_id: object) -> object:
        return library.Outcome.FAIL if test(config) else library.Outcome.PASS

    split = library.config_splitters.ZellerSplit(n=2)
    library.DD(outcome, split=split, cache=library.ConfigCache())(list(range(items)))
    return test.calls


def lithium(items: int, needed: frozenset[int]) -> int:
    """Its default strategy, `minimize`, on lines."""
    strategies = importlib.import_module("lithium.strategies")
    testcase = importlib.import_module("lithium.testcases").TestcaseLine()
    logging.getLogger("lithium").setLevel(logging.ERROR)
    testcase.parts = [b"%d\n" % item for item in range(items)]
    testcase.reducible = [True] * items
    test = _Counted(needed)
    reduction = strategies.Minimize().reduce(testcase)
    for attempt in reduction:
        reduction.feedback(test([int(part) for part in attempt.parts]))
    return test.calls


class _Counted:
    def __init__(self, needed: frozenset[int]) -> None:
        self._needed = needed
        self.calls = 0

    def __call__(self, kept: Collection[int]) -> bool:
        self.calls += 1
        return self._needed.issubset(kept)


_PEERS: dict[str, tuple[str, Peer]] = {
    "picire": ("picire", picire),
    "lithium": ("lithium", lithium),
}
