"""One engine at a time, the same tests for each."""

from collections.abc import Iterator
from functools import cache

import pytest

from support.services.engines import Engine
from support.services.images import Rootfs

IMAGE = "aorta-test/busybox:1"


@pytest.fixture(
    params=[
        pytest.param("docker_engine", marks=pytest.mark.xdist_group("docker")),
        pytest.param("podman_engine", marks=pytest.mark.xdist_group("podman")),
    ]
)
def engine(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, busybox: Rootfs
) -> Iterator[Engine]:
    """A real engine that holds one small image, reached as a user's shell reaches it; left without
    containers.
    """
    engine: Engine = request.getfixturevalue(request.param)
    for name, value in engine.environ.items():
        monkeypatch.setenv(name, value)
    _import_once(engine, busybox)
    yield engine
    engine.remove_containers()


@cache
def _import_once(engine: Engine, busybox: Rootfs) -> str:
    return engine.import_image(busybox, IMAGE)
