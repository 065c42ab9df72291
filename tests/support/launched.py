"""Starts a `Launch` as an executor does: its environment, its directory, and its cleanup at the end."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from aorta.core.trial import Environment, TrialSpec
from aorta.runtimes import Launch, launch_for

PATIENCE = 60.0


def make_trial(
    directory: Path, environment: Environment, *argv: str, env: dict[str, str] | None = None
) -> TrialSpec:
    trial_dir, cwd = directory / "trial", directory / "work"
    trial_dir.mkdir(exist_ok=True)
    cwd.mkdir(exist_ok=True)
    return TrialSpec(
        id="t1", argv=argv, trial_dir=trial_dir, cwd=cwd, env=env or {}, environment=environment
    )


@contextmanager
def started(launch: Launch) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        launch.argv,
        cwd=launch.cwd,
        env=launch.environ(os.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        with process:
            yield process
            process.kill()
    finally:
        clean_up(launch)


def finished(trial: TrialSpec) -> subprocess.CompletedProcess[str]:
    """Run a trial to its end."""
    launch = launch_for(trial)
    with started(launch) as process:
        stdout, stderr = process.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(
        launch.argv, process.returncode, stdout.decode(), stderr.decode()
    )


def clean_up(launch: Launch) -> None:
    for command in launch.cleanup:
        subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)


def eventually(is_true: Callable[[], bool], every: float = 0.05) -> bool:
    """True as soon as it is; False if it does not become so in a generous time."""
    deadline = time.monotonic() + PATIENCE
    while not is_true():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True
