"""Slurm: inside an allocation each trial is a step of it, outside one each trial is a task of a job
array.

The working directory, the trial's directory and this installation must lie on a file system that
the nodes share, as is usual with Slurm; a node that cannot see them loses the trial and says so.
Slurm's own commands are used as they are: submitit sends pickled functions and polls files for
their results, and a trial needs a supervisor that can be told to stop.
"""

import math
import os
import secrets
import shlex
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from aorta.core.errors import InfrastructureError
from aorta.core.trial import Resources, RuntimeKind, TrialSpec
from aorta.executors import slurm_commands as slurm
from aorta.executors.process_tree import own_program
from aorta.executors.scheduler import WORKER, Batch, Gone, address_towards, fitting
from aorta.executors.worker import PARENT_VARIABLE, TICKET_VARIABLE

_LOOK_EVERY = 2.0
_LOOK_SHARE = 20  # a question that takes a second is asked every 20 s at most
_SLOTS_EVERY = 10.0
_LAST_WORDS = 300
_LARGEST_ARRAY = 500
_FAREWELL_SECONDS = 7.0


class _Slurm:
    """What jobs and steps have in common: the way home, and nodes that lost a trial."""

    ships = False
    news: int | None = None

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._configuration = slurm.configuration()
        self._avoided: list[str] = []
        self._logs: dict[str, Path] = {}

    def addresses(self) -> Sequence[str]:
        controller = self._configuration.get("SlurmctldHost[0]", "")
        host, _, address = controller.rstrip(")").partition("(")
        towards = address_towards(address or host)
        return [*([towards] if towards else []), os.uname().nodename]

    def ports(self) -> range:
        """srun needs ports that nodes can reach, and so do we: what a site opened for it."""
        low, _, high = self._configuration.get("SrunPortRange", "0-0").partition("-")
        return range(int(low), int(high or low) + 1) if int(low) else range(0)

    def avoid(self, node: str) -> None:
        if node and node not in self._avoided:
            self._avoided.append(node)

    def _log_of(self, ticket: str) -> str:
        """What the scheduler or the worker said before there was a channel."""
        path = self._logs.get(ticket)
        with suppress(OSError):
            if path is not None and (said := path.read_text(errors="replace").strip()):
                return f": {said[-_LAST_WORDS:]}"
        return ""


@dataclass
class _Array:
    """Trials of one batch that are asked for together. `wanted`: the tickets that somebody still
    waits for.
    """

    batch: Batch
    indexes: range
    variables: Mapping[str, str]
    wanted: set[str]
    may_be_submitted: bool = False  # the answer of an earlier attempt did not reach us

    @property
    def comment(self) -> str:
        return f"{self.batch.key}.{self.indexes[0]}"

    @property
    def place(self) -> Path:
        return self.batch.trials[self.indexes[0]].trial_dir / ".aorta"


class SlurmJobs(_Slurm):
    """Outside an allocation: array jobs, told apart from everybody's by a name of their own."""

    def __init__(self, resources: Resources) -> None:
        super().__init__(resources)
        self._name = f"aorta-{secrets.token_hex(6)}"
        self._tasks: dict[str, str] = {}  # ticket -> JOB_INDEX
        self._unsent: list[_Array] = []
        self._unwanted: list[str] = []  # tasks
        self._looked_at = self._look_cost = 0.0
        self._outage = slurm.Outage()
        self._slots, self._counted_at = 1, -math.inf
        self._check_that_it_can_ever_run()
        # Ends with us, be it by kill -9, and takes what is queued out of the queue.
        self._farewell = subprocess.Popen(
            ["sh", "-c", f"read -r _; exec scancel --quiet --name={self._name}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def slots(self) -> int:
        now = time.monotonic()
        if now - self._counted_at > _SLOTS_EVERY and self._outage.may_be_broken:
            self._counted_at = now
            try:
                self._slots = max(1, fitting(self._places(), self._resources))
            except InfrastructureError as wrong:  # what was true may still be
                self._outage.goes_on(now, wrong)
        return self._slots

    def submit(self, batch: Batch, variables: Mapping[str, str]) -> None:
        for first in range(0, len(batch.trials), _LARGEST_ARRAY):
            indexes = range(first, min(first + _LARGEST_ARRAY, len(batch.trials)))
            wanted = {batch.ticket(index) for index in indexes}
            self._unsent.append(_Array(batch, indexes, variables, wanted))
        self._send()

    def _send(self) -> None:
        """Submit what is not yet; a controller that is silent gets it as soon as it speaks
        again.
        """
        while self._unsent and self._outage.may_be_broken:
            array, began = self._unsent[0], time.monotonic()
            try:
                job = self._job_of(array)
            except slurm.ControllerSilentError as wrong:
                array.may_be_submitted = True
                self._outage.goes_on(began, wrong)
                return
            self._outage.is_over()
            del self._unsent[0]
            for index in array.indexes:
                ticket, task = array.batch.ticket(index), f"{job}_{index - array.indexes[0]}"
                self._tasks[ticket] = task
                self._logs[ticket] = array.place / f"slurm-{task}.out"

    def _job_of(self, array: _Array) -> str:
        if array.may_be_submitted and (job := slurm.job_with_comment(self._name, array.comment)):
            return job
        array.place.mkdir(exist_ok=True)
        exclude = self._excluded(array.batch.resources)
        answer = ask_sbatch(
            f"--array=0-{len(array.indexes) - 1}",
            f"--job-name={self._name}",
            f"--comment={array.comment}",
            f"--output={_without_placeholders(array.place)}/slurm-%A_%a.out",
            "--no-requeue",  # the engine tries again, and counts it
            *_wanted(array.batch.resources),
            *([f"--exclude={','.join(exclude)}"] if exclude else []),
            script=_script(array.batch.key, array.indexes[0], array.variables),
        )
        return answer.strip().partition(";")[0]

    def srun(self, trial: TrialSpec) -> Sequence[str] | None:
        """Inside the job everything is the trial's."""
        return _step_of(trial.resources) if _needs_srun(trial) else None

    def withdraw(self, tickets: Collection[str]) -> None:
        for array in self._unsent:
            array.wanted -= set(tickets)
        self._unsent = [each for each in self._unsent if each.wanted or each.may_be_submitted]
        self._unwanted += [self._tasks.pop(ticket) for ticket in tickets if ticket in self._tasks]
        self._cancel_unwanted()

    def _cancel_unwanted(self) -> None:
        if not self._unwanted or not self._outage.may_be_broken:
            return
        tasks, self._unwanted = self._unwanted, []
        # One that is over already cannot be cancelled, and one that still starts is sent away at
        # our door.
        with suppress(InfrastructureError):
            slurm.ask("scancel", "--quiet", *tasks)

    def look(self, tickets: Collection[str], doubtful: Collection[str]) -> Mapping[str, Gone]:
        self._send()
        self._cancel_unwanted()
        pause = 0.0 if doubtful else max(_LOOK_EVERY, _LOOK_SHARE * self._look_cost)
        asked = {ticket: self._tasks[ticket] for ticket in tickets if ticket in self._tasks}
        if not asked or time.monotonic() - self._looked_at < pause:
            return {}
        states = self._states(set(asked.values()))
        self._forget_all_but(tickets)
        if states is None:
            return {}
        found = {}
        for ticket, task in asked.items():
            state = states.get(task)
            why = state.why_over if state else "Slurm no longer knows its job"
            if why:
                memory = bool(state and state.out_of_memory)
                found[ticket] = Gone(why + self._log_of(ticket), out_of_memory=memory)
                if state and state.name != "COMPLETED" and "[" not in state.nodes:
                    self.avoid(state.nodes)
        return found

    def close(self) -> None:
        if self._farewell.stdin is not None:
            self._farewell.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._farewell.wait(_FAREWELL_SECONDS)

    def _forget_all_but(self, tickets: Collection[str]) -> None:
        """A trial that ended well leaves no trace here: a thousand of them must not either."""
        for ticket in self._tasks.keys() - set(tickets):
            del self._tasks[ticket]
            self._logs.pop(ticket).unlink(missing_ok=True)

    def _states(self, tasks: set[str]) -> Mapping[str, slurm.JobState] | None:
        """None while the controller is silent."""
        if not self._outage.may_be_broken:
            return None
        began = time.monotonic()
        accounting = not self._configuration.get("AccountingStorageType", "").endswith("/none")
        try:
            states = slurm.states_of(tasks, accounting=accounting)
        except InfrastructureError as wrong:
            self._outage.goes_on(began, wrong)
            return None
        self._outage.is_over()
        self._looked_at = time.monotonic()
        self._look_cost = self._looked_at - began
        return states

    def _places(self) -> list[tuple[int, int]]:
        nodes = [node for node in slurm.nodes_of(self._resources.partition) if node.usable]
        kept = [node for node in nodes if node.name not in self._avoided]
        return [(node.cpus, node.gpus) for node in kept or nodes]

    def _excluded(self, resources: Resources) -> list[str]:
        """The nodes to stay away from, unless nothing would be left."""
        if self._avoided:
            left = [
                (node.cpus, node.gpus)
                for node in slurm.nodes_of(resources.partition)
                if node.usable and node.name not in self._avoided
            ]
            if not fitting(left, resources):
                self._avoided.clear()
        return self._avoided

    def _check_that_it_can_ever_run(self) -> None:
        wanted = self._resources
        nodes = slurm.nodes_of(wanted.partition)
        if not fitting([(node.cpus, node.gpus) for node in nodes], wanted):
            where = f"partition {wanted.partition}" if wanted.partition else "the default partition"
            raise InfrastructureError(
                f"a trial asks for {wanted.nodes} nodes with "
                f"{wanted.cpus * wanted.tasks_per_node} CPUs and "
                f"{wanted.gpus} GPUs each; {where} has {len(nodes)} nodes and none that fit: ask "
                "for less, or "
                "name another with --partition (sinfo lists them)"
            )


class SlurmSteps(_Slurm):
    """Inside an allocation: one srun a trial, on resources of its own."""

    def __init__(self, resources: Resources) -> None:
        super().__init__(resources)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        cpus, gpus = slurm.allocated_cpus(os.environ), slurm.allocated_gpus(os.environ)
        self._places = [(each, gpus) for each in cpus]
        if not fitting(self._places, resources):
            raise InfrastructureError(
                f"a trial asks for {resources.nodes} nodes with "
                f"{resources.cpus * resources.tasks_per_node} "
                f"CPUs and {resources.gpus} GPUs each; the allocation "
                f"{slurm.current_allocation()} has "
                f"{len(cpus)} nodes with {max(cpus)} CPUs and {gpus} GPUs: ask for less, or for a "
                "larger one"
            )

    def slots(self) -> int:
        kept = self._places[: max(1, len(self._places) - len(self._avoided))]
        return max(1, fitting(kept, self._resources))

    def submit(self, batch: Batch, variables: Mapping[str, str]) -> None:
        for index, trial in enumerate(batch.trials):
            ticket = batch.ticket(index)
            place = trial.trial_dir / ".aorta"
            place.mkdir(exist_ok=True)
            self._logs[ticket] = place / "srun.out"
            # A trial with an srun of its own is kept from here: a step around a step would hold
            # what it needs.
            outer = (
                []
                if _needs_srun(trial)
                else ["setpriv", "--pdeathsig=TERM", "srun", *self._options(batch.resources)]
            )
            fate = {} if outer else {PARENT_VARIABLE: str(os.getpid())}
            with self._logs[ticket].open("wb") as log:
                self._running[ticket] = subprocess.Popen(
                    [*outer, *own_program(WORKER)],
                    env={**os.environ, **variables, TICKET_VARIABLE: ticket, **fate},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # a Ctrl-C on the terminal is for us alone
                )

    def _options(self, resources: Resources) -> list[str]:
        exclude = [f"--exclude={','.join(self._avoided)}"] if self._avoided else []
        # Started inside a step, we share what that step holds: it would never be free.
        overlap = ["--overlap"] if os.environ.get("SLURM_STEP_ID") else []
        return ["--exact", *overlap, "--input=none", *_step_of(resources), *exclude]

    def srun(self, trial: TrialSpec) -> Sequence[str] | None:
        return self._options(trial.resources) if _needs_srun(trial) else None

    def withdraw(self, tickets: Collection[str]) -> None:
        for ticket in tickets:
            if ticket in self._running:
                self._running[ticket].terminate()

    def look(self, tickets: Collection[str], doubtful: Collection[str]) -> Mapping[str, Gone]:
        found = {}
        for ticket, process in list(self._running.items()):
            if process.poll() is not None:
                if ticket in tickets:
                    said = self._log_of(ticket)
                    memory = slurm.OOM_IN_LOG in said
                    found[ticket] = Gone(f"its step ended without a report{said}", memory)
                else:
                    del self._running[ticket]
                    self._logs.pop(ticket).unlink(missing_ok=True)
        return found

    def close(self) -> None:
        self.withdraw(list(self._running))
        for process in self._running.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()


def slurm_scheduler(resources: Resources) -> SlurmJobs | SlurmSteps:
    return SlurmSteps(resources) if slurm.current_allocation() else SlurmJobs(resources)


def ask_sbatch(*options: str, script: str) -> str:
    return slurm.ask("sbatch", "--parsable", *options, text=script)


def _needs_srun(trial: TrialSpec) -> bool:
    return trial.resources.tasks > 1 or trial.environment.kind is RuntimeKind.PYXIS


def _wanted(resources: Resources) -> list[str]:
    limit = resources.time_limit
    return [
        *_sizes(resources),
        *([f"--partition={resources.partition}"] if resources.partition else []),
        *([f"--account={resources.account}"] if resources.account else []),
        *([f"--time={math.ceil(limit / 60)}"] if limit is not None else []),
    ]


def _sizes(resources: Resources) -> list[str]:
    return [
        f"--nodes={resources.nodes}",
        f"--ntasks-per-node={resources.tasks_per_node}",
        f"--cpus-per-task={resources.cpus}",
        *([f"--gpus-per-node={resources.gpus}"] if resources.gpus else []),
    ]


def _step_of(resources: Resources) -> list[str]:
    """One rank that fails ends the others: they would wait for it until the time is up."""
    return [*_sizes(resources), f"--ntasks={resources.tasks}", "--kill-on-bad-exit=1"]


def _script(key: str, first: int, variables: Mapping[str, str]) -> str:
    """Becomes the worker. The secret stands in the script, which Slurm shows to its owner alone."""
    set_variables = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    ticket = f'export {TICKET_VARIABLE}="{key}.$(({first} + SLURM_ARRAY_TASK_ID))"'
    return "\n".join(
        ["#!/bin/sh", *set_variables, ticket, f"exec {shlex.join(own_program(WORKER))}", ""]
    )


def _without_placeholders(path: Path) -> str:
    """As it is, for an option in which % begins a placeholder."""
    return str(path).replace("%", "%%")
