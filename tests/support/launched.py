"""Starts a `Launch` as an executor does: its environment, its directory, and its cleanup at the
end.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aorta.core.trial import Environment, TrialSpec
from aorta.runtimes.launch import Launch, launch_for
from support.waiting import patience


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
        stdout, stderr = process.communicate(timeout=patience())
    return subprocess.CompletedProcess(
        launch.argv, process.returncode, stdout.decode(), stderr.decode()
    )


def clean_up(launch: Launch) -> None:
    for command in launch.cleanup:
        subprocess.run(command, capture_output=True, timeout=patience(), check=False)
