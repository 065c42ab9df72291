from collections.abc import Iterator
from pathlib import Path

import pytest

from support.launching import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    place = Site(tmp_path)
    yield place
    place.close()
