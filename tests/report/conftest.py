"""The browser that the pages are looked at in, started once a worker."""

from collections.abc import Iterator

import pytest

from support.services import requirements
from support.services.chromium import Chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[Chromium]:
    """Tests that use it carry `@pytest.mark.xdist_group("chromium")`."""
    requirements.demand(requirements.CHROMIUM)
    chromium = Chromium()
    yield chromium
    chromium.close()
