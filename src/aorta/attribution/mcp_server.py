"""The MCP server: attribution as tools for an assistant. Needs the extra `mcp`.

It reads only files under its allowed roots and, for decisions that a service keeps, asks that
service.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from aorta.attribution import attribute
from aorta.attribution.client import HttpError, JsonClient
from aorta.attribution.documents import Evidence, attribution_document
from aorta.attribution.evidence import failures_of, find_logs
from aorta.attribution.server import PathJail
from aorta.core.errors import AortaError, InfrastructureError, UsageError
from aorta.version import __version__

_INSTRUCTIONS = (
    "Says what killed a training job's cycle and whether a restart can help. Start with "
    "attribute_log on the logs of all ranks."
)


def create_server(roots: Sequence[Path], service: JsonClient | None = None) -> MCPServer:
    server = MCPServer(
        "aorta", version=__version__, instructions=_INSTRUCTIONS, log_level="WARNING"
    )
    jail = PathJail(roots)

    @server.tool()
    @in_a_sentence()
    def attribute_log(
        log_paths: list[str], failures: list[dict[str, Any]] | None = None
    ) -> dict[str, Any]:
        """What killed this cycle, who began it, and whether to restart.

        log_paths: logs of all ranks, or a directory of rank_<r>.out/.err. failures: [{"rank",
        "exit_code", "signal"}].
        """
        logs = find_logs([jail.admit(path) for path in log_paths])
        ended = failures_of(failures or [], "failures")
        evidence = Evidence(logs=logs, failures=ended, follow_links=False)
        return attribution_document(attribute(evidence))

    @server.tool()
    @in_a_sentence()
    def get_decision(job_id: str, cycle_id: str, wait: float = 0.0) -> dict[str, Any]:
        """The decision the service gave for a cycle; waits up to `wait` seconds for it."""
        if service is None:
            raise UsageError("no attribution service is configured; start with --service-url")
        where = f"/v1/cycles/{quote(job_id, safe='')}/{quote(cycle_id, safe='')}/decision"
        try:
            path = f"{where}?wait={min(max(wait, 0.0), 60.0)}"
            return dict(service.call("GET", path, wait + 10))
        except HttpError as wrong:
            raise InfrastructureError(f"the attribution service did not answer: {wrong}") from None

    return server


@contextmanager
def in_a_sentence() -> Iterator[None]:
    """What the caller did wrong is told to the caller; everything else is a crash of ours."""
    try:
        yield
    except AortaError as wrong:
        raise ToolError(str(wrong)) from None
