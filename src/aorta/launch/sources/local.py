"""Sources that need no service: attribution in this process, or an MCP server that the user names.

They run on the leader, over what all agents left in the store. The agent that leads when a cycle
fails begins as soon as all have told, beside the rendezvous; if another one leads the next round,
it begins when it is asked.
"""

import asyncio
import os
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from aorta.attribution import (
    Attribution,
    Evidence,
    LogSource,
    LogTail,
    PastCycle,
    attribute,
)
from aorta.attribution.documents import decision_document, finding_document, past_cycle
from aorta.attribution.evidence import failures_of, find_logs, read_dumps, stragglers
from aorta.core.errors import InfrastructureError
from aorta.launch.cycle_dir import is_there
from aorta.launch.records import Action, CycleEvidence, FailedCycle, SourceVerdict
from aorta.launch.sources import Everybody, SourceError

Analyse = Callable[[FailedCycle], SourceVerdict]

IN_PROCESS = "in-process"
MCP = "mcp"
_LOOK = 0.05  # seconds between two looks whether all agents have told
_WAIT_FOR_ALL = 60.0


class LocalSource:
    def __init__(self, name: str, analyse: Analyse) -> None:
        self._name = name
        self._analyse = analyse
        self._begun: tuple[FailedCycle, Future[SourceVerdict]] | None = None
        self._lock = threading.Lock()
        self._asked_about = ""

    @property
    def name(self) -> str:
        return self._name

    def trigger(self, failed: FailedCycle, everybody: Everybody | None) -> None:
        """Analyse as soon as all agents have told, unless the leader asks before that."""
        if everybody is None:
            return
        deadline = time.monotonic() + _WAIT_FOR_ALL
        while time.monotonic() < deadline and self._asked_about != failed.start.cycle_id:
            told = everybody(failed.start)
            if told is not None:
                self._run_once(told)
                return
            time.sleep(_LOOK)

    def read(self, failed: FailedCycle) -> SourceVerdict | None:
        self._asked_about = failed.start.cycle_id
        return self._run_once(failed)

    def _run_once(self, failed: FailedCycle) -> SourceVerdict:
        """One analysis of the same evidence, whoever asks first; the others wait for it."""
        with self._lock:
            mine = self._begun is None or self._begun[0] != failed
            if self._begun is None or mine:  # nobody asks about earlier cycles again
                self._begun = (failed, Future())
            _, future = self._begun
        if mine:
            try:
                future.set_result(self._analyse(failed))
            except BaseException as wrong:
                future.set_exception(wrong)
                raise
        return future.result()


def analyse(failed: FailedCycle) -> SourceVerdict:
    """The no-progress limit is the launcher's: it knows heartbeats and lifetimes too."""
    return _of_attribution(attribute(everything_known(failed), no_progress_limit=0))


def warm_up() -> None:
    """Compile the patterns while the workers start, so that the first verdict is fast."""
    attribute(Evidence(tails=(LogTail("warm-up"),)))


def everything_known(failed: FailedCycle) -> Evidence:
    paths = [Path(dump) for piece in failed.evidence for dump in piece.dumps]
    dumps = tuple(path for path in paths if path.suffix == ".json" and is_there(path))
    hung = _hung_ranks(failed.evidence, dumps)
    steps = [piece.step for piece in failed.evidence if piece.step is not None]
    return Evidence(
        logs=tuple(log for piece in failed.evidence for log in _logs(piece)),
        tails=tuple(tail for piece in failed.evidence for tail in _tails(piece)),
        failures=failures_of(
            [
                {**row, "agent": piece.agent}
                for piece in failed.evidence
                for row in piece.failure_rows(hung)
            ]
        ),
        flight_recorder=dumps,
        history=tuple(_history(failed)),
        heartbeat_step=max(steps, default=None),
        lived_sec=None if failed.ended is None else failed.ended - failed.start.started,
        earlier_logs=tuple(
            log for piece in failed.evidence for log in _earlier_logs(piece, failed)
        ),
    )


def _hung_ranks(evidence: Sequence[CycleEvidence], dumps: Sequence[Path]) -> frozenset[int]:
    """Whom a hang is put down to: a stopped heartbeat, a missing rank, else everybody."""
    if not any(piece.hung for piece in evidence):
        return frozenset()
    named = {piece.hung_rank for piece in evidence if piece.hung_rank is not None}
    everybody = {rank for piece in evidence for rank in piece.ranks}
    return frozenset(named or set(stragglers(read_dumps(dumps)).ranks) or everybody)


def _logs(piece: CycleEvidence) -> list[LogSource]:
    paths = [Path(path) for path in (*piece.log_paths, *piece.dumps)]
    here = [path for path in paths if path.suffix != ".json" and is_there(path)]
    return [replace(log, node=piece.node) for log in find_logs(here)]


def _tails(piece: CycleEvidence) -> list[LogTail]:
    """What was sent along counts only where the log itself is on another machine."""
    away = {rank for rank in piece.tails if not _is_here(piece, rank)}
    return [
        LogTail(piece.tails[rank], rank, piece.node, f"rank_{rank} on {piece.node}")
        for rank in sorted(away)
    ]


def _earlier_logs(piece: CycleEvidence, failed: FailedCycle) -> list[LogSource]:
    """What this agent's ranks wrote in the cycle before, if it was this submission's."""
    before = failed.start.cycle - 1
    if before < failed.start.first_cycle:
        return []
    now = [Path(path) for path in piece.log_paths]
    paths = {path.parent.with_name(f"cycle_{before}") / path.name for path in now}
    return list(find_logs(sorted(path for path in paths if is_there(path))))


def _is_here(piece: CycleEvidence, rank: int) -> bool:
    names = {f"rank_{rank}.out", f"rank_{rank}.err"}
    return any(Path(path).name in names and is_there(Path(path)) for path in piece.log_paths)


def _history(failed: FailedCycle) -> Iterator[PastCycle]:
    for document in failed.start.history:
        cycle = past_cycle(document)
        if cycle is not None:
            yield cycle


def _of_attribution(attribution: Attribution) -> SourceVerdict:
    return SourceVerdict(
        action=Action(attribution.decision.action.value),
        reason=attribution.decision.reason,
        source=IN_PROCESS,
        decision=decision_document(attribution.decision),
        finding=finding_document(attribution.finding),
    )


class McpAnalysis:
    """Calls `attribute_log` of an MCP server: a URL, or a command that is started on the leader.

    It knows one cycle at a time: what a job did before is left to the launcher's own limit on
    cycles without progress.
    """

    def __init__(self, server: str, log_dir: Path, timeout: float) -> None:
        try:
            import mcp  # noqa: F401 - only to know that it is there, before the job starts
        except ModuleNotFoundError:
            raise InfrastructureError(
                "--ft-attribution-mcp-server needs mcp, which is not installed; "
                "pip install 'aorta-triage[launch,mcp]'"
            ) from None
        self._server = server
        self._log_dir = log_dir
        self._timeout = timeout

    def __call__(self, failed: FailedCycle) -> SourceVerdict:
        known = everything_known(failed)
        folder = self._log_dir / f"cycle_{failed.start.cycle}" / "tails"
        paths = [*(str(log.path) for log in known.logs), *_written(known.tails, folder)]
        rows = [row for piece in failed.evidence for row in piece.failure_rows()]
        try:
            return _of_mcp(asyncio.run(self._ask({"log_paths": paths, "failures": rows})))
        except TimeoutError:
            raise SourceError(f"no answer within {self._timeout:g} s") from None

    async def _ask(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        from mcp import Client, MCPError, StdioServerParameters

        server: str | StdioServerParameters = self._server
        if not self._server.startswith(("http://", "https://")):
            command, *rest = shlex.split(self._server)
            server = StdioServerParameters(command=command, args=rest, env=dict(os.environ))
        try:
            async with asyncio.timeout(self._timeout), Client(server) as client:
                result = await client.call_tool("attribute_log", dict(arguments))
        except (MCPError, OSError) as wrong:
            raise SourceError(f"the MCP server failed: {wrong}") from None
        except ExceptionGroup as several:  # the client's own tasks; a timeout among them is one
            raise SourceError(f"the MCP server failed: {several.exceptions[0]}") from None
        if result.is_error or not isinstance(result.structured_content, Mapping):
            raise SourceError(f"the MCP server refused: {str(result.content)[:200]}")
        answer = result.structured_content.get("result", result.structured_content)
        return answer if isinstance(answer, Mapping) else {}


def _written(tails: Sequence[LogTail], folder: Path) -> list[str]:
    """Ends of logs from other machines, as files the server can read."""
    paths = []
    for tail in tails:
        folder.mkdir(exist_ok=True)
        path = folder / f"rank_{tail.rank}.err"
        path.write_text(tail.text)
        paths.append(str(path))
    return paths


def _of_mcp(answer: Mapping[str, Any]) -> SourceVerdict:
    decision, finding = answer.get("decision"), answer.get("finding")
    if not isinstance(decision, Mapping) or decision.get("action") not in {*Action}:
        raise SourceError("the MCP server's answer holds no decision")
    return SourceVerdict(
        action=Action(decision["action"]),
        reason=str(decision.get("reason", "")),
        source=MCP,
        decision=dict(decision),
        finding=dict(finding) if isinstance(finding, Mapping) else None,
    )
