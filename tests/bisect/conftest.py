from pathlib import Path

import pytest

from support.nightly import World, make_world
from support.services.images import Rootfs


@pytest.fixture(scope="session")
def world(busybox: Rootfs, tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(busybox, tmp_path_factory.mktemp("world"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The engine of this room's tests is a worker's of its own: together they take as long as all
    others with docker.
    """
    for item in items:
        group = item.get_closest_marker("xdist_group")
        if Path(__file__).parent in item.path.parents and group and group.args == ("docker",):
            item.add_marker(pytest.mark.xdist_group("bisect"), append=False)
