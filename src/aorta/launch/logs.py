"""Per-cycle logs: `<log-dir>/cycle_<n>/rank_<r>.{out,err}`, and what a worker is told about its cycle.

Files are named by global rank, so agents may share one log directory. Nothing is ever removed or overwritten: where the
directory holds cycles of an earlier run, the leader goes on counting.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs, Std

from aorta.launch.output import Followed, Follower, Shown, console
from aorta.launch.records import Start

HOOK = Path(__file__).parent / "hook"
_CYCLE = re.compile(r"cycle_(\d+)\Z")


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

    def heartbeat(self, rank: int) -> Path:
        return self.path / f"rank_{rank}.heartbeat"

    def merged(self, group_rank: str) -> Path:
        """One per agent: agents may share the directory."""
        return self.path / f"merged_{group_rank}.log"

    @property
    def info(self) -> Path:
        return self.path / "cycle_info.json"


def next_cycle(log_dir: Path) -> int:
    """The first number that no cycle in this directory has."""
    found = (_CYCLE.match(entry.name) for entry in log_dir.iterdir()) if log_dir.is_dir() else ()
    return max((int(match[1]) + 1 for match in found if match), default=0)


class CycleLogs(LogsSpecs):
    """Tells torch where the workers of the coming cycle write."""

    def __init__(self, log_dir: Path, shown: Shown, *, merged: bool, watch_hangs: bool) -> None:
        super().__init__(str(log_dir))
        self._log_dir = log_dir
        self._shown = shown
        self._merged = merged
        self._watch_hangs = watch_hangs
        self._start: Start | None = None
        self._followed: list[Followed] = []
        self._group_rank = "0"

    @property
    def root_log_dir(self) -> str:
        return str(self._log_dir)

    def prepare(self, start: Start) -> CycleDir:
        """Say which cycle the next workers belong to."""
        self._start = start
        directory = CycleDir(self._log_dir, start.cycle)
        directory.path.mkdir(parents=True, exist_ok=True)
        _point_at(self._log_dir / "current", directory.path.name)
        return directory

    def follow(self) -> Follower:
        """Begin to show what the workers write."""
        assert self._start is not None
        directory = CycleDir(self._log_dir, self._start.cycle)
        merged = directory.merged(self._group_rank) if self._merged else None
        return Follower(self._followed, merged)

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        assert self._start is not None
        directory = CycleDir(self._log_dir, self._start.cycle)
        self._followed = []
        destination = LogsDest()
        for local_rank, env in envs.items():
            rank = int(env["RANK"])
            self._tell_worker(env, self._start, directory, rank)
            out, err = directory.out(rank), directory.err(rank)
            destination.stdouts[local_rank] = str(out)
            destination.stderrs[local_rank] = str(err)
            destination.error_files[local_rank] = str(directory.error_file(rank))
            tee = self._shown.tee_of(local_rank, len(envs))
            if Std.OUT in tee:
                destination.tee_stdouts[local_rank] = str(out)
            if Std.ERR in tee:
                destination.tee_stderrs[local_rank] = str(err)
            self._follow_later(local_rank, rank, (out, err), len(envs))
            self._group_rank = env["GROUP_RANK"]
        destination.filtered_stdout = str(directory.path / f"filtered_{self._group_rank}.out")
        destination.filtered_stderr = str(directory.path / f"filtered_{self._group_rank}.err")
        return destination

    def _follow_later(self, local_rank: int, rank: int, files: Sequence[Path], world: int) -> None:
        plain = self._shown.plain_of(local_rank, world)
        for stream, file in zip((Std.OUT, Std.ERR), files, strict=True):
            show = console(stream) if stream in plain else None
            self._followed.append(Followed(file, show, f"{rank}: ".encode()))

    def _tell_worker(
        self, env: dict[str, str], start: Start, directory: CycleDir, rank: int
    ) -> None:
        env["TORCHELASTIC_ERROR_FILE"] = str(directory.error_file(rank))
        env["AORTA_JOB_ID"] = start.job_id
        env["AORTA_CYCLE"] = str(start.cycle)
        env["AORTA_CYCLE_ID"] = start.cycle_id
        env["AORTA_HEARTBEAT_FILE"] = str(directory.heartbeat(rank))
        if self._watch_hangs:
            env["AORTA_STACKS_FILE"] = str(directory.stacks(rank))
            env["AORTA_FLIGHT_RECORDER_FILE"] = str(directory.flight_recorder(rank))
            env["PYTHONPATH"] = _with_hook(os.environ)


def _with_hook(environment: Mapping[str, str]) -> str:
    """Puts our `sitecustomize` first; it hands over to the user's own."""
    before = environment.get("PYTHONPATH")
    return os.pathsep.join([str(HOOK), *([before] if before else [])])


def _point_at(link: Path, target: str) -> None:
    """Replace a symbolic link in one step, whoever else does the same."""
    fresh = link.with_name(f".{link.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(link)
