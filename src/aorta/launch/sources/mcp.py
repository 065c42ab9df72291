"""Attribution through an MCP server: starts `aorta mcp` on the leader and calls its `attribute_log`.

The server reads logs from the log directory alone. It knows one cycle at a time: what a job did before is left to the
launcher's own limit on cycles without progress.
"""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aorta.attribution import LogTail, RankFailure
from aorta.core.errors import InfrastructureError
from aorta.launch.records import Action, Verdict
from aorta.launch.sources import FailedCycle, SourceError
from aorta.launch.sources.inprocess import everything_known

NAME = "mcp"


class McpAnalysis:
    """Needs the extra `mcp`; says so before the job starts, not at its first failure."""

    def __init__(self, log_dir: Path, timeout: float) -> None:
        try:
            import mcp  # noqa: F401 - only to know that it is there
        except ModuleNotFoundError:
            raise InfrastructureError(
                "--ft-attribution-enable-mcp needs mcp, which is not installed; "
                "pip install 'aorta-triage[launch,mcp]'"
            ) from None
        self._log_dir = log_dir
        self._timeout = timeout

    def __call__(self, failed: FailedCycle) -> Verdict:
        known = everything_known(failed)
        folder = self._log_dir / f"cycle_{failed.start.cycle}" / "tails"
        paths = [*(str(log.path) for log in known.logs), *_written(known.tails, folder)]
        rows = [_row(failure) for failure in known.failures]
        try:
            return _verdict(asyncio.run(self._ask({"log_paths": paths, "failures": rows})))
        except TimeoutError:
            raise SourceError(f"no answer within {self._timeout:g} s") from None

    async def _ask(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        from mcp import Client, MCPError, StdioServerParameters

        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "aorta", "mcp", "--allowed-root", str(self._log_dir)],
            env=dict(os.environ),  # it must find the same aorta
        )
        try:
            async with asyncio.timeout(self._timeout), Client(server) as client:
                result = await client.call_tool("attribute_log", dict(arguments))
        except (MCPError, OSError) as wrong:
            raise SourceError(f"the MCP server failed: {wrong}") from None
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


def _row(failure: RankFailure) -> dict[str, Any]:
    return {
        "rank": failure.rank,
        "exit_code": failure.exit_code,
        "signal": failure.signal,
        "error_file": str(failure.error_file) if failure.error_file else None,
        "node": failure.node,
        "hung": failure.hung,
    }


def _verdict(answer: Mapping[str, Any]) -> Verdict:
    decision, finding = answer.get("decision"), answer.get("finding")
    if not isinstance(decision, Mapping) or decision.get("action") not in {*Action}:
        raise SourceError("the MCP server's answer holds no decision")
    return Verdict(
        action=Action(decision["action"]),
        reason=str(decision.get("reason", "")),
        source=NAME,
        decision=dict(decision),
        finding=dict(finding) if isinstance(finding, Mapping) else None,
    )
