"""Who leads the job of a log directory, for those who look at it from outside.

Cycle files alone cannot tell a job between two cycles from one that is over, nor a running cycle from one whose leader
was killed. The leader of each cycle signs for the directory here; where agents share it, the next leader signs over.
"""

import logging
from pathlib import Path

from aorta.core.errors import AortaError
from aorta.engine.rundir import RunDir, write_atomically
from aorta.runtimes.owner import Owner

log = logging.getLogger(__name__)


def lead(log_dir: Path) -> None:
    """This process leads the cycle that begins now."""
    run = RunDir(log_dir)
    try:
        run.describe(verb="launch", state="")
        write_atomically(run.lock, Owner.of_this_process().label)
    except AortaError as full:  # a view that cannot be kept is no reason to end a job
        log.warning("%s", full)


def leave(log_dir: Path, state: str) -> None:
    """Say how it ended, if this process was the last to lead."""
    run = RunDir(log_dir)
    try:
        if run.lock.read_text() != Owner.of_this_process().label:
            return
        run.describe(state=state)
        run.lock.unlink()
    except FileNotFoundError:
        return  # this process never led
    except (OSError, AortaError) as full:
        log.warning("how the job ended could not be written down: %s", full)
