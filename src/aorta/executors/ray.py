"""Trials as tasks of Ray, which lives in processes of its own (`ray_driver.py`): it prints,
installs signal handlers, and ends the process that it is in when it loses its cluster.

For nodes that do not see a trial's directories a second driver is started whose job carries the
working directory (Ray's `working_dir`); the trial's own directory travels with it, and back.
"""

import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from multiprocessing import Pipe
from multiprocessing.connection import wait as wait_for
from pathlib import Path

from aorta.core.errors import InfrastructureError, UsageError
from aorta.core.trial import Resources, TrialEnd, TrialSpec
from aorta.executors.local import GRACE_SECONDS, prepared, unreported
from aorta.executors.slurm_commands import check_fitting, fitting

_DRIVER = Path(__file__).with_name("ray_driver.py")
_READY_SECONDS = 120.0
_CLOSE_PATIENCE = 10.0
_CLEANUP_SECONDS = 7.0
# A cluster that Ray starts for us would start a process per core before there is a trial.
_OF_ITS_OWN = {"RAY_prestart_worker_first_driver": "0"}
_ALWAYS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing leaves the machine
    "RAY_RUNTIME_ENV_IGNORE_GITIGNORE": "1",  # data that git ignores is the trial's all the same
}


@dataclass(frozen=True)
class TaskEnd:
    """What became of a task: the end of its trial, or why there is none."""

    trial_id: str
    end: TrialEnd | None = None
    lost: str | None = None
    unseen: bool = False  # the node sees neither its working directory nor its own


class _Driver:
    """A process in which Ray lives, and the tasks of one job of it."""

    def __init__(self, address: str | None, working_dir: Path | None, grace: float) -> None:
        self.where = address or os.environ.get("RAY_ADDRESS") or "a cluster of its own"
        self.nodes: list[tuple[int, int]] = []  # CPUs and GPUs of each
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the driver lives
        self.line, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                # -P: beside the driver lies a ray.py that is not Ray
                [sys.executable, "-P", str(_DRIVER), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={**_OF_ITS_OWN, **os.environ, **_ALWAYS},
                stdin=subprocess.DEVNULL,
                stdout=self._words,
                stderr=self._words,
                start_new_session=True,  # a Ctrl-C on the terminal is for us alone
            )
        try:
            self.send((address, working_dir, grace))
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while not self.nodes:
            if time.monotonic() > deadline:
                raise InfrastructureError(
                    f"Ray at {self.where} did not answer within {_READY_SECONDS:.0f} s"
                    f"{self._last_words()}"
                )
            wait_for([self.line], 1.0)
            list(self.ends())

    def ends(self) -> Iterator[TaskEnd]:
        """Of the tasks that have ended by now. InfrastructureError if the driver is gone."""
        try:
            while self.line.poll():
                news = self.line.recv()
                if isinstance(news, TaskEnd):
                    yield news
                else:
                    self.nodes = news
        except (EOFError, OSError):
            raise self._gone() from None

    def send(self, command: object) -> None:
        try:
            self.line.send(command)
        except OSError:
            raise self._gone() from None

    def close(self) -> None:
        """It cancels its tasks, and ends the cluster if it was its own, when the line closes."""
        self.line.close()
        try:
            self._process.wait(_CLEANUP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._words.close()

    def _gone(self) -> InfrastructureError:
        return InfrastructureError(f"Ray at {self.where} is gone{self._last_words()}")

    def _last_words(self) -> str:
        self._words.seek(0)
        lines = self._words.read().decode("utf-8", "replace").strip().splitlines()
        return f": {lines[-1].strip()[:300]}" if lines else ""


class RayExecutor:
    def __init__(
        self,
        address: str | None,
        resources: Resources,
        jobs: int | None = None,
        grace: float = GRACE_SECONDS,
    ) -> None:
        if find_spec("ray") is None:
            raise InfrastructureError(
                "ray is not installed here; install it with: pip install 'aorta-triage[ray]'"
            )
        if resources.tasks > 1:
            raise UsageError(
                "a task of Ray runs on one node; --nodes and --tasks-per-node are for --executor "
                "slurm: let the command start its own ranks, and give it their CPUs and GPUs"
            )
        self._address, self._resources, self._jobs, self._grace = address, resources, jobs, grace
        self._held: dict[str, TrialSpec] = {}
        self._cancelled: dict[str, float] = {}
        self._ended: list[TrialEnd] = []
        first = _Driver(address, None, grace)
        # By the working directory that the job ships.
        self._drivers: dict[Path | None, _Driver] = {None: first}
        try:
            where = f"no node of Ray at {first.where} has them: ask for less, or add a node"
            check_fitting(first.nodes, resources, where)
        except InfrastructureError:
            self.close()
            raise

    @property
    def slots(self) -> int:
        """What fits on the nodes that live, and no more than was asked for."""
        self._hear(0.0)
        fits = max(1, fitting(self._drivers[None].nodes, self._resources))
        return fits if self._jobs is None else min(fits, self._jobs)

    def start(self, trial: TrialSpec) -> None:
        trial = prepared(trial, self._resources)
        self._held[trial.id] = trial
        self._submit(trial)

    def _submit(self, trial: TrialSpec) -> None:
        """To the driver that carries its directory, if there is one."""
        driver = self._drivers.get(trial.cwd, self._drivers[None])
        driver.send(("run", trial))

    def wait(self, timeout: float | None = None) -> list[TrialEnd]:
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while not self._ended and self._held:
            left = deadline - time.monotonic()
            self._hear(min(1.0, max(0.0, left)))
            if left <= 0:
                break
        ended, self._ended = self._ended, []
        return ended

    def cancel(self, trial_id: str) -> None:
        if trial_id in self._held and trial_id not in self._cancelled:
            self._cancelled[trial_id] = time.monotonic()
            for driver in self._drivers.values():
                driver.send(("cancel", trial_id))

    def close(self) -> None:
        try:
            with suppress(InfrastructureError):
                for trial_id in list(self._held):
                    self.cancel(trial_id)
                deadline = time.monotonic() + self._grace + _CLOSE_PATIENCE
                while self._held and time.monotonic() < deadline:
                    self.wait(0.5)
        finally:
            self._held.clear()
            for driver in self._drivers.values():
                driver.close()
            self._drivers.clear()

    def _hear(self, seconds: float) -> None:
        wait_for([driver.line for driver in self._drivers.values()], seconds)
        for driver in list(self._drivers.values()):
            for news in driver.ends():
                if trial := self._held.get(news.trial_id):
                    self._take(trial, news)
        now = time.monotonic()
        for trial_id, at in list(self._cancelled.items()):
            if now - at > self._grace + _CLOSE_PATIENCE:  # told to stop, and silent
                self._end(self._held[trial_id], unreported(self._held[trial_id]))

    def _take(self, trial: TrialSpec, news: TaskEnd) -> None:
        if news.unseen and trial.id not in self._cancelled:
            try:
                if trial.cwd not in self._drivers:
                    self._drivers[trial.cwd] = _Driver(self._address, trial.cwd, self._grace)
                self._submit(trial)
            except InfrastructureError as wrong:
                why = f"{trial.cwd} cannot be seen on a node, nor sent there: {wrong.message}"
                self._end(trial, unreported(trial, lost=why))
            return
        self._end(trial, news.end or unreported(trial, lost=news.lost))

    def _end(self, trial: TrialSpec, end: TrialEnd) -> None:
        del self._held[trial.id]
        cancelled = self._cancelled.pop(trial.id, None) is not None
        self._ended.append(replace(end, cancelled=cancelled))


def moved(trial: TrialSpec, cwd: Path, trial_dir: Path) -> TrialSpec:
    """The trial with its two directories elsewhere; `/data/proj` is no part of `/data/proj2`."""
    # The trial's directory first: it often lies inside the working directory.
    there = [_renamed(trial.trial_dir, trial_dir), _renamed(trial.cwd, cwd)]

    def moved_text(text: str) -> str:
        for rename in there:
            text = rename(text)
        return text

    return replace(
        trial,
        argv=tuple(moved_text(word) for word in trial.argv),
        env={name: moved_text(value) for name, value in trial.env.items()},
        cwd=cwd,
        trial_dir=trial_dir,
    )


def _renamed(old: Path, new: Path) -> Callable[[str], str]:
    whole = re.compile(rf"(?<![\w./-]){re.escape(str(old))}(?=/|[^\w.-]|$)")
    return lambda text: whole.sub(lambda _: str(new), text)
