"""Launchers, and what tests import of them, ask for torch: nothing here does before a test runs,
and two workers run them all.

Torch takes a second and a half in every process that loads it, and so would each worker that
collects and each that starts launchers.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.launching import Site

_THAT_WAIT = frozenset(  # half of what all of them take, for silences and late agents most of all
    {"test_hangs.py", "test_processes.py", "test_silence.py", "test_watching.py"}
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            group = "launch_waits" if item.path.name in _THAT_WAIT else "launch"
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    place = Site(tmp_path)
    yield place
    place.close()
