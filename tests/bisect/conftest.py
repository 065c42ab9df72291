import pytest

from support.nightly import World, make_world
from support.services.images import Rootfs


@pytest.fixture(scope="session")
def world(busybox: Rootfs, tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(busybox, tmp_path_factory.mktemp("world"))
