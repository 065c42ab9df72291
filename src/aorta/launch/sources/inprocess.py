"""Attribution in this process: the launcher's records become the attribution room's evidence, and its answer a verdict."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from aorta.attribution import (
    Attribution,
    LogSource,
    LogTail,
    PastCycle,
    RankFailure,
    attribute,
)
from aorta.attribution import Evidence as Everything
from aorta.attribution.documents import decision_document, finding_document, past_cycle
from aorta.attribution.flight import read_dumps, stragglers
from aorta.attribution.sources import find_logs
from aorta.launch.records import Action, Evidence, Verdict
from aorta.launch.sources import FailedCycle

NAME = "in-process"


def analyse(failed: FailedCycle) -> Verdict:
    """The limit on cycles without progress is the launcher's own: it also knows heartbeats and how long a cycle lived."""
    return _verdict(attribute(everything_known(failed), no_progress_limit=0))


def warm_up() -> None:
    """Compile the patterns while the workers start, so that the first verdict need not wait for it."""
    attribute(Everything(tails=(LogTail("warm-up"),)))


def everything_known(failed: FailedCycle) -> Everything:
    paths = [Path(dump) for piece in failed.evidence for dump in piece.dumps]
    dumps = tuple(path for path in paths if path.suffix == ".json" and path.exists())
    hung = _hung_ranks(failed.evidence, dumps)
    return Everything(
        logs=tuple(log for piece in failed.evidence for log in _logs(piece)),
        tails=tuple(tail for piece in failed.evidence for tail in _tails(piece)),
        failures=tuple(end for piece in failed.evidence for end in _failures(piece, hung)),
        flight_recorder=dumps,
        history=tuple(_history(failed)),
    )


def _hung_ranks(evidence: Sequence[Evidence], dumps: Sequence[Path]) -> set[int]:
    """Whom a hang is put down to: a stopped heartbeat, else who did not arrive at a collective, else everybody."""
    if not any(piece.hung for piece in evidence):
        return set()
    named = {piece.hung_rank for piece in evidence if piece.hung_rank is not None}
    everybody = {rank for piece in evidence for rank in piece.ranks}
    return named or set(stragglers(read_dumps(dumps)).ranks) or everybody


def _logs(piece: Evidence) -> list[LogSource]:
    paths = [Path(path) for path in (*piece.log_paths, *piece.dumps)]
    here = [path for path in paths if path.suffix != ".json" and path.exists()]
    return [replace(log, node=piece.node) for log in find_logs(here)]


def _tails(piece: Evidence) -> list[LogTail]:
    """What was sent along counts only where the log itself is on another machine."""
    away = {rank for rank in piece.tails if not _is_here(piece, rank)}
    return [
        LogTail(piece.tails[rank], rank, piece.node, f"rank_{rank} on {piece.node}")
        for rank in sorted(away)
    ]


def _is_here(piece: Evidence, rank: int) -> bool:
    names = {f"rank_{rank}.out", f"rank_{rank}.err"}
    return any(Path(path).name in names and Path(path).exists() for path in piece.log_paths)


def _failures(piece: Evidence, hung: set[int]) -> list[RankFailure]:
    """Ranks that failed by themselves; in a hang how a rank was ended says nothing."""
    if piece.hung:
        here = [rank for rank in piece.ranks if rank in hung]
        return [RankFailure(rank, node=piece.node, hung=True) for rank in here]
    return [
        RankFailure(
            rank=end.rank,
            exit_code=end.exit_code,
            signal=end.signal,
            error_file=Path(end.error_file) if end.error_file else None,
            node=piece.node,
        )
        for end in piece.failures
    ]


def _history(failed: FailedCycle) -> Iterator[PastCycle]:
    for document in failed.start.history:
        cycle = past_cycle(document)
        if cycle is not None:
            yield cycle


def _verdict(attribution: Attribution) -> Verdict:
    return Verdict(
        action=Action(attribution.decision.action.value),
        reason=attribution.decision.reason,
        source=NAME,
        decision=decision_document(attribution.decision),
        finding=finding_document(attribution.finding),
    )
