"""What one agent can say about a cycle that is over."""

from collections.abc import Sequence
from pathlib import Path

from aorta.launch.logs import CycleDir
from aorta.launch.records import Evidence, RankEnd, Start

_TAIL = 16 << 10
_MOST_TAILS = 8


def gather(
    start: Start,
    directory: CycleDir,
    *,
    agent: str,
    group_rank: int,
    ranks: Sequence[int],
    ends: Sequence[RankEnd],
    hung_rank: int | None = None,
    dumps: Sequence[str] = (),
    step: int | None = None,
    note: str = "",
) -> Evidence:
    """Failed ranks come first in the logs: whoever reads little reads them."""
    failed = [end.rank for end in ends if end.failed]
    in_order = [*failed, *(rank for rank in ranks if rank not in failed)]
    logs = [path for rank in in_order for path in (directory.err(rank), directory.out(rank))]
    return Evidence(
        job_id=start.job_id,
        cycle_id=start.cycle_id,
        cycle=start.cycle,
        agent=agent,
        node=start.nodes[group_rank],
        group_rank=group_rank,
        ranks=tuple(ranks),
        ends=tuple(ends),
        log_paths=tuple(str(path) for path in logs if path.exists()),
        tails={rank: _tail_of(directory, rank) for rank in failed[:_MOST_TAILS]},
        hung_rank=hung_rank,
        dumps=tuple(dumps),
        step=step,
        note=note,
    )


def _tail_of(directory: CycleDir, rank: int) -> str:
    return _tail(directory.out(rank)) + _tail(directory.err(rank))


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - _TAIL))
            return stream.read(_TAIL).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
