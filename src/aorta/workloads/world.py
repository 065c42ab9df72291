"""Which rank this process is, and whether a workload may be launched so. Standard library only."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from aorta.workloads.base import Workload


@dataclass(frozen=True)
class World:
    rank: int = 0
    size: int = 1

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "World":
        """From what torchrun and its like export. A nonsensical WORLD_SIZE is refused; a nonsensical RANK is 0."""
        return cls(rank=rank_of(environ), size=_size(environ.get("WORLD_SIZE", "1")))


def check_launch(name: str, workload: type[Workload], world: World) -> None:
    """Refuse, with RuntimeError, a workload that was launched in a way it cannot run in."""
    if workload.launch_mode == "single_process" and world.size > 1:
        raise RuntimeError(
            f"{name} runs in a single process, and WORLD_SIZE is {world.size}; "
            "do not wrap it with torchrun"
        )
    if workload.launch_mode == "distributed" and world.size < workload.min_world_size:
        raise RuntimeError(
            f"{name} needs at least {workload.min_world_size} ranks, and WORLD_SIZE is {world.size}; start it with: "
            f"torchrun --nproc-per-node {workload.min_world_size} -m aorta run --workload {name}"
        )


def rank_of(environ: Mapping[str, str]) -> int:
    text = environ.get("RANK", "0")
    try:
        return int(text)
    except ValueError:
        logging.getLogger(__name__).warning("RANK is %r, not a number; taken as 0", text)
        return 0


def _size(text: str) -> int:
    size = int(text) if text.strip().isdecimal() else 0
    if size < 1:
        raise RuntimeError(f"WORLD_SIZE is {text!r}; expected a whole number, 1 or more")
    return size
