"""A worker on a node of a cluster: takes one trial after another from a spool, and runs each as
anywhere. Started as `worker SPOOL POOL NAME [once]`.

It ends when the owner closes or falls silent, when nothing has waited for a while, when its time
limit is near, or when a trial was lost here and the next should be tried elsewhere. When the
scheduler wants it gone, it ends the whole tree of its trial first and reports nothing: the
scheduler says why. Standard library only.

Trials lie between their owner and its workers as files of one directory that all of them see:

    requests/POOL/NUMBER    a trial that waits; a worker takes it by renaming it to
    claims/NUMBER.WORKER    a trial that this worker has
    cancels/NUMBER          nobody wants it any more
    results/NUMBER          how it ended
    beats/WHO.COUNT         a higher count as long as WHO lives: a worker, or `owner`
    left/WORKER             this worker takes no trial any more

Made for NFS, whose clients remember what they saw: a name is never used twice, a file appears whole
by a rename and is never written again, and nobody asks for a name that may not be there yet.
Directories are listed instead, after a change of our own, which makes a client ask the server
anew. Numbers, pools and workers are words without a dot.
"""

import os
import pickle
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from aorta.core.errors import AortaError
from aorta.core.trial import RuntimeKind, TrialEnd, TrialSpec
from aorta.executors.local import LocalExecutor, unreported
from aorta.runtimes.launch import Launch, launch_for

END_TIME_VARIABLE = "SLURM_JOB_END_TIME"  # seconds since the epoch
BEAT_EVERY = 5.0
SILENT = 90.0  # seconds without a beat after which somebody is taken for dead
OWNER = "owner"
_FOLDERS = ("requests", "claims", "cancels", "results", "beats", "left", "drafts")
IDLE_SECONDS = 60.0  # to wait for another trial: less than most queues make one wait
_LOOK_EVERY = 0.5
_MARGIN = 30.0  # seconds before the time limit in which nothing is begun
_DISMISSAL_SECONDS = 1.0
_ENDING = (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP)


class Spool:
    def __init__(self, path: Path, who: str) -> None:
        self.path = path
        self.who = who
        self._names = (f"{who}-{number}" for number in count())
        self._beats = 0
        self._beat_at = 0.0
        self._seen: dict[str, tuple[int, float]] = {}

    def create(self) -> None:
        """For its owner alone: requests hold the variables of trials."""
        self.path.mkdir(mode=0o700)
        for folder in _FOLDERS:
            (self.path / folder).mkdir()

    # -- files -------------------------------------------------------------------------------------

    def put(self, folder: str, name: str, content: Any = None) -> None:
        """A file that is there whole or not at all."""
        draft = self.path / "drafts" / next(self._names)
        with draft.open("xb") as file:
            pickle.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self.path / folder / name)

    def names(self, folder: str) -> list[str]:
        """What is there now. FileNotFoundError once the owner has closed."""
        place = self.path / folder
        looking = place / f".{next(self._names)}"
        looking.touch()
        looking.unlink()
        names = os.listdir(place)  # noqa: PTH208
        return sorted(name for name in names if not name.startswith("."))

    def take(self, folder: str, name: str) -> Any:
        """What stands in it; the file is gone afterwards."""
        path = self.path / folder / name
        content = _content(path)
        path.unlink(missing_ok=True)
        return content

    # -- the owner ---------------------------------------------------------------------------------

    def request(self, pool: str, number: str, content: Any) -> None:
        with suppress(FileExistsError):
            (self.path / "requests" / pool).mkdir()
        self.put(f"requests/{pool}", number, content)

    def withdraw(self, pool: str, number: str) -> bool:
        """Whether it was still waiting, and is now gone; otherwise a worker has it."""
        try:
            (self.path / "requests" / pool / number).unlink()
        except FileNotFoundError:
            return False
        return True

    def claims(self) -> dict[str, str]:
        """Which worker has which trial."""
        pairs = (name.partition(".") for name in self.names("claims"))
        return {number: worker for number, _, worker in pairs}

    # -- a worker ----------------------------------------------------------------------------------

    def claim(self, pool: str) -> tuple[str, Any] | None:
        """The oldest trial that waits, and its number; None if none does."""
        for number in sorted(self.names(f"requests/{pool}"), key=int):
            place = self.path / "claims" / f"{number}.{self.who}"
            try:
                (self.path / "requests" / pool / number).rename(place)
            except FileNotFoundError:
                # Another was faster; or it was us, and NFS lost the answer to our first attempt.
                if place.name not in self.names("claims"):
                    continue
            return number, _content(place)
        return None

    def report(self, number: str, content: Any) -> None:
        self.put("results", number, content)
        (self.path / "claims" / f"{number}.{self.who}").unlink(missing_ok=True)

    # -- who lives ---------------------------------------------------------------------------------

    def beat(self) -> None:
        """Say so, if it is time."""
        if time.monotonic() - self._beat_at < BEAT_EVERY:
            return
        self._beat_at = time.monotonic()
        (self.path / "beats" / f"{self.who}.{self._beats + 1}").touch()
        (self.path / "beats" / f"{self.who}.{self._beats}").unlink(missing_ok=True)
        self._beats += 1

    def silence(self) -> dict[str, float]:
        """For everybody who ever gave a sign of life, for how many seconds none was seen."""
        now = time.monotonic()
        for name in self.names("beats"):
            who, _, number = name.rpartition(".")
            if int(number) > self._seen.get(who, (0, now))[0]:
                self._seen[who] = int(number), now
        return {who: now - at for who, (_, at) in self._seen.items()}


def _content(path: Path) -> Any:
    return pickle.loads(path.read_bytes())  # noqa: S301 - of our own user, mode 700


class _OwnerGoneError(Exception):
    """Nobody waits for a trial any more."""


class Worker:
    def __init__(self, spool: Spool, pool: str) -> None:
        self._spool, self._pool = spool, pool
        self._dismissed = False  # by the scheduler
        self._longest = 0.0
        signal.signal(signal.SIGTERM, self._dismiss)

    def _dismiss(self, *_: object) -> None:
        self._dismissed = True

    def run(self, *, once: bool) -> None:
        """Until there is a reason to end."""
        with suppress(FileNotFoundError, _OwnerGoneError):
            idle_since = time.monotonic()
            while not self._dismissed and self._has_time():
                self._is_cancelled("")
                claimed = self._spool.claim(self._pool)
                if claimed is None:
                    if time.monotonic() - idle_since > IDLE_SECONDS:
                        break
                    time.sleep(_LOOK_EVERY / 2)
                    continue
                if self._serve(*claimed) or once:
                    break
                idle_since = time.monotonic()
            if not self._dismissed:
                self._spool.put("left", self._spool.who)

    def _has_time(self) -> bool:
        end = os.environ.get(END_TIME_VARIABLE, "")
        left = float(end) - time.time() if end.isdecimal() else float("inf")
        return not self._longest or left > self._longest + _MARGIN

    def _serve(self, number: str, request: Mapping[str, Any]) -> bool:
        """Whether the trial was lost here."""
        began = time.monotonic()
        end = self._tried(number, request["trial"], request["srun"], request["grace"])
        self._longest = max(self._longest, time.monotonic() - began)
        if not self._dismissed:
            self._spool.report(number, replace(end, host=_node()))
        return end.lost is not None

    def _tried(
        self, number: str, trial: TrialSpec, srun: Sequence[str] | None, grace: float
    ) -> TrialEnd:
        """The end of a trial, of whose processes nothing is left, however this is left."""
        if not (trial.cwd.is_dir() and trial.trial_dir.is_dir()):
            return unreported(trial, lost=_unseen(f"{trial.trial_dir} or {trial.cwd}"))
        launch = partial(launch_across_tasks, srun=srun)
        with closing(LocalExecutor(grace=grace, launch=launch)) as executor:
            try:
                executor.start(trial)
            except AortaError as wrong:
                return unreported(trial, lost=str(wrong))
            while not (ended := executor.wait(_LOOK_EVERY)):
                if self._is_cancelled(number):
                    executor.cancel(trial.id)
        # Schedulers end jobs with such signals; the kernel ends them for want of memory.
        if not ended[0].out_of_memory and ended[0].ended.signal_number in _ENDING:
            # Of all processes of a job: the trial's may end before we hear of it.
            deadline = time.monotonic() + _DISMISSAL_SECONDS
            while not self._dismissed and time.monotonic() < deadline:
                time.sleep(0.02)
        return ended[0]

    def _is_cancelled(self, number: str) -> bool:
        """By its owner, or by the scheduler with us. Raises _OwnerGoneError if nobody is there."""
        try:
            self._spool.beat()
            if self._spool.silence().get(OWNER, 0.0) > SILENT:
                raise _OwnerGoneError
            return self._dismissed or number in self._spool.names("cancels")
        except OSError:
            if not self._spool.path.is_dir():
                raise _OwnerGoneError from None
            return self._dismissed  # a file system that hiccups ends no trial


def launch_across_tasks(trial: TrialSpec, srun: Sequence[str] | None) -> Launch:
    """The launch on all tasks of the trial through `srun OPTIONS`, whose output is that of all of
    them; as anywhere without any."""
    launch = launch_for(trial)
    if srun is None:
        return launch
    # With all that knows containers, which the worker of a usual trial need not load.
    from aorta.runtimes.launch import ENDED_BY_SLURM

    if trial.environment.kind is RuntimeKind.PYXIS:  # its launch is an srun already
        return replace(launch, argv=(launch.argv[0], *srun, *launch.argv[1:]))
    refusals = (*launch.refusals, *ENDED_BY_SLURM)
    return replace(launch, argv=("srun", *srun, *launch.argv), refusals=refusals)


def _unseen(what: str) -> str:
    return f"{what} cannot be seen on {_node()}; every node must share the file system of it"


def _node() -> str:
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def main() -> None:
    """Entered by whatever a scheduler starts; says on stderr why it could not, and exits with 1."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    place, pool, name, *how = sys.argv[1:]
    if not Path(place).is_dir():
        sys.exit(f"aorta: {_unseen(place)}")
    Worker(Spool(Path(place), name), pool).run(once=how == ["once"])
