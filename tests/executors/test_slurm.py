"""Slurm."""

from collections.abc import Iterator

import pytest

from aorta.core.trial import Resources
from aorta.executors.cluster import ClusterExecutor
from aorta.executors.slurm import SlurmJobs
from executor_contract import ExecutorContract


@pytest.fixture
def executor() -> Iterator[ClusterExecutor]:
    ex = ClusterExecutor(SlurmJobs(Resources()), jobs=2, grace=0.5)
    yield ex
    ex.close()


class TestSlurm(ExecutorContract):
    pass
