"""Slurm by its own means: `sbatch`, `srun`, `squeue`, and files in the run directory.

Inside an allocation each trial is a step, and its end is srun's end. Outside one a job array of
workers is submitted, which take one trial after another, so that the wait in the queue is paid
once; with `job_per_trial` each of them takes one. Trials, their cancels and their results are files
in a spool (`spool.py`) in the run's private directory: no port is opened.

The working directory, the run directory and this installation must lie on a file system that the
nodes share, as is usual with Slurm; a node that cannot see them loses the trial and says so.
"""

import math
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from aorta.core.errors import InfrastructureError
from aorta.core.trial import Resources, RuntimeKind, StreamEnd, TrialEnd, TrialSpec
from aorta.executors import slurm_commands as slurm
from aorta.executors.messages import (
    GRACE_SECONDS,
    MAX_LOG_BYTES,
    SharedMetrics,
    end_from_json,
    trial_to_json,
)
from aorta.executors.process_tree import own_program
from aorta.executors.slurm_commands import fitting
from aorta.executors.spool import BEAT_EVERY, OWNER, SILENT, Spool
from aorta.executors.worker import PARENT_VARIABLE

_WORKER = own_program("aorta.executors.worker")
_FIRST_LOOK, _LAST_LOOK = 1.0, 30.0  # seconds between two questions to squeue
_SLOTS_EVERY = 30.0
_FASTEST_POLL, _SLOWEST_POLL = 0.05, 0.5
_TOGETHER = 0.05  # trials started within this time are asked for together
_REPORT_SECONDS = 5.0  # for a report to arrive after the scheduler has seen the worker end
_CLOSE_PATIENCE = 10.0  # for what was cancelled to end, beyond the grace of its trial
_FAREWELL_SECONDS = 7.0
_LARGEST_ARRAY = 500
_MOST_USELESS = 3  # workers in a row that end before they have taken a trial
_LAST_WORDS = 300


def slurm_executor(
    resources: Resources,
    jobs: int | None = None,
    *,
    job_per_trial: bool = False,
    grace: float = GRACE_SECONDS,
) -> "SlurmJobs | SlurmSteps":
    """Steps of the allocation that this process is in, or jobs where it is in none."""
    if slurm.current_allocation():
        return SlurmSteps(resources, jobs, grace)
    return SlurmJobs(resources, jobs, grace, job_per_trial=job_per_trial)


@dataclass(eq=False)
class _Held:
    """A trial that was started and has not ended."""

    trial: TrialSpec
    number: str
    pool: str
    cancelled_at: float | None = None
    gone_at: float | None = None  # its worker was seen to be over
    gone: "_Gone | None" = None


@dataclass(frozen=True)
class _Gone:
    """Why a worker cannot be waited for any longer."""

    why: str
    node: str = ""
    # It went over its job's own limit: the program's end, not the scheduler's.
    out_of_memory: bool = False


class _Slurm(ABC):
    """What jobs and steps have in common: an `Executor` over a spool."""

    def __init__(self, resources: Resources, jobs: int | None, grace: float) -> None:
        self._resources = resources
        self._jobs = jobs
        self._grace = grace
        self._configuration = slurm.configuration()
        self._spool: Spool | None = None
        # Workers are looked after while nobody waits for a trial, by a thread of its own.
        self._lock = threading.RLock()
        self._news, self._closed = threading.Event(), threading.Event()
        self._failed: BaseException | None = None
        self._held: dict[str, _Held] = {}
        self._ended: list[TrialEnd] = []
        self._count = 0
        self._metrics = SharedMetrics()
        self._avoided: list[str] = []

    # -- the executor ------------------------------------------------------------------------------

    @property
    def slots(self) -> int:
        """What fits on the cluster, and no more than was asked for."""
        fits = max(1, self._fitting())
        return fits if self._jobs is None else min(fits, self._jobs)

    def start(self, trial: TrialSpec) -> None:
        """A trial that does not say what it needs gets what the user asked for."""
        resources = self._resources if trial.resources == Resources() else trial.resources
        trial = replace(
            trial,
            resources=resources,
            trial_dir=trial.trial_dir.absolute(),
            cwd=trial.cwd.absolute(),
        )
        trial.trial_dir.mkdir(parents=True, exist_ok=True)
        with self._lock:
            self._metrics.started(trial)
            self._count += 1
            number = str(self._count)
            held = self._held[number] = _Held(trial, number, self._pool_of(trial, number))
            request = {
                "trial": trial_to_json(trial),
                "srun": self._srun_of(trial),
                "grace": self._grace,
                "max_log_bytes": MAX_LOG_BYTES,
            }
            self._opened(trial).request(held.pool, number, request)
        self._news.set()

    def wait(self, timeout: float | None = None) -> list[TrialEnd]:
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        pause = _FASTEST_POLL
        while True:
            with self._lock:
                self._collect()
                if self._failed is not None:
                    self._held.clear()  # nobody is left to end them
                    raise self._failed
                if self._ended or not self._held or time.monotonic() >= deadline:
                    ended, self._ended = self._ended, []
                    return ended
            time.sleep(max(0.0, min(pause, deadline - time.monotonic())))
            pause = min(_SLOWEST_POLL, pause * 1.5)

    def cancel(self, trial_id: str) -> None:
        with self._lock:
            for held in [h for h in self._held.values() if h.trial.id == trial_id]:
                if held.cancelled_at is not None or self._spool is None:
                    continue
                held.cancelled_at = time.monotonic()
                if self._spool.withdraw(held.pool, held.number):
                    self._end(held, _end_of(held, cancelled=True))
                else:
                    self._spool.put("cancels", held.number)

    def close(self) -> None:
        """Returns within the grace and 20 s, whatever workers and scheduler do."""
        try:
            with suppress(InfrastructureError, OSError):
                for held in list(self._held.values()):
                    self.cancel(held.trial.id)
                deadline = time.monotonic() + self._grace + _CLOSE_PATIENCE
                while self._held and time.monotonic() < deadline:
                    self.wait(0.5)
        finally:
            self._closed.set()
            self._news.set()
            with self._lock:  # without a spool nobody tends any more
                spool, self._spool = self._spool, None
                self._held.clear()
            self._leave()
            if spool is not None:
                shutil.rmtree(spool.path, ignore_errors=True)

    # -- what jobs and steps do differently --------------------------------------------------------

    @abstractmethod
    def _fitting(self) -> int:
        """How many trials fit where they may run."""

    @abstractmethod
    def _pool_of(self, trial: TrialSpec, number: str) -> str:
        """The name of the workers that may take it."""

    @abstractmethod
    def _srun_of(self, trial: TrialSpec) -> Sequence[str] | None:
        """Options of the srun that the worker must start the trial with; None where it runs it
        itself.
        """

    @abstractmethod
    def _tend(self, spool: Spool) -> None:
        """Have workers for the trials that wait, and notice those that are gone."""

    @abstractmethod
    def _leave(self) -> None:
        """Nothing of ours stays in the queue or on a node."""

    # -- the spool ---------------------------------------------------------------------------------

    def _opened(self, trial: TrialSpec) -> Spool:
        if self._spool is None:
            place = _private_place(trial.trial_dir)
            for old in place.glob("slurm-*"):  # of a process that was killed: this run is ours now
                shutil.rmtree(old, ignore_errors=True)
            self._spool = Spool(place / f"slurm-{secrets.token_hex(4)}", OWNER)
            try:
                self._spool.create()
                self._spool.beat()
            except OSError as wrong:
                raise InfrastructureError(
                    f"cannot write: {wrong.strerror}", where=str(place)
                ) from None
            for target in (self._keep_beating, self._keep_tending):
                threading.Thread(target=target, args=(self._spool,), daemon=True).start()
        return self._spool

    def _keep_beating(self, spool: Spool) -> None:
        """Whatever else takes its time."""
        while not self._closed.wait(BEAT_EVERY):
            with suppress(OSError):
                spool.beat()

    def _keep_tending(self, spool: Spool) -> None:
        while not self._closed.is_set():
            self._news.wait(_SLOWEST_POLL)
            self._news.clear()
            self._closed.wait(_TOGETHER)
            try:
                with self._lock:
                    if self._spool is spool:
                        self._tend(spool)
            except BaseException as wrong:  # noqa: BLE001 - raised where somebody waits for a trial
                self._failed = wrong
                return

    def _collect(self) -> None:
        """Take the reports that have come, and end what nobody will report any more."""
        if self._spool is None or not self._held:
            return
        for number in self._spool.names("results"):
            report, held = self._spool.take("results", number), self._held.get(number)
            if held is not None:
                end = end_from_json(report["end"], held.trial)
                if end.lost:
                    self._avoid(report["node"])
                self._end(held, replace(end, cancelled=held.cancelled_at is not None))
        now = time.monotonic()
        for held in list(self._held.values()):
            if now - (held.cancelled_at or now) > self._grace + _CLOSE_PATIENCE:
                self._end(held, _end_of(held, cancelled=True))  # told to stop, and silent
            elif held.gone is not None and now - (held.gone_at or now) > _REPORT_SECONDS:
                self._give_up(held, held.gone)

    def _worker_over(self, worker: str, gone: _Gone) -> bool:
        """Whether it had a trial. Its report may be on the way; a machine without power sends
        none.
        """
        if self._spool is None:
            return False
        numbers = [n for n, claimed_by in self._spool.claims().items() if claimed_by == worker]
        found = [self._held[number] for number in numbers if number in self._held]
        for held in found:
            if held.gone is None:
                held.gone, held.gone_at = gone, time.monotonic()
        return bool(found)

    def _give_up(self, held: _Held, gone: _Gone) -> None:
        if held.cancelled_at is not None:
            self._end(held, _end_of(held, cancelled=True))
        elif gone.out_of_memory:
            killed = int(signal.SIGKILL)
            self._end(held, _end_of(held, node=gone.node, signal=killed, out_of_memory=True))
        else:
            self._avoid(gone.node)
            where = f" (on {gone.node})" if gone.node else ""
            self._end(held, _end_of(held, node=gone.node, lost=f"{gone.why}{where}"))

    def _end(self, held: _Held, end: TrialEnd) -> None:
        del self._held[held.number]
        if self._spool is not None:
            (self._spool.path / "cancels" / held.number).unlink(missing_ok=True)
        self._ended.append(self._metrics.ended(end))

    def _avoid(self, node: str) -> None:
        """A trial was lost there; the next ones go elsewhere as long as there is an elsewhere."""
        if node and "[" not in node and node not in self._avoided:
            self._avoided.append(node)


# -- outside an allocation -------------------------------------------------------------------------


@dataclass
class _Pool:
    """The workers for trials of one kind, each as `JOB_INDEX` of an array."""

    resources: Resources
    workers: set[str] = field(default_factory=set)
    useless: int = 0  # in a row ended before they had taken a trial


class SlurmJobs(_Slurm):
    """Array jobs of workers, told apart from everybody's by a name of their own."""

    def __init__(
        self, resources: Resources, jobs: int | None, grace: float, *, job_per_trial: bool = False
    ) -> None:
        super().__init__(resources, jobs, grace)
        self._once = job_per_trial
        self._name = f"aorta-{secrets.token_hex(6)}"
        self._pools: dict[str, _Pool] = {}
        self._looked_at = self._look_at = 0.0
        self._pause = _FIRST_LOOK
        self._outage = slurm.Outage()
        self._fits, self._counted_at = 1, -math.inf
        self._check_that_it_can_ever_run()
        # Ends with us, be it by kill -9, and takes what is queued out of the queue.
        self._farewell = subprocess.Popen(
            ["sh", "-c", f"read -r _; exec scancel --quiet --name={self._name}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _fitting(self) -> int:
        now = time.monotonic()
        if now - self._counted_at > _SLOTS_EVERY and self._outage.may_be_broken:
            self._counted_at = now
            try:
                self._fits = fitting(self._places(self._resources), self._resources)
            except InfrastructureError as wrong:  # what was true may still be
                self._outage.goes_on(now, wrong)
        return self._fits

    def _pool_of(self, trial: TrialSpec, number: str) -> str:
        for name, pool in self._pools.items():
            if pool.resources == trial.resources:
                return name
        name = f"pool{len(self._pools)}"
        self._pools[name] = _Pool(trial.resources)
        return name

    def _srun_of(self, trial: TrialSpec) -> Sequence[str] | None:
        """Inside the job everything is the trial's."""
        return _step_of(trial.resources) if _needs_srun(trial) else None

    def _tend(self, spool: Spool) -> None:
        if not self._held or not self._outage.may_be_broken:
            return
        began = time.monotonic()
        try:
            for worker in spool.names("left"):
                for pool in self._pools.values():
                    pool.workers.discard(worker)
            for name, pool in self._pools.items():
                self._submit_missing(spool, name, pool)
            now = time.monotonic()
            if now >= self._look_at or (self._is_doubtful(spool) and now >= self._looked_at + 5):
                self._look(spool)
        except slurm.ControllerSilentError as wrong:
            self._outage.goes_on(began, wrong)

    def _submit_missing(self, spool: Spool, name: str, pool: _Pool) -> None:
        """As many workers as there are trials, and no more than there are slots."""
        trials = sum(h.pool == name and h.gone is None for h in self._held.values())
        most = trials if self._once else min(trials, self.slots)
        missing = min(most - len(pool.workers), _LARGEST_ARRAY)
        if missing <= 0:
            return
        excluded = self._excluded(pool.resources)
        worker = '"${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"'
        words = [*map(shlex.quote, [*_WORKER, str(spool.path), name]), worker]
        script = " ".join(["exec", *words, *(["once"] if self._once else [])])
        answer = slurm.ask(
            "sbatch",
            "--parsable",
            f"--array=0-{missing - 1}",
            f"--job-name={self._name}",
            # In this option % begins a placeholder.
            f"--output={str(spool.path).replace('%', '%%')}/slurm-%A_%a.out",
            "--no-requeue",  # the engine tries again, and counts it
            *_wanted(pool.resources),
            *([f"--exclude={','.join(excluded)}"] if excluded else []),
            text=f"#!/bin/sh\n{script}\n",
        )
        self._outage.is_over()
        job = answer.strip().partition(";")[0]
        pool.workers |= {f"{job}_{index}" for index in range(missing)}
        self._look_soon()

    def _is_doubtful(self, spool: Spool) -> bool:
        """Whether a worker has missed a few beats."""
        missed = {who for who, since in spool.silence().items() if since > 3 * BEAT_EVERY}
        return any(missed & pool.workers for pool in self._pools.values())

    def _look_soon(self) -> None:
        self._pause = _FIRST_LOOK
        self._look_at = time.monotonic() + self._pause

    def _look(self, spool: Spool) -> None:
        """Ask once for all workers what became of them, ever more seldom while nothing does."""
        workers = {worker for pool in self._pools.values() for worker in pool.workers}
        self._pause = min(_LAST_LOOK, 1.5 * self._pause)
        self._looked_at = time.monotonic()
        self._look_at = self._looked_at + self._pause
        if not workers:
            return
        accounting = not self._configuration.get("AccountingStorageType", "").endswith("/none")
        states = slurm.states_of(workers, accounting=accounting)
        self._outage.is_over()
        silent = {who for who, since in spool.silence().items() if since > SILENT}
        for worker in workers:
            state = states.get(worker)
            why = state.why_over if state else "Slurm no longer knows its job"
            if why is None and worker in silent:
                slurm.ask("scancel", "--quiet", worker)
                why = f"its worker gave no sign of life for {SILENT:.0f} s"
            if why is not None:
                self._worker_ended(spool, worker, why, state)

    def _worker_ended(
        self, spool: Spool, worker: str, why: str, state: slurm.JobState | None
    ) -> None:
        pool = next(pool for pool in self._pools.values() if worker in pool.workers)
        pool.workers.discard(worker)
        said = _last_words(spool.path / f"slurm-{worker}.out")
        memory = state is not None and state.out_of_memory
        node = state.nodes if state is not None and state.name != "COMPLETED" else ""
        gone = _Gone(why + said, node, out_of_memory=memory)
        self._look_soon()
        if self._worker_over(worker, gone):
            pool.useless = 0
        elif worker not in spool.silence():
            self._avoid(node)
            pool.useless += 1
            if pool.useless >= _MOST_USELESS:
                self._give_up_waiting(spool, pool, gone)

    def _give_up_waiting(self, spool: Spool, pool: _Pool, gone: _Gone) -> None:
        """Workers end one after the other before they have taken a trial: a further one would
        too.
        """
        pool.useless = 0
        for held in list(self._held.values()):
            if self._pools[held.pool] is pool and spool.withdraw(held.pool, held.number):
                self._give_up(held, gone)

    def _leave(self) -> None:
        if self._farewell.stdin is not None:
            self._farewell.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._farewell.wait(_FAREWELL_SECONDS)

    def _places(self, resources: Resources) -> list[tuple[int, int]]:
        nodes = [node for node in slurm.nodes_of(resources.partition) if node.usable]
        kept = [node for node in nodes if node.name not in self._avoided]
        return [(node.cpus, node.gpus) for node in kept or nodes]

    def _excluded(self, resources: Resources) -> list[str]:
        """The nodes to stay away from, unless nothing would be left or the nodes are chosen."""
        if resources.nodelist:
            return []
        if self._avoided:
            nodes = slurm.nodes_of(resources.partition)
            left = [n for n in nodes if n.usable and n.name not in self._avoided]
            if not fitting([(node.cpus, node.gpus) for node in left], resources):
                self._avoided.clear()
        return self._avoided

    def _check_that_it_can_ever_run(self) -> None:
        wanted = self._resources
        nodes = slurm.nodes_of(wanted.partition)
        if not fitting([(node.cpus, node.gpus) for node in nodes], wanted):
            where = f"partition {wanted.partition}" if wanted.partition else "the default partition"
            raise InfrastructureError(
                f"{_asks_for(wanted)}; {where} has {len(nodes)} nodes and none that fit: ask for "
                "less, or name another with --partition (sinfo lists them)"
            )


# -- inside an allocation --------------------------------------------------------------------------


class SlurmSteps(_Slurm):
    """One srun a trial, on resources of its own."""

    def __init__(self, resources: Resources, jobs: int | None, grace: float) -> None:
        super().__init__(resources, jobs, grace)
        self._running: dict[str, subprocess.Popen[bytes]] = {}  # by worker
        cpus, gpus = slurm.allocated_cpus(os.environ), slurm.allocated_gpus(os.environ)
        self._places = [(each, gpus) for each in cpus]
        if not fitting(self._places, resources):
            raise InfrastructureError(
                f"{_asks_for(resources)}; the allocation {slurm.current_allocation()} has "
                f"{len(cpus)} nodes with {max(cpus)} CPUs and {gpus} GPUs: ask for less, or for a "
                "larger one"
            )

    def _fitting(self) -> int:
        kept = self._places[: len(self._places) - len(self._avoided)]
        return fitting(kept or self._places, self._resources)

    def _pool_of(self, trial: TrialSpec, number: str) -> str:
        return f"step{number}"

    def _srun_of(self, trial: TrialSpec) -> Sequence[str] | None:
        return self._options(trial.resources) if _needs_srun(trial) else None

    def start(self, trial: TrialSpec) -> None:
        with self._lock:
            super().start(trial)
            self._begin_step(next(reversed(self._held.values())))

    def _begin_step(self, held: _Held) -> None:
        """A trial with an srun of its own is kept from here: a step around a step would hold what
        it needs.
        """
        outer, fate = ["setpriv", "--pdeathsig=TERM", "srun"], {}
        if _needs_srun(held.trial):
            outer, fate = [], {PARENT_VARIABLE: str(os.getpid())}
        else:
            outer += self._options(held.trial.resources)
        spool = self._opened(held.trial)
        with (spool.path / f"{held.pool}.out").open("wb") as log:
            self._running[held.pool] = subprocess.Popen(
                [*outer, *_WORKER, str(spool.path), held.pool, held.pool, "once"],
                env={**os.environ, **fate},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C on the terminal is for us alone
            )

    def _options(self, resources: Resources) -> list[str]:
        if len(self._avoided) >= len(self._places):
            self._avoided.clear()
        avoided = [] if resources.nodelist else self._avoided
        exclude = [f"--exclude={','.join(avoided)}"] if avoided else []
        # Started inside a step, we share what that step holds: it would never be free.
        overlap = ["--overlap"] if os.environ.get("SLURM_STEP_ID") else []
        # An allocation that outlives its nodes says so to srun by a variable, and a step that
        # outlives its node never ends.
        fate = ["--no-kill=off"]
        return ["--exact", *overlap, *fate, "--input=none", *_step_of(resources), *exclude]

    def _tend(self, spool: Spool) -> None:
        silent = {who for who, since in spool.silence().items() if since > SILENT}
        for worker, process in list(self._running.items()):
            if worker in silent and process.poll() is None:
                process.kill()
                process.wait()
            if process.poll() is not None:
                del self._running[worker]
                self._step_over(spool, worker)

    def _step_over(self, spool: Spool, worker: str) -> None:
        log = spool.path / f"{worker}.out"
        said = _last_words(log)
        log.unlink(missing_ok=True)
        memory = slurm.OOM_IN_LOG in said
        gone = _Gone(f"its step ended without a report{said}", _node_in(said), out_of_memory=memory)
        for held in self._held.values():
            if held.pool == worker and held.gone is None:
                held.gone, held.gone_at = gone, time.monotonic()
                spool.withdraw(held.pool, held.number)

    def _leave(self) -> None:
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            try:
                process.wait(_FAREWELL_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()


# -- words for Slurm, and from it ------------------------------------------------------------------


def _needs_srun(trial: TrialSpec) -> bool:
    return trial.resources.tasks > 1 or trial.environment.kind is RuntimeKind.PYXIS


def _wanted(resources: Resources) -> Iterator[str]:
    yield from _sizes(resources)
    if resources.partition:
        yield f"--partition={resources.partition}"
    if resources.account:
        yield f"--account={resources.account}"
    if resources.time_limit is not None:
        yield f"--time={math.ceil(resources.time_limit / 60)}"


def _sizes(resources: Resources) -> list[str]:
    return [
        f"--nodes={resources.nodes}",
        f"--ntasks-per-node={resources.tasks_per_node}",
        f"--cpus-per-task={resources.cpus}",
        *([f"--gpus-per-node={resources.gpus}"] if resources.gpus else []),
        *([f"--nodelist={','.join(resources.nodelist)}"] if resources.nodelist else []),
    ]


def _step_of(resources: Resources) -> list[str]:
    """One rank that fails ends the others: they would wait for it until the time is up."""
    # The order of chosen nodes is that of their ranks, which Slurm would sort by name.
    order = ["--distribution=arbitrary"] if resources.nodelist and resources.tasks > 1 else []
    return [*_sizes(resources), f"--ntasks={resources.tasks}", "--kill-on-bad-exit=1", *order]


def _asks_for(wanted: Resources) -> str:
    return (
        f"a trial asks for {wanted.nodes} nodes with {wanted.cpus * wanted.tasks_per_node} CPUs "
        f"and {wanted.gpus} GPUs each"
    )


def _last_words(log: Path) -> str:
    """What the scheduler or the worker said."""
    with suppress(OSError):
        if said := log.read_text(errors="replace").strip():
            return f": {said[-_LAST_WORDS:]}"
    return ""


def _node_in(said: str) -> str:
    """The node that srun complains of: `srun: error: n2: task 0: Killed`, or `Node failure on
    n2`.
    """
    for line in said.splitlines():
        words = line.partition("error: ")[2]
        if words.startswith("Node failure on "):
            return words.removeprefix("Node failure on ").split()[0]
        if ": task" in words:
            return words.partition(":")[0]
    return ""


def _private_place(trial_dir: Path) -> Path:
    """The private directory of the run that this trial is of; where it is of none, beside it."""
    for parent in trial_dir.parents:
        if parent.name == ".aorta":
            return parent
        if (parent / ".aorta").is_dir():
            return parent / ".aorta"
    return trial_dir.parent


def _end_of(held: _Held, node: str = "", **facts: object) -> TrialEnd:
    """The end of a trial that could not speak for itself."""
    directory = held.trial.trial_dir
    known: Mapping[str, object] = {"started_at": time.time(), "host": node, **facts}
    streams = (StreamEnd(directory / "stdout.log"), StreamEnd(directory / "stderr.log"))
    return TrialEnd(held.trial.id, *streams, **known)  # type: ignore[arg-type]
