"""The files between the owner of trials and its workers, and Slurm's answers as we read them."""

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from aorta.core.trial import Environment, Resources, RuntimeKind, TrialSpec
from aorta.executors.process_tree import own_program
from aorta.executors.slurm_commands import JobState, allocated_cpus, allocated_gpus, fitting
from aorta.executors.worker import OWNER, Spool, launch_across_tasks
from aorta.runtimes.launch import launch_for
from support.executor_contract import pid_in
from support.processes import wait_until_gone
from support.waiting import patience, wait_until


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    spool = Spool(tmp_path / "spool", OWNER)
    spool.create()
    return spool


def test_each_of_many_trials_is_taken_by_exactly_one_of_many_workers(spool: Spool) -> None:
    numbers = [str(number) for number in range(1, 101)]
    for number in numbers:
        spool.request("pool", number, {"trial": number})
    taken: list[tuple[str, str]] = []

    def take(name: str) -> None:
        worker = Spool(spool.path, name)
        while (claimed := worker.claim("pool")) is not None:
            number, content = claimed
            assert content == {"trial": number}
            taken.append((number, name))

    workers = [threading.Thread(target=take, args=(f"w{n}",)) for n in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(number for number, _ in taken) == sorted(numbers)
    assert spool.claims() == dict(taken)


def test_a_trial_is_withdrawn_or_taken_and_never_both(spool: Spool) -> None:
    spool.request("pool", "1", {})
    spool.request("pool", "2", {})
    assert spool.withdraw("pool", "1")
    claimed = Spool(spool.path, "w").claim("pool")
    assert claimed is not None
    assert claimed[0] == "2"
    assert not spool.withdraw("pool", "2")


def test_a_report_is_whole_or_not_there_and_ends_the_claim(spool: Spool) -> None:
    spool.request("pool", "1", {})
    worker = Spool(spool.path, "w")
    worker.claim("pool")
    worker.report("1", {"words": "x" * 100_000})
    assert spool.names("results") == ["1"]
    assert spool.take("results", "1") == {"words": "x" * 100_000}
    assert spool.names("results") == []
    assert spool.claims() == {}
    assert list((spool.path / "drafts").iterdir()) == []


def test_only_its_owner_sees_into_a_spool(spool: Spool) -> None:
    assert spool.path.stat().st_mode & 0o077 == 0


def worker(spool: Spool, trial: TrialSpec, *how: str) -> "subprocess.Popen[bytes]":
    """A worker as Slurm would start it, and a trial that waits for it."""
    request = {
        "trial": trial,
        "srun": None,
        "grace": 0.5,
    }
    spool.request("pool", "1", request)
    spool.beat()
    program = [*own_program("aorta.executors.worker"), str(spool.path), "pool", "w1", *how]
    return subprocess.Popen(program, stdin=subprocess.DEVNULL)


def sleeping(tmp_path: Path) -> TrialSpec:
    script = f"setsid sleep 300 & echo $! > {tmp_path}/pid; wait"
    return trial_of(tmp_path, script)


def trial_of(tmp_path: Path, script: str) -> TrialSpec:
    place = tmp_path / "trial"
    place.mkdir()
    return TrialSpec(("bash", "-c", script), place, tmp_path, id="t")


def test_a_worker_runs_what_waits_and_leaves(spool: Spool, tmp_path: Path) -> None:
    trial = trial_of(tmp_path, "echo hello; exit 7")
    process = worker(spool, trial, "once")
    assert process.wait(patience()) == 0
    end = spool.take("results", "1")
    assert (end.exit_code, end.stdout.path.read_text()) == (7, "hello\n")
    assert spool.names("left") == ["w1"]


def test_near_its_time_limit_a_worker_begins_no_other_trial(
    spool: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 20))
    spool.request("pool", "2", {})
    process = worker(spool, trial_of(tmp_path, "true"))
    assert process.wait(patience()) == 0
    assert (spool.names("results"), spool.names("requests/pool")) == (["1"], ["2"])
    assert spool.names("left") == ["w1"]


def test_a_cancel_ends_the_trial_with_everything_it_started(spool: Spool, tmp_path: Path) -> None:
    process = worker(spool, sleeping(tmp_path), "once")
    runaway = pid_in(tmp_path / "pid")
    spool.put("cancels", "1")
    wait_until_gone(runaway)
    assert process.wait(patience()) == 0
    assert spool.take("results", "1").cancelled


def test_a_worker_whose_owner_closed_ends_its_trial(spool: Spool, tmp_path: Path) -> None:
    process = worker(spool, sleeping(tmp_path))
    runaway = pid_in(tmp_path / "pid")
    subprocess.run(("rm", "-r", spool.path), check=True)
    wait_until_gone(runaway)
    process.wait(patience())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_worker_that_its_scheduler_ends_reports_nothing_and_leaves_nothing(
    spool: Spool, tmp_path: Path, number: signal.Signals
) -> None:
    process = worker(spool, trial_of(tmp_path, f"echo $$ > {tmp_path}/pid; sleep 300"))
    running = pid_in(tmp_path / "pid")
    os.kill(process.pid, number)
    wait_until_gone(running)
    process.wait(patience())
    assert (spool.names("results"), spool.names("left")) == ([], [])
    assert spool.claims() == {"1": "w1"}, "whoever had it is known"


def test_a_worker_gives_signs_of_life_and_falls_silent(spool: Spool, tmp_path: Path) -> None:
    process = worker(spool, sleeping(tmp_path))
    wait_until(lambda: "w1" in spool.silence(), "a sign of life")
    process.kill()
    process.wait()
    silent = spool.silence()["w1"]
    wait_until(lambda: spool.silence()["w1"] > silent + 1.0, "its silence")


@pytest.mark.parametrize(
    ("nodes", "wanted", "trials"),
    [
        ([(4, 0)] * 4, Resources(), 16),
        ([(4, 0), (2, 0)], Resources(cpus=3), 1),
        ([(4, 2), (4, 0)], Resources(gpus=1), 2),
        ([(4, 0)] * 4, Resources(nodes=2, tasks_per_node=4), 2),
        ([(4, 0)] * 3, Resources(nodes=2, tasks_per_node=4), 1),
        ([(8, 0), (1, 0)], Resources(nodes=2), 1),
        ([(4, 0)], Resources(nodes=2), 0),
    ],
)
def test_as_many_trials_as_find_different_nodes_fit(
    nodes: list[tuple[int, int]], wanted: Resources, trials: int
) -> None:
    assert fitting(nodes, wanted) == trials


def test_an_allocation_is_read_as_slurm_writes_it() -> None:
    assert allocated_cpus({"SLURM_JOB_CPUS_PER_NODE": "4(x2),8"}) == [4, 4, 8]
    assert allocated_gpus({"SLURM_GPUS_ON_NODE": "2"}) == 2
    assert allocated_gpus({"SLURM_GPUS_PER_NODE": "a100:4"}) == 4
    assert allocated_gpus({}) == 0


@pytest.mark.parametrize("state", ["RUNNING", "PENDING", "COMPLETING", "SUSPENDED", ""])
def test_a_job_that_may_still_report_is_not_given_up(state: str) -> None:
    assert JobState(state).why_over is None


@pytest.mark.parametrize(
    "state", ["NODE_FAIL", "PREEMPTED", "TIMEOUT", "CANCELLED by 1000", "CANCELLED+"]
)
def test_a_job_that_is_over_says_why(state: str) -> None:
    assert JobState(state).why_over


def test_the_options_of_pyxis_stand_beside_those_of_the_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    srun = tmp_path / "srun"
    srun.write_text("#!/bin/sh\n")
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    box = Environment("box", RuntimeKind.PYXIS, "team/image:1", options=("--container-writable",))
    trial = TrialSpec(("train", "--steps", "3"), tmp_path, tmp_path, environment=box)
    argv = launch_across_tasks(trial, ("--nodes=2", "--ntasks-per-node=4")).argv
    assert argv[1:3] == ("--nodes=2", "--ntasks-per-node=4")
    assert {"--container-image=team/image:1", "--container-writable"} <= set(argv)
    assert argv[-3:] == trial.argv


def test_a_trial_that_needs_no_srun_is_left_as_it_is(tmp_path: Path) -> None:
    trial = TrialSpec(("train",), tmp_path, tmp_path)
    assert launch_across_tasks(trial, None) == launch_for(trial)
