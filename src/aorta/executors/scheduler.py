"""What a scheduler does for the cluster executor: it starts supervisors somewhere, and says what
became of them.

It sees tickets, not trials' ends: how a trial runs and ends is between its supervisor and the
executor, over their own channel.
"""

import socket
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from aorta.core.trial import Resources, TrialSpec

WORKER = "aorta.executors.worker"


@dataclass(frozen=True)
class Batch:
    """Trials that are asked for together and need the same; the ticket of the i-th is `key.i`."""

    key: str
    trials: Sequence[TrialSpec]
    resources: Resources

    def ticket(self, index: int) -> str:
        return f"{self.key}.{index}"


@dataclass(frozen=True)
class Gone:
    """Why a worker cannot be waited for any longer."""

    why: str
    # It went over its job's own limit: the program's end, not the scheduler's.
    out_of_memory: bool = False


class Scheduler(Protocol):
    @property
    def ships(self) -> bool:
        """Whether a worker that does not see a trial's directories gets them sent, or the trial is
        lost.
        """

    def slots(self) -> int:
        """How many trials the cluster could run side by side now, 1 at least."""

    def submit(self, batch: Batch, variables: Mapping[str, str]) -> None:
        """Have an worker started for each trial with these variables and its ticket;
        InfrastructureError if not.
        """

    def srun(self, trial: TrialSpec) -> Sequence[str] | None:
        """Options of the srun that the worker must start the trial with; None where it runs it
        itself.
        """

    def withdraw(self, tickets: Collection[str]) -> None:
        """Nobody waits for these any more, whatever they are doing."""

    def look(self, tickets: Collection[str], doubtful: Collection[str]) -> Mapping[str, Gone]:
        """Why these cannot be waited for any longer. Called often; asks the scheduler as seldom as
        is bearable, but soon for `doubtful` ones, whose channel broke."""

    def avoid(self, node: str) -> None:
        """A trial was lost there; the next ones go elsewhere as long as there is an elsewhere."""

    @property
    def news(self) -> int | None:
        """A descriptor that becomes readable when there is news to `look` at."""

    def addresses(self) -> Sequence[str]:
        """Names or numbers under which the workers may reach this machine, best first."""

    def ports(self) -> range:
        """The ports that the site lets workers reach; empty: any."""

    def close(self) -> None:
        """Leave nothing of ours in the queue. Safe to call twice."""


def address_towards(host: str) -> str | None:
    """The address of this machine that packets to `host` leave with."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # sends nothing: it only asks for a route
        return str(probe.getsockname()[0])
    return None


def fitting(nodes: Sequence[tuple[int, int]], wanted: Resources) -> int:
    """How many trials fit on nodes of (CPUs, GPUs) at once, one trial's nodes being different
    ones.
    """
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
