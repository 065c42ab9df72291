"""The MCP server: attribution as tools for an assistant. Needs the extra `mcp`.

It reads only files under its allowed roots and, for decisions that a service keeps, asks that
service.
"""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from urllib.parse import quote

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from aorta.attribution import attribute
from aorta.attribution.client import HttpError, JsonClient
from aorta.attribution.documents import attribution_document
from aorta.attribution.events import built_in
from aorta.attribution.evidence import failures_of, find_logs
from aorta.attribution.jail import PathJail
from aorta.attribution.nouns import Evidence, FailureClass
from aorta.attribution.policy import RULES
from aorta.core.errors import AortaError, InfrastructureError, UsageError
from aorta.version import __version__

P = ParamSpec("P")
T = TypeVar("T")

_INSTRUCTIONS = (
    "Says what killed a training job's cycle and whether a restart can help. Start with "
    "attribute_log on the logs of "
    "all ranks; explain_finding says why the decision follows from the class."
)


def create_server(roots: Sequence[Path], service: JsonClient | None = None) -> MCPServer:
    server = MCPServer(
        "aorta", version=__version__, instructions=_INSTRUCTIONS, log_level="WARNING"
    )
    jail = PathJail(roots)

    @server.tool()
    @in_a_sentence
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
    @in_a_sentence
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

    @server.tool()
    @in_a_sentence
    def explain_finding(failure_class: str) -> dict[str, Any]:
        """Why a class of failure gets the decision it gets, and what is known to cause it."""
        return explain(failure_class)

    @server.tool()
    @in_a_sentence
    def list_patterns(failure_class: str | None = None) -> list[dict[str, Any]]:
        """The patterns failures are recognised by, all or of one class."""
        return patterns(failure_class)

    return server


def in_a_sentence(tool: Callable[P, T]) -> Callable[P, T]:
    """What the caller did wrong is told to the caller; everything else is a crash of ours."""

    @functools.wraps(tool)
    def told(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return tool(*arguments, **named)
        except AortaError as wrong:
            raise ToolError(str(wrong)) from None

    return told


def explain(failure_class: str) -> dict[str, Any]:
    kind = _class(failure_class)
    rule = RULES[kind]
    rows = [row for row in built_in().patterns if row.failure_class is kind]
    advice = sorted({row.advice.text for row in rows if row.advice})
    return {
        "class": kind.value,
        "first_occurrence": rule.policy.value,
        "because": rule.why,
        "advice": advice,
        "recognised_by": [row.id for row in rows],
    }


def patterns(failure_class: str | None) -> list[dict[str, Any]]:
    wanted = None if failure_class is None else _class(failure_class)
    return [
        row.model_dump(mode="json", include={"id", "role", "certainty", "regex", "origin"})
        | {"class": row.failure_class.value, "example": row.hits[0]}
        for row in built_in().patterns
        if wanted in {None, row.failure_class}
    ]


def _class(name: str) -> FailureClass:
    if name not in set(FailureClass):
        raise UsageError(f"{name!r} is no failure class; expected one of {', '.join(FailureClass)}")
    return FailureClass(name)
