"""Fixtures that any test may ask for: the real services, started once a worker and always stopped.

And what a run needs to be the same wherever it is started: see `support/hermetic.py`.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes import processes_under
from support.services import health, requirements
from support.services.engines import DockerEngine, PodmanEngine, start_docker, start_podman
from support.services.images import Rootfs, busybox_rootfs, python_rootfs
from support.services.ray_cluster import RayCluster, start_ray
from support.services.registry import Registry, start_registry
from support.services.slurm import SlurmCluster, start_slurm
from support.waiting import wait_until

pytest_plugins = ["support.hermetic"]
_OF_A_GROUP = frozenset(
    {"docker_engine", "podman_engine", "slurm_cluster", "accounted_cluster", "ray_cluster"}
)


@pytest.fixture(autouse=True)
def _services_that_live(request: pytest.FixtureRequest) -> None:
    """What an earlier test, or the machine, has killed is there again."""
    health.revive(request.node.nodeid)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """A service ends with the last test of its group: three idle nodes of Ray alone take 2.6 s of
    CPU a minute.
    """
    if not isinstance(item, pytest.Function) or _group(item) in {None, _group(nextitem)}:
        return
    for name in _OF_A_GROUP:  # also one that was asked for by its name
        for definition in item.session._fixturemanager.getfixturedefs(name, item) or ():
            definition.finish(item._request)  # type: ignore[arg-type]


def _group(item: pytest.Item | None) -> str | None:
    mark = item.get_closest_marker("xdist_group") if item is not None else None
    return None if mark is None else str(mark.args[0])


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[DockerEngine]:
    """A private dockerd. Tests that use it carry `@pytest.mark.xdist_group("docker")`."""
    requirements.demand(requirements.DOCKER)
    engine = start_docker()
    yield engine
    engine.stop()


@pytest.fixture(scope="session")
def podman_engine() -> Iterator[PodmanEngine]:
    """podman with a private store. Tests that use it carry `@pytest.mark.xdist_group("podman")`."""
    requirements.demand(requirements.PODMAN)
    engine = start_podman()
    yield engine
    engine.stop()


@pytest.fixture(scope="session")
def oci_registry() -> Iterator[Registry]:
    requirements.demand(requirements.REGISTRY)
    registry = start_registry()
    yield registry
    registry.stop()


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[SlurmCluster]:
    """Four private nodes. Tests that use it carry `@pytest.mark.xdist_group("slurm")`."""
    requirements.demand(requirements.SLURM)
    cluster = start_slurm()
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def accounted_cluster() -> Iterator[SlurmCluster]:
    """As `slurm_cluster`, with a database of ended jobs, and commands that soon give up on a silent
    controller.

    Tests that use it carry `@pytest.mark.xdist_group("slurm_accounting")`.
    """
    requirements.demand(requirements.SLURM, requirements.SLURM_ACCOUNTING)
    cluster = start_slurm(accounting=True, message_timeout=5)
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    """A head and the nodes that tests ask for. Tests that use it carry
    `@pytest.mark.xdist_group("ray")`.
    """
    cluster = start_ray()
    yield cluster
    assert processes_under(cluster.directory)
    cluster.stop()
    wait_until(lambda: not processes_under(cluster.directory), "the end of all that ray started")
    assert not cluster.directory.exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    requirements.demand(requirements.MOUNTS)
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], check=True)
    yield place
    subprocess.run(["umount", "-l", place], check=True)


@pytest.fixture(scope="session")
def busybox(tmp_path_factory: pytest.TempPathFactory) -> Rootfs:
    requirements.demand(requirements.BUSYBOX)
    return busybox_rootfs(_images(tmp_path_factory))


@pytest.fixture(scope="session")
def busybox_python(tmp_path_factory: pytest.TempPathFactory) -> Rootfs:
    requirements.demand(requirements.BUSYBOX, requirements.PYTHON)
    return python_rootfs(_images(tmp_path_factory))


def _images(factory: pytest.TempPathFactory) -> Path:
    return factory.mktemp("images")
