"""What a real Slurm writes when tasks fail, given to attribution as it stands."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aorta.attribution import Attribution, Evidence, LogTail, attribute
from support.services.slurm import SlurmCluster
from support.waiting import patience

pytestmark = pytest.mark.xdist_group("slurm")


def written_by(cluster: SlurmCluster, *command: str) -> str:
    done = subprocess.run(
        ["srun", "--ntasks=2", "--nodes=2", *command],
        capture_output=True,
        text=True,
        env={**os.environ, **cluster.environ},
        timeout=patience(),
        check=False,
    )
    return done.stdout + done.stderr


def told(text: str) -> Attribution:
    return attribute(Evidence(tails=(LogTail(text),)))


@pytest.mark.parametrize(
    ("how", "kind"), [("kill -SEGV $$", "segfault"), ("kill -KILL $$", "killed"), ("kill -ABRT $$", "abort")]
)  # fmt: skip
def test_a_step_that_srun_ends_after_a_crash_was_cancelled_by_nobody(
    slurm_cluster: SlurmCluster, how: str, kind: str
) -> None:
    script = f'[ "$SLURM_PROCID" = 1 ] && {how}; exec sleep 60'
    text = written_by(slurm_cluster, "--kill-on-bad-exit=1", "/bin/sh", "-c", script)
    result = told(text)
    assert (result.finding.failure_class, result.finding.root.rank) == (kind, 1), text
    assert result.decision.action == "RESTART"


IMPORTS_WHAT_IS_NOT_THERE = """
import os, sys, time, traceback
try:
    import no_such_module_here
except ImportError:
    traceback.print_exc()
    open(os.environ["SLURM_PROCID"], "w").close()
    while not (os.path.exists("0") and os.path.exists("1")):  # or srun ends the other before it has said so
        time.sleep(0.01)
    sys.exit(1)
"""


def test_an_import_error_under_srun_stops_the_job_for_what_it_is(
    slurm_cluster: SlurmCluster, tmp_path: Path
) -> None:
    text = written_by(
        slurm_cluster,
        "--kill-on-bad-exit=1",
        f"--chdir={tmp_path}",
        sys.executable,
        "-c",
        IMPORTS_WHAT_IS_NOT_THERE,
    )
    result = told(text)
    assert result.finding.failure_class == "import_error", text
    assert result.decision.action == "STOP"


def test_a_job_that_a_person_cancels_is_stopped(
    slurm_cluster: SlurmCluster, tmp_path: Path
) -> None:
    log = tmp_path / "job.log"
    submitted = subprocess.run(
        [
            "sbatch",
            "--parsable",
            f"--output={log}",
            "--wrap",
            # The script outlives its step, or it may be gone before Slurm says of the job that it
            # was cancelled.
            "srun /bin/sh -c 'echo begun; exec sleep 60'; sleep 60",
        ],
        capture_output=True,
        text=True,
        env={**os.environ, **slurm_cluster.environ},
        timeout=patience(),
        check=True,
    )
    deadline = time.monotonic() + patience(60)
    while not (log.exists() and "begun" in log.read_text()) and time.monotonic() < deadline:
        time.sleep(0.1)
    subprocess.run(
        ["scancel", submitted.stdout.strip()],
        env={**os.environ, **slurm_cluster.environ},
        timeout=patience(),
        check=True,
    )
    while "JOB" not in log.read_text() and time.monotonic() < deadline:
        time.sleep(0.1)
    result = told(log.read_text())
    assert (result.finding.failure_class, result.decision.action) == ("cancelled", "STOP"), (
        log.read_text()
    )
    slurm_cluster.wait_until_idle()
