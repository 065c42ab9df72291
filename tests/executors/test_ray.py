"""Ray."""

from collections.abc import Iterator

import pytest

from aorta.core.trial import Resources
from aorta.executors.cluster import ClusterExecutor
from aorta.executors.ray import RayTasks
from executor_contract import ExecutorContract
from services.ray_cluster import RayCluster


@pytest.fixture
def executor(ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterExecutor]:
    for name, value in ray_cluster.environ.items():
        monkeypatch.setenv(name, value)
    ex = ClusterExecutor(RayTasks(ray_cluster.address, Resources()), jobs=2, grace=0.5)
    yield ex
    ex.close()


class TestRay(ExecutorContract):
    pass
