"""Slurm's own commands: what we ask them, and how we read their answers."""

import math
import os
import re
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from aorta.core.errors import InfrastructureError
from aorta.core.names import expand_hosts
from aorta.core.trial import Resources
from aorta.runtimes.programs import heard

_SECONDS = 60.0
_SILENCE = re.compile(
    r"Unable to contact slurm controller|timed out|Zero Bytes were transmitted|"
    r"Connection (?:refused|reset)",
    re.IGNORECASE,
)
_USABLE = frozenset({"idle", "mixed", "allocated", "completing"})
OOM_IN_LOG = "oom_kill event"  # in what slurmstepd writes of a step whose memory limit was passed
_FINAL: Mapping[str, str] = {
    "BOOT_FAIL": "its node did not boot",
    "CANCELLED": "its job was cancelled from outside",
    "COMPLETED": "its job ended without a report",
    "DEADLINE": "its job missed its deadline",
    "FAILED": "its job failed",
    "NODE_FAIL": "its node failed",
    "OUT_OF_MEMORY": "its job ran out of memory",
    "PREEMPTED": "its job was preempted",
    "REVOKED": "its job was revoked",
    "TIMEOUT": "its job reached its time limit",
}


class ControllerSilentError(InfrastructureError):
    """Nobody answered. The question may be asked again; what it asked for may have been done."""


@dataclass(frozen=True)
class JobState:
    """A job or one task of an array, as `squeue` or `sacct` tells of it."""

    name: str
    nodes: str = ""

    @property
    def why_over(self) -> str | None:
        """Why nothing more is to be expected of it; None while something is."""
        return _FINAL.get(self.word)

    @property
    def word(self) -> str:
        """`CANCELLED by 1000` and `CANCELLED+` are both CANCELLED."""
        return self.name.split(maxsplit=1)[0].rstrip("+") if self.name else ""


@dataclass(frozen=True)
class NodeState:
    name: str
    size: tuple[int, int]  # CPUs and GPUs
    usable: bool


def ask(*argv: str, text: str = "") -> str:
    """The answer of one command; what it complains of becomes one line."""
    if shutil.which(argv[0]) is None:
        raise InfrastructureError(
            f"{argv[0]} is not on PATH, and trials on Slurm need it; install it with: apt-get "
            "install slurm-client"
        )
    try:
        # A Ctrl-C on the terminal is for us alone.
        done = heard(argv, text, timeout=_SECONDS, start_new_session=True)
    except subprocess.TimeoutExpired:
        raise ControllerSilentError(f"{argv[0]} did not answer within {_SECONDS:g} s") from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        kind = ControllerSilentError if _SILENCE.search(done.stderr) else InfrastructureError
        raise kind(f"{argv[0]}: {lines[-1] if lines else 'failed and said nothing'}")
    return done.stdout


def nodes_of(partition: str | None) -> list[NodeState]:
    """The nodes of a partition, or of the default one."""
    chosen = (f"--partition={partition}",) if partition else ()
    answer = ask("sinfo", "--noheader", "--Node", "--format=%N|%c|%T|%G|%P", *chosen)
    found = {}
    for line in answer.splitlines():
        name, cpus, state, resources, where = line.split("|")
        if partition or where.endswith("*"):
            # `gpu:2`, `gpu:a100:4(S:0-1)`, `gpu:a:1,gpu:b:3,shard:8`
            gpus = sum(map(int, re.findall(r"(?:^|,)gpu(?::[^:,(]+)?:(\d+)", resources)))
            # `mixed*`, `idle~`: the state without the flag behind it
            usable = re.sub(r"[^a-z].*", "", state.lower()) in _USABLE
            found[name] = NodeState(name, (int(cpus), gpus), usable)
    return list(found.values())


def states_of(tasks: AbstractSet[str]) -> dict[str, JobState]:
    """The state of each of these array tasks, each as `JOB_INDEX`, by one question."""
    found = dict(_in_queue(_jobs_of(tasks)))
    # The controller forgets ended tasks after MinJobAge, and all of them with its state.
    if forgotten := tasks - found.keys():
        found = dict(_in_accounting(_jobs_of(forgotten))) | found
    return found


def _jobs_of(tasks: Collection[str]) -> set[str]:
    return {task.partition("_")[0] for task in tasks}


def _in_queue(jobs: Collection[str]) -> Iterator[tuple[str, JobState]]:
    try:
        answer = ask(
            "squeue", "--noheader", "--array", "--states=all", "--format=%F|%K|%T|%N",
            f"--jobs={','.join(jobs)}",
        )  # fmt: skip
    except InfrastructureError as wrong:
        if "Invalid job id" in wrong.message:
            return
        raise
    for line in answer.splitlines():
        job, index, state, nodes = line.split("|")
        yield f"{job}_{index}", JobState(state, nodes)


def _in_accounting(jobs: Collection[str]) -> Iterator[tuple[str, JobState]]:
    """How forgotten tasks ended, by accounting; `RUNNING` in the database alone does not count."""
    try:
        answer = ask(
            "sacct", "--noheader", "--parsable2", "--allocations",
            "--format=JobID,State,NodeList", f"--jobs={','.join(jobs)}",
        )  # fmt: skip
    except InfrastructureError:
        # No database, or one that is down: the controller knows nothing of them either.
        return
    for line in answer.splitlines():
        named, state, nodes = line.split("|")
        job = JobState(state, nodes)
        if job.why_over:
            # Tasks that ended before they began are told together, as `7_[0-3,5%2]`.
            tasks = expand_hosts(re.sub(r"%\d+\]", "]", named), where="sacct")
            yield from ((task, job) for task in tasks)


def job_options(resources: Resources) -> list[str]:
    """Of `sbatch`, for one worker."""
    options = _sizes(resources)
    if resources.partition:
        options.append(f"--partition={resources.partition}")
    if resources.account:
        options.append(f"--account={resources.account}")
    if resources.time_limit is not None:
        options.append(f"--time={math.ceil(resources.time_limit / 60)}")
    return options


def step_options(resources: Resources) -> list[str]:
    """Of `srun`, for one trial. One rank that fails ends the others: they would wait for it."""
    # The order of chosen nodes is that of their ranks, which Slurm would sort by name.
    order = ["--distribution=arbitrary"] if resources.nodelist and resources.tasks > 1 else []
    return [*_sizes(resources), f"--ntasks={resources.tasks}", "--kill-on-bad-exit=1", *order]


def _sizes(resources: Resources) -> list[str]:
    return [
        f"--nodes={resources.nodes}",
        f"--ntasks-per-node={resources.tasks_per_node}",
        f"--cpus-per-task={resources.cpus}",
        *([f"--gpus-per-node={resources.gpus}"] if resources.gpus else []),
        *([f"--nodelist={','.join(resources.nodelist)}"] if resources.nodelist else []),
    ]


def fitting(nodes: Sequence[tuple[int, int]], wanted: Resources) -> int:
    """How many trials fit at once on nodes of (CPUs, GPUs), each on nodes that differ."""
    cpus = wanted.cpus * wanted.tasks_per_node
    on_each = [
        min(have // cpus, gpus // wanted.gpus if wanted.gpus else have // cpus)
        for have, gpus in nodes
    ]
    if wanted.nodes == 1:
        return sum(on_each)
    # The largest n for which every trial finds its nodes, a node giving a place to each trial once.
    most = sum(on_each) // wanted.nodes
    while most and sum(min(places, most) for places in on_each) < most * wanted.nodes:
        most -= 1
    return most


def check_fitting(nodes: Sequence[tuple[int, int]], wanted: Resources, where: str) -> None:
    """InfrastructureError where not one trial fits; `where`: on what, and what to do about it."""
    if not fitting(nodes, wanted):
        raise InfrastructureError(
            f"a trial asks for {wanted.nodes} nodes with {wanted.cpus * wanted.tasks_per_node} "
            f"CPUs and {wanted.gpus} GPUs each; {where}"
        )


def allocated_cpus(environ: Mapping[str, str]) -> list[int]:
    """`4(x2),8` of SLURM_JOB_CPUS_PER_NODE as one number a node."""
    cpus: list[int] = []
    for part in environ.get("SLURM_JOB_CPUS_PER_NODE", "1").split(","):
        number, _, times = part.partition("(x")
        cpus += [int(number)] * int(times.rstrip(")") or 1)
    return cpus


def allocated_gpus(environ: Mapping[str, str]) -> int:
    """GPUs on each node of the allocation."""
    given = environ.get("SLURM_GPUS_ON_NODE") or environ.get("SLURM_GPUS_PER_NODE") or "0"
    return int(given.rpartition(":")[2])


def current_allocation() -> str | None:
    return os.environ.get("SLURM_JOB_ID") or None
