"""The log directory of a job: `<log-dir>/cycle_<n>/` with its files, `cycle_info.json`, and whose
directory it is.

Files are named by global rank, so agents of one job may share one directory. Nothing is removed or
overwritten: behind the cycles of a run that is over the leader goes on counting. Where another
submission is still at work, or has a cycle of the same number, this one takes a folder of its own.
"""

import json
import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from aorta.core.errors import AortaError
from aorta.engine.atomic import write_whole
from aorta.engine.rundir import RunDir, write_atomically
from aorta.launch.records import CycleEvidence, CycleStart, JobEnding, Ruling
from aorta.runtimes.owner import Owner
from aorta.version import __version__

log = logging.getLogger(__name__)

_CYCLE = re.compile(r"cycle_(\d+)\Z")
_MARK = ".submission"  # in the directory of a cycle: whose it is
_complaints: set[str] = set()


def complain_once(what: str, error: OSError | AortaError) -> None:
    """A log or record that cannot be kept ends no job; one line for one kind of trouble."""
    why = (error.strerror if isinstance(error, OSError) else str(error)) or str(error)
    kind = str(error.errno) if isinstance(error, OSError) else why.split(":")[0]
    if kind not in _complaints:
        _complaints.add(kind)
        log.warning("%s could not be written or read: %s; the job goes on", what, why)


@contextmanager
def never_fatal(what: Path) -> Iterator[None]:
    """What cannot be written is said once, and the job goes on."""
    try:
        yield
    except (OSError, AortaError) as full:
        complain_once(str(what), full)


def is_there(path: Path) -> bool:
    """Whether a file exists; one on a file system that does not answer well does not."""
    try:
        return path.exists()
    except OSError:
        return False


class CycleDir:
    """The files of one cycle."""

    def __init__(self, log_dir: Path, cycle: int) -> None:
        self.path = log_dir / f"cycle_{cycle}"

    def out(self, rank: int) -> Path:
        return self.path / f"rank_{rank}.out"

    def err(self, rank: int) -> Path:
        return self.path / f"rank_{rank}.err"

    def error_file(self, rank: int) -> Path:
        return self.path / f"rank_{rank}.error.json"

    def stacks(self, rank: int) -> Path:
        return self.path / f"rank_{rank}.stacks"

    def flight_recorder(self, rank: int) -> Path:
        """In a directory of their own: what reads dumps takes every file in it."""
        return self.path / "flight_recorder" / f"rank_{rank}.json"

    @property
    def info(self) -> Path:
        return self.path / "cycle_info.json"


def next_cycle(log_dir: Path) -> int:
    """The first number that no cycle in this directory has."""
    return max((number + 1 for number in _cycles(log_dir)), default=0)


def _cycles(log_dir: Path) -> list[int]:
    with suppress(OSError):
        found = (_CYCLE.match(entry.name) for entry in log_dir.iterdir())
        return [int(match[1]) for match in found if match]
    return []


class LogDir:
    """Where one submission writes: the given directory, or a folder of its own in it."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self.path = base

    def begin(self, job_id: str) -> int:
        """For the leader of a job that begins: the number of its first cycle."""
        with suppress(OSError):
            owner = Owner.from_label(RunDir(self._base).lock.read_text())
            if owner is not None and not owner.is_gone():
                self._step_aside(job_id)
        return next_cycle(self.path)

    def prepare(self, start: CycleStart) -> CycleDir:
        """The directory of the coming cycle, with `current` pointing at it. Every agent makes its
        own: those on disks of their own need not know what is on the others.
        """
        directory = CycleDir(self.path, start.cycle)
        with never_fatal(directory.path):
            if not _mark(directory.path, start.job_id):
                self._step_aside(start.job_id)
                directory = CycleDir(self.path, start.cycle)
                _mark(directory.path, start.job_id)
            link = self.path / f".current.{os.getpid()}"
            link.unlink(missing_ok=True)
            link.symlink_to(directory.path.name)
            link.replace(self.path / "current")  # in one step: other agents do the same
        return directory

    def _step_aside(self, job_id: str) -> None:
        self.path = self._base / job_id
        log.info("another job writes to %s; the logs of this one are in %s", self._base, self.path)


def _mark(cycle: Path, job_id: str) -> bool:
    """Whether the directory of a cycle is this job's: already, or from now on."""
    cycle.mkdir(parents=True, exist_ok=True)
    try:
        with (cycle / _MARK).open("x") as mark:
            mark.write(job_id)
    except FileExistsError:  # empty while another agent is just writing it
        return (cycle / _MARK).read_text() in {"", job_id}
    return True


def sign_as_leader(log_dir: Path) -> None:
    """This process leads the cycle that begins now; those who look from outside can see whether it
    lives, which cycle files alone do not show.
    """
    run = RunDir(log_dir)
    with never_fatal(run.private):
        run.describe(verb="launch", state="")
        write_atomically(run.lock, Owner.of_this_process().label)


def sign_off(log_dir: Path, state: str) -> None:
    """Record how it ended, if this process led last."""
    run = RunDir(log_dir)
    with never_fatal(run.private), suppress(FileNotFoundError):  # this process never led
        if run.lock.read_text() == Owner.of_this_process().label:
            run.describe(state=state)
            run.lock.unlink()


def write_cycle_info(
    log_dir: Path,
    start: CycleStart,
    evidence: Sequence[CycleEvidence] = (),
    ruling: Ruling | None = None,
    *,
    ending: JobEnding | None = None,
    lost: Sequence[str] = (),
    running: bool = False,
) -> None:
    """The whole file anew. It is never half there: readers see the old one or the new one."""
    ended = ending or (ruling.ending if ruling else None)
    content = {
        "schema": "aorta.cycle/1",
        "aorta_version": __version__,
        "job_id": start.job_id,
        "cycle_id": start.cycle_id,
        "cycle": start.cycle,
        "started": _moment(start.started),
        "ended": None if running else _moment(datetime.now(UTC).timestamp()),
        "nodes": list(start.nodes),
        "ranks": [row for piece in evidence for row in piece.end_documents()],
        "restarts": start.restarts,
        "max_restarts": start.max_restarts,
        "decision": ruling.document if ruling else None,
        "decided_by": ruling.verdict.source if ruling else None,
        "decided_in_ms": ruling.elapsed_ms if ruling else None,
        "finding": ruling.verdict.finding if ruling else None,
        "ending": ended.document if ended is not None else None,
        "notes": [piece.note for piece in evidence if piece.note],
        "lost_nodes": list(lost),
    }
    directory = CycleDir(log_dir, start.cycle)
    with never_fatal(directory.info):
        directory.path.mkdir(parents=True, exist_ok=True)
        write_whole(directory.info, json.dumps(content, indent=2) + "\n")


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
