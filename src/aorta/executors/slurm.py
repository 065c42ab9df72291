"""Slurm by its own means: `sbatch`, `srun`, `squeue`, and files in the run directory; no port.

Inside an allocation each trial is a step. Outside one a job array of workers takes one trial after
another from a spool (`worker.py`), so that the queue is waited for once; with `job_per_trial` each
takes one. Nodes must share the file system of the working directory, the run directory and this
installation; one that cannot see them loses the trial and says so.
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
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue

from aorta.core.errors import InfrastructureError
from aorta.core.trial import Resources, RuntimeKind, TrialEnd, TrialSpec
from aorta.executors import slurm_commands as slurm
from aorta.executors.local import GRACE_SECONDS, prepared, unreported
from aorta.executors.process_tree import own_program
from aorta.executors.slurm_commands import fitting
from aorta.executors.worker import BEAT_EVERY, OWNER, SILENT, Spool

_WORKER = own_program("aorta.executors.worker")
_FIRST_LOOK, _LAST_LOOK = 1.0, 30.0  # seconds between two questions to squeue
_SLOTS_EVERY = 30.0
_FASTEST_POLL, _SLOWEST_POLL = 0.05, 0.5
_TOGETHER = 0.05  # trials started within this time are asked for together
_REPORT_SECONDS = 5.0  # for a report to arrive after the scheduler has seen the worker end
_FIRST_SIGN_SECONDS = 300.0  # from the start of a worker to its first sign of life
_CLOSE_PATIENCE = 10.0  # for what was cancelled to end, beyond the grace of its trial
_CLEANUP_SECONDS = 7.0
_SHORTEST_PAUSE, _LONGEST_SILENCE = 2.0, 300.0  # of a controller that does not answer
_LARGEST_ARRAY = 500
_MOST_USELESS = 3  # workers in a row that end before they have taken a trial
_LOG_TAIL = 300


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


@dataclass(frozen=True)
class _Gone:
    """Why a worker cannot be waited for any longer."""

    why: str
    node: str = ""
    out_of_memory: bool = False  # over its job's own limit: the program's end, not the scheduler's
    at: float = field(default_factory=time.monotonic)


@dataclass(eq=False)
class _Held:
    """A trial that was started and has not ended."""

    trial: TrialSpec
    number: str
    pool: str
    cancelled_at: float | None = None
    gone: _Gone | None = None  # its worker was seen to be over


class _Slurm(ABC):
    """What jobs and steps have in common: an `Executor` over a spool.

    One thread (`_serve`) owns trials, workers and spool; only two queues and `_fits` are shared.
    """

    def __init__(self, resources: Resources, jobs: int | None, grace: float) -> None:
        self._resources, self._jobs, self._grace = resources, jobs, grace
        self._fits = 1  # trials at once, as was last counted
        self._closed = threading.Event()
        self._calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._ends: SimpleQueue[TrialEnd | BaseException] = SimpleQueue()
        # Of the callers: the trials whose end they have not seen.
        self._started: set[str] = set()
        self._thread: threading.Thread | None = None
        # Of the thread.
        self._spool: Spool
        self._held: dict[str, _Held] = {}  # by number
        self._numbers = count(1)
        self._avoided: list[str] = []

    # -- what callers see --------------------------------------------------------------------------

    @property
    def slots(self) -> int:
        """What fits on the cluster, and no more than was asked for."""
        fits = max(1, self._fits)
        return fits if self._jobs is None else min(fits, self._jobs)

    def start(self, trial: TrialSpec) -> None:
        trial = prepared(trial, self._resources)
        if self._thread is None:
            self._spool = _new_spool(trial.trial_dir)
            threading.Thread(target=self._keep_beating, daemon=True).start()
            self._thread = threading.Thread(target=self._serve, daemon=True)
            self._thread.start()
        self._started.add(trial.id)
        self._calls.put(partial(self._begin, trial))

    def wait(self, timeout: float | None = None) -> list[TrialEnd]:
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        ended: list[TrialEnd] = []
        while self._started:
            left = 0.0 if ended else min(threading.TIMEOUT_MAX, deadline - time.monotonic())
            try:
                end = self._ends.get(timeout=max(0.0, left))
            except Empty:
                break
            if isinstance(end, BaseException):
                self._ends.put(end)  # for the next wait: nobody is left to end a trial
                if ended:
                    break
                raise end
            self._started.discard(end.trial_id)
            ended.append(end)
        return ended

    def cancel(self, trial_id: str) -> None:
        self._calls.put(partial(self._cancel, trial_id))

    def close(self) -> None:
        """Returns within the grace and 25 s, whatever workers and scheduler do."""
        try:
            with suppress(InfrastructureError, OSError):
                for trial_id in self._started:
                    self.cancel(trial_id)
                deadline = time.monotonic() + self._grace + _CLOSE_PATIENCE
                while self._started and time.monotonic() < deadline:
                    self.wait(0.5)
        finally:
            self._closed.set()
            self._started.clear()
            if self._thread is not None:
                self._calls.put(lambda: None)
                self._thread.join(_CLEANUP_SECONDS)
            self._leave()
            if self._thread is not None:
                shutil.rmtree(self._spool.path, ignore_errors=True)

    # -- what jobs and steps do differently --------------------------------------------------------

    @abstractmethod
    def _place_of(self, trial: TrialSpec, number: str) -> tuple[str, Sequence[str] | None]:
        """The name of the workers that may take it, and the options of the srun that they start it
        with; None: it needs none."""

    @abstractmethod
    def _tend(self) -> None:
        """Have workers for the trials that wait, and notice those that are gone."""

    @abstractmethod
    def _leave(self) -> None:
        """Nothing of ours stays in the queue or on a node. Called when the thread has ended."""

    # -- the thread --------------------------------------------------------------------------------

    def _keep_beating(self) -> None:
        """Whatever else takes its time. Nobody else beats."""
        while not self._closed.wait(BEAT_EVERY):
            with suppress(OSError):
                self._spool.beat()

    def _serve(self) -> None:
        pause = _FASTEST_POLL
        try:
            while not self._closed.is_set():
                is_news = self._called(pause)
                before = len(self._held)
                self._tend()
                self._collect()
                is_news = is_news or len(self._held) != before
                pause = _FASTEST_POLL if is_news else min(_SLOWEST_POLL, pause * 1.5)
        except BaseException as wrong:  # noqa: BLE001 - raised where somebody waits for a trial
            self._ends.put(wrong)

    def _called(self, pause: float) -> bool:
        """Do what callers ask for now and right after it; whether that was anything."""
        any_call = False
        with suppress(Empty):
            while True:
                self._calls.get(timeout=_TOGETHER if any_call else pause)()
                any_call = True
        return any_call

    def _begin(self, trial: TrialSpec) -> _Held:
        number = str(next(self._numbers))
        pool, srun = self._place_of(trial, number)
        held = self._held[number] = _Held(trial, number, pool)
        self._spool.request(pool, number, {"trial": trial, "srun": srun, "grace": self._grace})
        return held

    def _cancel(self, trial_id: str) -> None:
        for held in list(self._held.values()):
            if held.trial.id == trial_id and held.cancelled_at is None:
                held.cancelled_at = time.monotonic()
                if self._spool.withdraw(held.pool, held.number):
                    self._end(held, unreported(held.trial))
                else:
                    self._spool.put("cancels", held.number)

    def _collect(self) -> None:
        """Take the reports that have come, and end what nobody will report any more."""
        if not self._held:
            return
        for number in self._spool.names("results"):
            end, held = self._spool.take("results", number), self._held.get(number)
            if held is not None:
                if end.lost:
                    self._avoid(end.host)
                self._end(held, end)
        now = time.monotonic()
        for held in list(self._held.values()):
            if now - (held.cancelled_at or now) > self._grace + _CLOSE_PATIENCE:
                self._end(held, unreported(held.trial))  # told to stop, and silent
            elif held.gone is not None and now - held.gone.at > _REPORT_SECONDS:
                self._give_up(held, held.gone)

    def _give_up(self, held: _Held, gone: _Gone) -> None:
        """End a trial whose worker is gone: a report that was on the way would have come."""
        end = unreported(held.trial, host=gone.node)
        if gone.out_of_memory:
            end = replace(end, signal=int(signal.SIGKILL), out_of_memory=True)
        elif held.cancelled_at is None:
            self._avoid(gone.node)
            end = replace(end, lost=gone.why + (f" (on {gone.node})" if gone.node else ""))
        self._end(held, end)

    def _end(self, held: _Held, end: TrialEnd) -> None:
        del self._held[held.number]
        (self._spool.path / "cancels" / held.number).unlink(missing_ok=True)
        self._ends.put(replace(end, cancelled=held.cancelled_at is not None))

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
        self._look_at = 0.0
        self._pause = _FIRST_LOOK
        self._seen_running: dict[str, float] = {}  # worker -> since when
        self._silent_since: float | None = None  # nobody has answered
        self._ask_again_at = 0.0
        self._count_slots()
        name = resources.partition
        where = f"partition {name}" if name else "the default partition"
        slurm.check_fitting(
            [node.size for node in self._nodes],
            resources,
            f"{where} has {len(self._nodes)} nodes and none that fit: ask for less, or name "
            "another with --partition (sinfo lists them)",
        )
        # Ends with us, be it by kill -9, and takes what is queued out of the queue.
        self._cleanup = subprocess.Popen(
            ["sh", "-c", f"read -r _; exec scancel --quiet --name={self._name}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _place_of(self, trial: TrialSpec, number: str) -> tuple[str, Sequence[str] | None]:
        """Inside the job everything is the trial's."""
        known = (name for name, pool in self._pools.items() if pool.resources == trial.resources)
        name = next(known, f"pool{len(self._pools)}")
        self._pools.setdefault(name, _Pool(trial.resources))
        return name, slurm.step_options(trial.resources) if _needs_srun(trial) else None

    def _tend(self) -> None:
        began = time.monotonic()
        if not self._held or began < self._ask_again_at:
            return
        try:
            if began - self._counted_at > _SLOTS_EVERY:
                self._count_slots()
            for worker in self._spool.names("left"):
                for pool in self._pools.values():
                    pool.workers.discard(worker)
            for name, pool in self._pools.items():
                self._submit_missing(name, pool)
            if began >= self._look_at:
                self._look()
        except slurm.ControllerSilentError:
            now = time.monotonic()
            self._silent_since = self._silent_since or began
            if now - self._silent_since > _LONGEST_SILENCE:
                raise
            # A question that meets silence takes its time: as much passes until the next.
            self._ask_again_at = now + max(_SHORTEST_PAUSE, now - began)

    def _submit_missing(self, name: str, pool: _Pool) -> None:
        """As many workers as there are trials, and no more than there are slots."""
        trials = sum(h.pool == name and h.gone is None for h in self._held.values())
        most = trials if self._once else min(trials, self.slots)
        missing = min(most - len(pool.workers), _LARGEST_ARRAY)
        if missing <= 0:
            return
        excluded = self._excluded(pool.resources)
        worker = '"${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"'
        words = [*map(shlex.quote, [*_WORKER, str(self._spool.path), name]), worker]
        script = " ".join(["exec", *words, *(["once"] if self._once else [])])
        answer = slurm.ask(
            "sbatch",
            "--parsable",
            f"--array=0-{missing - 1}",
            f"--job-name={self._name}",
            # In this option % begins a placeholder.
            f"--output={str(self._spool.path).replace('%', '%%')}/slurm-%A_%a.out",
            "--no-requeue",  # the engine tries again, and counts it
            *slurm.job_options(pool.resources),
            *([f"--exclude={','.join(excluded)}"] if excluded else []),
            text=f"#!/bin/sh\n{script}\n",
        )
        self._silent_since = None
        job = answer.strip().partition(";")[0]
        pool.workers |= {f"{job}_{index}" for index in range(missing)}
        self._look_soon()

    def _look_soon(self) -> None:
        self._pause = _FIRST_LOOK
        self._look_at = time.monotonic() + self._pause

    def _look(self) -> None:
        """Ask once for all workers what became of them, ever more seldom while nothing does."""
        workers = {worker for pool in self._pools.values() for worker in pool.workers}
        self._pause = min(_LAST_LOOK, 1.5 * self._pause)
        now = time.monotonic()
        self._look_at = now + self._pause
        if not workers:
            return
        states = slurm.states_of(workers)
        self._silent_since = None
        for worker in workers:
            state = states.get(worker)
            why = state.why_over if state else "Slurm no longer knows its job"
            if state is not None and state.word == "RUNNING":
                why = _silence(self._spool, worker, self._seen_running.setdefault(worker, now))
                if why:
                    slurm.ask("scancel", "--quiet", worker)
            if why is not None:
                self._worker_ended(worker, why, state)

    def _worker_ended(self, worker: str, why: str, state: slurm.JobState | None) -> None:
        pool = next(pool for pool in self._pools.values() if worker in pool.workers)
        pool.workers.discard(worker)
        memory = state is not None and state.word == "OUT_OF_MEMORY"
        node = state.nodes if state is not None and state.name != "COMPLETED" else ""
        log = _tail_of(self._spool.path / f"slurm-{worker}.out")
        gone = _Gone(why + log, node, out_of_memory=memory)
        self._look_soon()
        numbers = [number for number, by in self._spool.claims().items() if by == worker]
        trials = [self._held[number] for number in numbers if number in self._held]
        for held in trials:
            held.gone = held.gone or gone
        if trials:
            pool.useless = 0
        elif worker not in self._spool.silence():
            self._avoid(node)
            pool.useless += 1
            if pool.useless >= _MOST_USELESS:
                self._give_up_waiting(pool, gone)

    def _give_up_waiting(self, pool: _Pool, gone: _Gone) -> None:
        """Worker after worker has ended before it took a trial: a further one would too."""
        pool.useless = 0
        for held in list(self._held.values()):
            if self._pools[held.pool] is pool and self._spool.withdraw(held.pool, held.number):
                self._give_up(held, gone)

    def _leave(self) -> None:
        if self._cleanup.stdin is not None:
            self._cleanup.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._cleanup.wait(_CLEANUP_SECONDS)

    def _count_slots(self) -> None:
        self._counted_at = time.monotonic()
        self._nodes = slurm.nodes_of(self._resources.partition)
        usable = [node for node in self._nodes if node.usable]
        kept = [node for node in usable if node.name not in self._avoided]
        self._fits = fitting([node.size for node in kept or usable], self._resources)

    def _excluded(self, resources: Resources) -> list[str]:
        """The nodes to stay away from, unless nothing would be left or the nodes are chosen."""
        if resources.nodelist:
            return []
        left = [n.size for n in self._nodes if n.usable and n.name not in self._avoided]
        if not fitting(left, resources):
            self._avoided.clear()
        return self._avoided


# -- inside an allocation --------------------------------------------------------------------------


class SlurmSteps(_Slurm):
    """One srun a trial, on resources of its own."""

    def __init__(self, resources: Resources, jobs: int | None, grace: float) -> None:
        super().__init__(resources, jobs, grace)
        self._steps: dict[str, subprocess.Popen[bytes]] = {}  # by worker
        cpus, gpus = slurm.allocated_cpus(os.environ), slurm.allocated_gpus(os.environ)
        self._nodes = [(each, gpus) for each in cpus]
        slurm.check_fitting(
            self._nodes,
            resources,
            f"the allocation {slurm.current_allocation()} has {len(cpus)} nodes with {max(cpus)} "
            f"CPUs and {gpus} GPUs: ask for less, or for a larger one",
        )
        self._fits = fitting(self._nodes, resources)

    def _place_of(self, trial: TrialSpec, number: str) -> tuple[str, Sequence[str] | None]:
        return f"step{number}", self._options(trial.resources) if _needs_srun(trial) else None

    def _begin(self, trial: TrialSpec) -> _Held:
        """A trial with an srun of its own has its worker here: a step around a step would hold
        what it needs."""
        held = super()._begin(trial)
        srun = [] if _needs_srun(trial) else ["srun", *self._options(trial.resources)]
        words = [str(self._spool.path), held.pool, held.pool, "once"]
        try:
            with (self._spool.path / f"{held.pool}.out").open("wb") as log:
                self._steps[held.pool] = subprocess.Popen(
                    ["setpriv", "--pdeathsig=TERM", *srun, *_WORKER, *words],  # ends with us
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # a Ctrl-C on the terminal is for us alone
                )
        except OSError as wrong:
            held.gone = _Gone(f"its step could not be started: {wrong.strerror}")
        return held

    def _options(self, resources: Resources) -> list[str]:
        if len(self._avoided) >= len(self._nodes):
            self._avoided.clear()
        avoided = [] if resources.nodelist else self._avoided
        exclude = [f"--exclude={','.join(avoided)}"] if avoided else []
        # Started inside a step, we share what that step holds: it would never be free.
        overlap = ["--overlap"] if os.environ.get("SLURM_STEP_ID") else []
        # An allocation that outlives its nodes says so to srun by a variable, and a step that
        # outlives its node never ends.
        fixed = ["--exact", *overlap, "--no-kill=off", "--input=none"]
        return [*fixed, *slurm.step_options(resources), *exclude]

    def _tend(self) -> None:
        """A step ends with its trial, or its trial is lost with it."""
        kept = self._nodes[: len(self._nodes) - len(self._avoided)]
        self._fits = fitting(kept or self._nodes, self._resources)
        held = {held.pool: held for held in self._held.values()}
        for worker, step in list(self._steps.items()):
            if step.poll() is not None:
                lost = held.get(worker)
                if lost is not None and lost.gone is None:
                    log = _tail_of(self._spool.path / f"{lost.pool}.out")
                    why = f"its step ended without a report{log}"
                    lost.gone = _Gone(why, _node_in(log), slurm.OOM_IN_LOG in log)
                    self._spool.withdraw(lost.pool, lost.number)
                (self._spool.path / f"{worker}.out").unlink(missing_ok=True)
                del self._steps[worker]
            elif worker not in held:
                step.terminate()

    def _leave(self) -> None:
        steps = list(self._steps.values())  # the thread may hang in a file system
        for step in steps:
            step.terminate()
        deadline = time.monotonic() + _CLEANUP_SECONDS
        for step in steps:
            with suppress(subprocess.TimeoutExpired):
                step.wait(max(0.0, deadline - time.monotonic()))
            step.kill()
            with suppress(subprocess.TimeoutExpired):
                step.wait(1.0)


# -- words for Slurm, and from it ------------------------------------------------------------------


def _new_spool(trial_dir: Path) -> Spool:
    """In the private directory of the run that this trial is of; where it is of none, beside it."""
    private = (place for p in trial_dir.parents for place in (p, p / ".aorta"))
    place = next((path for path in private if (path / "lock").exists()), trial_dir.parent)
    for old in place.glob("slurm-*"):  # of a process that was killed: this run is ours now
        shutil.rmtree(old, ignore_errors=True)
    spool = Spool(place / f"slurm-{secrets.token_hex(4)}", OWNER)
    try:
        spool.create()
        spool.beat()
    except OSError as wrong:
        raise InfrastructureError(f"cannot write: {wrong.strerror}", where=str(place)) from None
    return spool


def _silence(spool: Spool, worker: str, since: float) -> str | None:
    """What to say of a running worker that must be dead; None while it need not be."""
    heard = spool.silence().get(worker)
    silent = time.monotonic() - since if heard is None else heard
    if silent <= (_FIRST_SIGN_SECONDS if heard is None else SILENT):
        return None
    return f"its worker gave no sign of life for {silent:.0f} s"


def _needs_srun(trial: TrialSpec) -> bool:
    return trial.resources.tasks > 1 or trial.environment.kind is RuntimeKind.PYXIS


def _tail_of(log: Path) -> str:
    """What the scheduler or the worker said."""
    with suppress(OSError):
        if text := log.read_text(errors="replace").strip():
            return f": {text[-_LOG_TAIL:]}"
    return ""


def _node_in(log: str) -> str:
    """Whom srun complains of: `srun: error: n2: task 0: Killed`, or `Node failure on n2`."""
    for line in log.splitlines():
        words = line.partition("error: ")[2]
        if words.startswith("Node failure on "):
            return words.removeprefix("Node failure on ").split()[0]
        if ": task" in words:
            return words.partition(":")[0]
    return ""
