"""The command line of a trial with several ranks, and one rank by itself."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from aorta.core.trial import LOCAL, Environment, Resources, RuntimeKind, TrialSpec
from aorta.executors.ranks import across_ranks
from aorta.runtimes.launch import Launch, launch_for
from support.aorta_cli import ROOT
from support.processes import wait_until_gone
from support.waiting import patience

SOURCE = ROOT / "src"
OPTIONS = ("--nodes=2", "--ntasks-per-node=4")


def trial_in(directory: Path, environment: Environment, resources: Resources) -> TrialSpec:
    return TrialSpec(
        ("train", "--steps", "3"),
        directory,
        directory,
        environment=environment,
        resources=resources,
    )


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    srun = tmp_path / "srun"
    srun.write_text("#!/bin/sh\n")
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return Environment("box", RuntimeKind.PYXIS, "team/image:1", options=("--container-writable",))


def test_a_trial_that_needs_no_srun_is_left_as_it_is(tmp_path: Path) -> None:
    trial = trial_in(tmp_path, LOCAL, Resources())
    launch = Launch(trial.argv, trial.cwd)
    assert across_ranks(launch, trial, None) is launch


def test_the_options_of_pyxis_pass_through_beside_those_of_the_ranks(
    tmp_path: Path, box: Environment
) -> None:
    trial = trial_in(tmp_path, box, Resources(nodes=2, tasks_per_node=4))
    argv = across_ranks(launch_for(trial), trial, OPTIONS).argv
    assert argv[1:3] == OPTIONS
    assert {"--container-image=team/image:1", "--container-writable"} <= set(argv)
    assert argv[-3:] == trial.argv
    assert argv[argv.index("sh") + 1] == "-c"


def test_one_rank_in_a_container_runs_as_it_is(tmp_path: Path, box: Environment) -> None:
    trial = trial_in(tmp_path, box, Resources())
    argv = across_ranks(launch_for(trial), trial, OPTIONS).argv
    assert "sh" not in argv
    assert argv[-3:] == trial.argv


@pytest.mark.parametrize("contained", [False, True])
def test_a_rank_keeps_its_logs_and_ends_as_its_command_does(
    contained: bool, tmp_path: Path, box: Environment
) -> None:
    command = ("bash", "-c", "echo out; echo err >&2; exit 7")
    environment = box if contained else LOCAL
    trial = TrialSpec(
        command, tmp_path, tmp_path, environment=environment, resources=Resources(nodes=2)
    )
    done = _one_rank(trial)
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")
    assert (tmp_path / "rank_3.out").read_text() == "out\n"
    assert (tmp_path / "rank_3.err").read_text() == "err\n"


def test_a_rank_leaves_no_process_and_passes_a_signal_on(tmp_path: Path) -> None:
    script = f"setsid sleep 300 & echo $! > {tmp_path}/pid; kill -SEGV $$"
    trial = TrialSpec(("bash", "-c", script), tmp_path, tmp_path, resources=Resources(nodes=2))
    assert _one_rank(trial).returncode == -signal.SIGSEGV
    wait_until_gone(int((tmp_path / "pid").read_text()))


def _one_rank(trial: TrialSpec) -> "subprocess.CompletedProcess[str]":
    """What srun starts for each rank, started by hand as the rank of number 3."""
    return _rank_of(across_ranks(launch_for(trial), trial, OPTIONS).argv, trial.trial_dir)


def _rank_of(argv: Sequence[str], trial_dir: Path) -> "subprocess.CompletedProcess[str]":
    first = argv.index(sys.executable if sys.executable in argv else "sh")
    rank = {"AORTA_TRIAL_DIR": str(trial_dir), "SLURM_PROCID": "3"}
    return subprocess.run(
        argv[first:], env={**os.environ, **rank}, capture_output=True, text=True, timeout=patience()
    )


def test_a_node_that_lacks_the_command_or_a_directory_of_ours_shows_no_failure(
    tmp_path: Path,
) -> None:
    def said(command: str, trial_dir: Path, source: str = "") -> str | None:
        trial = TrialSpec((command,), trial_dir, tmp_path, resources=Resources(nodes=2))
        launch = across_ranks(launch_for(trial), trial, OPTIONS)
        if source:
            launch = replace(
                launch, argv=tuple(a.replace(str(SOURCE), source) for a in launch.argv)
            )
        done = _rank_of(launch.argv, trial_dir)
        return launch.refusal(done.returncode, done.stderr)

    assert said("false", tmp_path) is None
    assert "could not start 'no-such-program'" in str(said("no-such-program", tmp_path))
    assert "/nowhere cannot be seen here" in str(said("true", tmp_path, "/nowhere"))
    assert f"{tmp_path}/gone cannot be seen" in str(said("true", tmp_path / "gone"))


def test_a_rank_ends_though_what_it_left_behind_writes_on(tmp_path: Path) -> None:
    script = "setsid sh -c 'trap \"\" TERM; yes' & sleep 0.2; exit 7"
    trial = TrialSpec(("bash", "-c", script), tmp_path, tmp_path, resources=Resources(nodes=2))
    assert _one_rank(trial).returncode == 7
