"""Workers that never speak, an srun that ignores SIGTERM and a controller that hangs: every trial
ends all the same, and nothing is left. Slurm's commands are scripts here.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aorta.core.trial import Resources
from aorta.executors import Executor
from aorta.executors.slurm import slurm_executor
from support.executor_contract import Bench, pid_in
from support.processes import wait_until_gone
from support.waiting import wait_until

Fake = Callable[[str, str], None]
STUBBORN = "trap '' TERM; echo $$ > '{place}/pid'; while :; do sleep 0.1; done"


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Makes a script the command of this name."""
    commands = tmp_path / "bin"
    commands.mkdir()
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")

    def make(name: str, script: str) -> None:
        path = commands / name
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    return make


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("_REPORT_SECONDS", "_CLEANUP_SECONDS", "_CLOSE_PATIENCE"):
        monkeypatch.setattr(f"aorta.executors.slurm.{name}", 0.3)
    return monkeypatch


@pytest.fixture
def steps(impatient: pytest.MonkeyPatch) -> Iterator[Executor]:
    """Inside an allocation of one node."""
    impatient.setenv("SLURM_JOB_ID", "7")
    impatient.setenv("SLURM_JOB_CPUS_PER_NODE", "2")
    executor = slurm_executor(Resources(), grace=0.1)
    yield executor
    executor.close()


@pytest.fixture
def cluster(fake: Fake, tmp_path: Path, impatient: pytest.MonkeyPatch) -> None:
    """Outside of one: a worker is submitted, and runs, as Slurm says."""
    impatient.delenv("SLURM_JOB_ID", raising=False)
    fake("scontrol", "echo 'AccountingStorageType = accounting_storage/none'")
    fake("sinfo", "echo 'n1|4|idle|(null)|main*'")
    fake("sbatch", "cat > /dev/null; echo 7")
    fake("squeue", "echo '7|0|RUNNING|n1'")
    fake("scancel", f'echo "$*" >> {tmp_path}/cancelled')


def test_an_srun_that_outlives_its_trial_and_ignores_sigterm_is_killed(
    steps: Executor, fake: Fake, tmp_path: Path
) -> None:
    fake("srun", STUBBORN.format(place=tmp_path))
    bench = Bench(steps, tmp_path)
    trial = bench.start("true")
    pid = pid_in(tmp_path / "pid")
    steps.cancel(trial.id)
    assert bench.end().cancelled
    steps.close()
    wait_until_gone(pid)


def test_closing_kills_an_srun_that_ignores_sigterm(
    steps: Executor, fake: Fake, tmp_path: Path
) -> None:
    fake("srun", STUBBORN.format(place=tmp_path))
    Bench(steps, tmp_path).start("true")
    pid = pid_in(tmp_path / "pid")
    steps.close()
    wait_until_gone(pid)
    assert not list(tmp_path.glob("slurm-*"))


def test_an_srun_that_cannot_be_started_loses_the_trial(
    steps: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "could not be started" in (Bench(steps, tmp_path).run("true").lost or "")


@pytest.mark.usefixtures("cluster")
def test_a_worker_that_runs_and_never_speaks_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("_FIRST_SIGN_SECONDS", "_FIRST_LOOK"):
        monkeypatch.setattr(f"aorta.executors.slurm.{limit}", 0.1)
    executor = slurm_executor(Resources(), 1, grace=0.1)
    try:
        Bench(executor, tmp_path).start("true")
        cancelled = tmp_path / "cancelled"
        wait_until(lambda: cancelled.exists() and "--quiet 7_0" in cancelled.read_text(), "scancel")
    finally:
        executor.close()


@pytest.mark.usefixtures("cluster")
def test_closing_does_not_wait_for_a_command_that_hangs(fake: Fake, tmp_path: Path) -> None:
    fake("sbatch", f"touch {tmp_path}/hangs; exec sleep 50")
    executor = slurm_executor(Resources(), 1, grace=0.1)
    Bench(executor, tmp_path).start("true")
    wait_until((tmp_path / "hangs").exists, "sbatch")
    began = time.monotonic()
    executor.close()
    assert time.monotonic() - began < 40
    assert not list(tmp_path.glob("slurm-*"))
