"""Slurm."""

from collections.abc import Iterator

import pytest

from aorta.core.trial import Resources
from aorta.executors.cluster import ClusterExecutor
from aorta.executors.slurm import SlurmJobs
from executor_contract import ExecutorContract
from services.slurm import SlurmCluster


@pytest.fixture
def executor(
    slurm_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ClusterExecutor]:
    monkeypatch.setenv("SLURM_CONF", slurm_cluster.environ["SLURM_CONF"])
    ex = ClusterExecutor(SlurmJobs(Resources()), jobs=2, grace=0.5)
    yield ex
    ex.close()


class TestSlurm(ExecutorContract):
    pass
