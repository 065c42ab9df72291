"""Trials on a real Slurm of four nodes: the contract, inside and outside an allocation, and what
befalls a cluster.
"""

import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aorta.core.errors import InfrastructureError
from aorta.core.trial import Resources, TrialEnd
from aorta.executors import Executor
from aorta.executors.slurm import SlurmJobs, slurm_executor
from support.aorta_cli import aorta, start_aorta
from support.executor_contract import Bench, ExecutorContract, pid_in
from support.processes import wait_for_file, wait_until_gone
from support.services.slurm import CPUS, NODES, SlurmCluster
from support.waiting import eventually, patience

pytestmark = pytest.mark.xdist_group("slurm")


@pytest.fixture
def cluster(slurm_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> SlurmCluster:
    for name, value in slurm_cluster.environ.items():
        monkeypatch.setenv(name, value)
    return slurm_cluster


@pytest.fixture
def allocation(cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Two whole nodes, as in a shell that `salloc` opened."""
    said = subprocess.run(
        ("salloc", "--no-shell", "--nodes=2", "--ntasks-per-node=4"), capture_output=True, text=True
    ).stderr
    granted = re.search(r"Granted job allocation (\d+)", said)
    assert granted, said
    monkeypatch.setenv("SLURM_JOB_ID", granted[1])
    monkeypatch.setenv("SLURM_JOB_CPUS_PER_NODE", "4(x2)")
    yield granted[1]
    cluster("scancel", granted[1])


def opened(
    resources: Resources | None = None, jobs: int | None = 2, *, job_per_trial: bool = False
) -> Executor:
    return slurm_executor(resources or Resources(), jobs, job_per_trial=job_per_trial, grace=0.5)


class TestJobs(ExecutorContract):
    @pytest.fixture
    def executor(self, cluster: SlurmCluster) -> Iterator[Executor]:
        executor = opened()
        yield executor
        executor.close()


class TestSteps(ExecutorContract):
    @pytest.fixture
    def executor(self, allocation: str) -> Iterator[Executor]:
        executor = opened()
        yield executor
        executor.close()


def ends_of(executor: Executor, count: int) -> list[TrialEnd]:
    ends: list[TrialEnd] = []
    deadline = time.monotonic() + patience()
    while len(ends) < count and time.monotonic() < deadline:
        ends += executor.wait(1.0)
    assert len(ends) == count
    return ends


def test_slots_are_what_fits_on_the_cluster(cluster: SlurmCluster) -> None:
    sizes = {
        len(NODES) * CPUS: Resources(),
        len(NODES): Resources(cpus=3),
        len(NODES) * 2: Resources(gpus=1),
        CPUS * 2: Resources(nodes=2),
    }
    for expected, resources in sizes.items():
        executor = opened(resources, jobs=None)
        try:
            assert executor.slots == expected, resources
        finally:
            executor.close()


def test_trials_started_together_are_one_array(
    cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_submit, tend = threading.Event(), SlurmJobs._tend
    monkeypatch.setattr(SlurmJobs, "_tend", lambda it: tend(it) if may_submit.is_set() else None)
    executor = SlurmJobs(Resources(), 4, 0.5)
    try:
        bench = Bench(executor, tmp_path)
        for _ in range(4):
            bench.start("bash", "-c", "echo $SLURM_ARRAY_JOB_ID")
        assert eventually(lambda: len(executor._held) == 4)
        may_submit.set()
        jobs = {end.stdout.path.read_text().strip() for end in ends_of(executor, 4)}
    finally:
        executor.close()
    assert len(jobs) == 1


@pytest.mark.parametrize(("job_per_trial", "jobs"), [(False, 1), (True, 3)])
def test_the_queue_is_waited_for_once_unless_each_trial_is_to_be_a_job(
    job_per_trial: bool, jobs: int, cluster: SlurmCluster, tmp_path: Path
) -> None:
    executor = opened(jobs=1, job_per_trial=job_per_trial)
    try:
        bench = Bench(executor, tmp_path)
        ends = [bench.shell("echo $SLURM_JOB_ID") for _ in range(3)]
    finally:
        executor.close()
    assert len({end.stdout.path.read_text() for end in ends}) == jobs
    assert eventually(lambda: not cluster.queue())


def test_a_trial_gets_its_gpus(cluster: SlurmCluster, tmp_path: Path) -> None:
    executor = opened(Resources(gpus=2))
    try:
        end = Bench(executor, tmp_path).shell("echo $CUDA_VISIBLE_DEVICES $SLURM_GPUS_ON_NODE")
    finally:
        executor.close()
    assert end.stdout.path.read_text().split() == ["0,1", "2"]


@pytest.mark.parametrize("inside", [False, True])
def test_the_output_of_a_trial_on_two_nodes_is_that_of_every_rank(
    inside: bool, cluster: SlurmCluster, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if inside:
        request.getfixturevalue("allocation")
    executor = opened(Resources(nodes=2, tasks_per_node=2), jobs=1)
    try:
        # All ranks speak before one ends: srun stops the others at the first bad exit.
        script = (
            'echo "rank $SLURM_PROCID on $SLURMD_NODENAME"; echo oops >&2; '
            f"echo x >> {tmp_path}/said; until [ $(wc -l < {tmp_path}/said) -eq 4 ]; do sleep "
            "0.05; done; "
            "exit $SLURM_PROCID"
        )
        end = Bench(executor, tmp_path).shell(script)
    finally:
        executor.close()
    assert end.failed, end
    lines = end.stdout.path.read_text().splitlines()
    assert len({line.split()[-1] for line in lines}) == 2
    assert sorted(line.split()[1] for line in lines) == ["0", "1", "2", "3"]
    assert end.stderr.path.read_text().count("oops\n") == 4


def test_cancelling_a_trial_of_several_ranks_ends_every_rank(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    executor = opened(Resources(nodes=2), jobs=1)
    try:
        bench = Bench(executor, tmp_path)
        script = f"setsid sleep 300 & echo $! > {tmp_path}/pid$SLURM_PROCID; wait"
        trial = bench.start("bash", "-c", script)
        runaways = [pid_in(tmp_path / f"pid{rank}") for rank in (0, 1)]
        executor.cancel(trial.id)
        assert bench.end().cancelled
        wait_until_gone(*runaways)
    finally:
        executor.close()
    assert eventually(lambda: not cluster.queue())


def test_a_time_limit_is_no_answer_and_says_so(cluster: SlurmCluster, tmp_path: Path) -> None:
    executor = opened(Resources(time_limit=60))
    try:
        bench = Bench(executor, tmp_path)
        bench.start("bash", "-c", f"echo $SLURM_JOB_ID > {tmp_path}/job; sleep 300")
        job = pid_in(tmp_path / "job")
        cluster("scontrol", "update", f"JobId={job}", "EndTime=now+1second")
        end = bench.end()
    finally:
        executor.close()
    assert re.match(r"its job reached its time limit.* \(on n\d\)$", end.lost or "")
    assert not end.failed


def test_a_preempted_trial_is_lost_and_its_node_avoided(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    executor = opened(Resources(cpus=CPUS), jobs=1)
    try:
        bench = Bench(executor, tmp_path)
        bench.start("bash", "-c", f"echo $SLURMD_NODENAME > {tmp_path}/node; sleep 300")
        wait_for_file(tmp_path / "node")
        whole = ("--exclusive", f"--nodes={len(NODES)}", "--output=/dev/null")
        cluster("sbatch", "--partition=urgent", *whole, "--wrap=sleep 2")
        end = bench.end()
        assert end.lost
        assert "preempted" in end.lost
        lost_on = (tmp_path / "node").read_text().strip()
        again = bench.shell("echo $SLURMD_NODENAME")
        assert again.stdout.path.read_text().strip() in set(NODES) - {lost_on}
    finally:
        executor.close()


def test_killing_the_owner_empties_the_queue_and_the_nodes(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    script = f"echo $$ > {tmp_path}/$SLURM_ARRAY_TASK_ID.pid; sleep 300"
    words = ("run", "--executor", "slurm", "--trials", "6", "--cpus-per-task", "4")
    process = start_aorta(*words, "--", "bash", "-c", script, cwd=tmp_path)
    assert eventually(lambda: len(list(tmp_path.glob("*.pid"))) >= 4)
    pids = [pid_in(path) for path in tmp_path.glob("*.pid")]
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    wait_until_gone(*pids)
    assert eventually(lambda: not cluster.queue())


def test_one_flag_takes_a_run_to_the_cluster(cluster: SlurmCluster, tmp_path: Path) -> None:
    done = aorta(
        "run", "--executor", "slurm", "--trials", "5", "--json", "--extra-env", "FLAG=7",
        "--", "bash", "-c", "echo $SLURMD_NODENAME $FLAG; ! mkdir once 2>/dev/null",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.exit_code == 1, done.stderr
    report = done.json()
    assert report["rate"]["of"] == 5
    assert report["rate"]["reproduced"] == 1
    logs = [(tmp_path / row["logs"] / "stdout.log").read_text() for row in report["trials"]]
    assert all(re.fullmatch(r"n\d 7\n", log) for log in logs)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--partition", "nope"), "partition nope has 0 nodes"),
        (("--cpus-per-task", "99"), "99 CPUs"),
    ],
)
def test_what_the_cluster_cannot_give_is_one_line_and_exit_5(
    options: tuple[str, str], words: str, cluster: SlurmCluster, tmp_path: Path
) -> None:
    done = aorta("run", "--executor", "slurm", *options, "--json", "--", "true", cwd=tmp_path)
    assert done.exit_code == 5
    assert words in done.json()["error"]["message"]


def test_a_cluster_that_does_not_answer_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfrastructureError, match="sinfo is not on PATH"):
        slurm_executor(Resources())


def test_a_directory_that_the_nodes_do_not_share_loses_the_trial_with_the_reason(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    executor = opened()
    try:
        bench = Bench(executor, tmp_path)
        end = bench.run("true", cwd=tmp_path / "only here")
    finally:
        executor.close()
    assert "every node must share the file system of it" in (end.lost or "")


def test_a_finished_run_leaves_no_trace_but_its_results(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    done = aorta("run", "--executor", "slurm", "--trials", "2", "--", "true", cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    assert eventually(lambda: not cluster.queue())
    assert not list((tmp_path / "results").rglob(".aorta-*"))
    assert json.loads((tmp_path / "results/command/result.json").read_text())["status"] == "done"
