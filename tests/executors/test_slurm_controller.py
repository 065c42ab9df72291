"""A Slurm controller that restarts or loses its memory, with and without the accounting that could
jog it.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aorta.core.axis import Point
from aorta.core.trial import Resources
from aorta.executors import Executor
from aorta.executors.slurm import slurm_executor
from aorta.executors.slurm_commands import JobState, states_of
from support.executor_contract import Bench
from support.searched import disturb, search_on
from support.services.slurm import SlurmCluster
from support.waiting import eventually

accounted = pytest.mark.xdist_group("slurm_accounting")


@pytest.fixture(
    params=[
        pytest.param("slurm_cluster", marks=pytest.mark.xdist_group("slurm")),
        pytest.param("accounted_cluster", marks=accounted),
    ]
)
def either_cluster(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SlurmCluster]:
    cluster: SlurmCluster = request.getfixturevalue(request.param)
    yield used(cluster, monkeypatch)
    cluster.wait_until_idle()


@pytest.fixture
def cluster(
    accounted_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SlurmCluster]:
    yield used(accounted_cluster, monkeypatch)
    accounted_cluster.wait_until_idle()


def used(cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> SlurmCluster:
    for name, value in cluster.environ.items():
        monkeypatch.setenv(name, value)
    return cluster


def opened(jobs: int = 3) -> Executor:
    return slurm_executor(Resources(), jobs, grace=0.5)


@contextmanager
def befalling(where: Path, befall: Callable[[], None]) -> Iterator[None]:
    """Beside the search that is done here: once a trial runs, `befall`, and no trial ends
    before.
    """

    def begin() -> bool:
        return bool(list(where.rglob("node")))

    def wait_and_disturb() -> None:
        try:
            if eventually(begin):
                befall()
                disturbed.append(True)
        finally:
            disturb(where)

    disturbed: list[bool] = []
    beside = threading.Thread(target=wait_and_disturb)
    beside.start()
    try:
        yield
    finally:
        beside.join()
    assert disturbed


@accounted
def test_a_controller_that_restarts_in_the_middle_of_a_search_costs_no_trial(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    def restart() -> None:
        cluster.stop_controller()
        disturb(tmp_path)
        for _ in range(2):  # what was submitted meanwhile has been given up too, once these are
            cluster("squeue", check=False)
        cluster.start_controller()

    with befalling(tmp_path, restart):
        found = search_on(opened(), tmp_path, threshold=11, disturbed=True)
    assert found.answer == Point.of({"N": 11})
    assert found.errors == []


@accounted
def test_a_trial_withdrawn_while_the_controller_is_away_never_runs(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    executor = opened()
    try:
        bench = Bench(executor, tmp_path)
        cluster.stop_controller()
        unwanted = bench.start("touch", str(tmp_path / "ran"))
        executor.cancel(unwanted.id)
        assert bench.end().cancelled
        cluster.start_controller()
        cluster.wait_until_idle()
        assert bench.shell("exit 3").exit_code == 3
    finally:
        executor.close()
    assert not (tmp_path / "ran").exists()
    assert eventually(lambda: not cluster.queue())


def test_a_controller_that_lost_its_memory_does_not_change_the_answer(
    either_cluster: SlurmCluster, tmp_path: Path
) -> None:
    def forget() -> None:
        either_cluster.stop_controller()
        either_cluster.start_controller(forgetful=True)

    with befalling(tmp_path, forget):
        found = search_on(opened(), tmp_path, threshold=11, disturbed=True)
    assert found.answer == Point.of({"N": 11})


@accounted
def test_accounting_tells_how_forgotten_tasks_ended(
    cluster: SlurmCluster,
) -> None:
    script = "case $SLURM_ARRAY_TASK_ID in 0) exit 0;; 1) exit 7;; *) sleep 300;; esac"
    job = cluster(
        "sbatch", "--parsable", "--array=0-6%3", "--output=/dev/null", f"--wrap={script}"
    ).strip()
    tasks = {f"{job}_{index}" for index in range(7)}
    asleep = [f"{job}_{index} wrap RUNNING" for index in (2, 3, 4)]
    waiting = [f"{job}_{index} wrap PENDING" for index in (5, 6)]
    assert eventually(lambda: sorted(cluster.queue()) == sorted(asleep + waiting))
    cluster("scancel", job)
    assert eventually(lambda: not cluster.queue())
    in_queue = states_of(tasks)
    assert eventually(lambda: _told_by_sacct(cluster, job) >= 6)
    cluster.stop_controller()
    cluster.start_controller(forgetful=True)
    cluster.wait_until_idle()
    told = states_of(tasks)
    ends = {f"{job}_0": "COMPLETED", f"{job}_1": "FAILED"} | {
        f"{job}_{index}": "CANCELLED" for index in range(2, 7)
    }
    assert _first_words(told) == _first_words(in_queue) == ends


def _told_by_sacct(cluster: SlurmCluster, job: str) -> int:
    rows = cluster("sacct", "-n", "-X", "-P", "-o", "State", f"-j{job}").split("\n")
    return sum(row.startswith(("COMPLETED", "FAILED", "CANCELLED")) for row in rows)


def _first_words(states: dict[str, JobState]) -> dict[str, str]:
    return {task: state.name.split()[0] for task, state in states.items()}
