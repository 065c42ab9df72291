"""A plugin of pytest for a copy with a fault: the quickest test first, none for long after it
should have ended.

The first run, without any fault, writes down how long each test takes; the later ones read it.
"""

import json
import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import Phase, settings

TIMES = "AORTA_MUTATION_TIMES"  # the variable with the file of what each test takes
DID_NOT_END = 124
_TIMES_LONGER = 10  # than without any fault: nothing but an endless loop takes that
_AT_LEAST = 5.0  # seconds

_taken: defaultdict[str, float] = defaultdict(float)


def pytest_sessionstart() -> None:
    """One failure is enough: it is not made smaller, and every copy sees the same examples."""
    settings.register_profile(
        "faulty copy",
        parent=settings.get_profile("any machine"),
        phases=(Phase.explicit, Phase.generate),
        database=None,
        derandomize=True,
    )
    settings.load_profile("faulty copy")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    known = _known()
    items.sort(key=lambda item: known.get(item.nodeid, 0.0))


def _known() -> dict[str, float]:
    file = Path(os.environ[TIMES])
    return dict(json.loads(file.read_text())) if file.exists() else {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    from support.waiting import (
        patience,
    )  # on the path only once pytest has read where the tests are

    usual = _known().get(item.nodeid)
    if usual is None:
        return (yield)
    seconds = patience(_AT_LEAST + _TIMES_LONGER * usual)
    timer = threading.Timer(seconds, lambda: os._exit(DID_NOT_END))
    timer.daemon = True
    timer.start()
    try:
        return (yield)
    finally:
        timer.cancel()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _taken[report.nodeid] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    file = Path(os.environ[TIMES])
    if not hasattr(session.config, "workerinput") and not file.exists():
        file.write_text(json.dumps(_taken))
