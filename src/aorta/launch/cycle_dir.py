"""`cycle_info.json`: what happened in one cycle, written by the leader, in one step."""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aorta.engine.atomic import write_whole
from aorta.launch.logs import CycleDir
from aorta.launch.records import Ending, Evidence, RankEnd, Start, Verdict
from aorta.version import __version__

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ruling:
    """The verdict on a failed cycle, how long the leader waited for it, and whether it ends the job."""

    verdict: Verdict
    elapsed_ms: int
    dry_run: bool = False
    ending: Ending | None = None

    @property
    def words(self) -> str:
        verdict = self.verdict
        how = f"{verdict.source}, {self.elapsed_ms} ms"
        return f"{verdict.action.value} ({how}): {verdict.reason}"

    @property
    def document(self) -> dict[str, Any]:
        return {
            **self.verdict.decision,
            "action": self.verdict.action.value,
            "reason": self.verdict.reason,
            "dry_run": self.dry_run,
        }


def write_cycle_info(
    log_dir: Path,
    start: Start,
    evidence: Sequence[Evidence] = (),
    ruling: Ruling | None = None,
    *,
    running: bool = False,
) -> None:
    """The whole file anew. It is never half there: readers see the old one or the new one."""
    content = {
        "schema": "aorta.cycle/1",
        "aorta_version": __version__,
        "job_id": start.job_id,
        "cycle_id": start.cycle_id,
        "cycle": start.cycle,
        "started": _moment(start.started),
        "ended": None if running else _moment(datetime.now(UTC).timestamp()),
        "nodes": list(start.nodes),
        "ranks": [_rank(piece.node, end) for piece in evidence for end in piece.ends],
        "restarts": start.restarts,
        "max_restarts": start.max_restarts,
        "decision": ruling.document if ruling else None,
        "decided_by": ruling.verdict.source if ruling else None,
        "decided_in_ms": ruling.elapsed_ms if ruling else None,
        "finding": ruling.verdict.finding if ruling else None,
        "ending": _ending(ruling),
        "notes": [piece.note for piece in evidence if piece.note],
    }
    directory = CycleDir(log_dir, start.cycle)
    try:
        directory.path.mkdir(parents=True, exist_ok=True)
        write_whole(directory.info, json.dumps(content, indent=2) + "\n")
    except OSError as full:  # a record that cannot be kept is no reason to end a job
        log.warning("%s could not be written: %s", directory.info, full.strerror)


def _rank(node: str, end: RankEnd) -> dict[str, Any]:
    return {
        "rank": end.rank,
        "node": node,
        "exit_code": end.exit_code,
        "signal": end.signal,
        "stopped_by_agent": end.stopped,
    }


def _ending(ruling: Ruling | None) -> dict[str, Any] | None:
    if ruling is None or ruling.ending is None:
        return None
    return {"exit_code": ruling.ending.exit_code, "reason": ruling.ending.reason}


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
