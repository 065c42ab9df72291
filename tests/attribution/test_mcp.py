"""The MCP server through the SDK's own client, over its stdin and stdout."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from benchmarks.faults.corpus import CORPUS

from support.aorta_cli import environ
from support.attribution_service import running_service

if TYPE_CHECKING:  # 0.6 s in every worker that only collects
    from mcp import Client, StdioServerParameters

pytestmark = pytest.mark.xdist_group("attrsvc")
LOGS = str(CORPUS / "disk_full_write")
CANNOT_BE_DONE: list[tuple[str, dict[str, Any], str]] = [
    ("attribute_log", {"log_paths": ["/etc/passwd"]}, "outside the allowed roots"),
    ("attribute_log", {"log_paths": [f"{CORPUS}/../x"]}, "hold no '..'"),
]


def stdio(*options: str) -> "StdioServerParameters":
    from mcp import StdioServerParameters

    arguments = ["-m", "aorta", "mcp", "--allowed-root", str(CORPUS), *options]
    return StdioServerParameters(command=sys.executable, args=arguments, env=environ())


async def call(client: "Client", tool: str, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    structured = result.structured_content or {}
    return structured.get("result", structured)


async def refused(client: "Client", tool: str, arguments: dict[str, Any]) -> str:
    from mcp import MCPError

    try:
        result = await client.call_tool(tool, arguments)
    except MCPError as wrong:
        return str(wrong)
    assert result.is_error
    return str(result.content)


def test_every_tool_answers_over_stdio_and_what_it_cannot_do_is_said_in_a_sentence(
    tmp_path: Path,
) -> None:
    from mcp import Client

    (tmp_path / "secret").write_text("ModuleNotFoundError: No module named 'secret_4711'\n")
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "rank_0.err").symlink_to(tmp_path / "secret")

    async def talk(url: str) -> None:
        options = ("--service-url", url, "--allowed-root", str(logs))
        async with Client(stdio(*options)) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert {"attribute_log", "get_decision"} <= tools
            failures = [{"rank": 1, "exit_code": 1}]
            found = await call(client, "attribute_log", log_paths=[LOGS], failures=failures)
            assert found["decision"]["action"] == "STOP"
            assert found["finding"]["root"]["rank"] == 1
            decision = await call(client, "get_decision", job_id="j", cycle_id="j:0", wait=30)
            assert decision["decision"]["action"] == "STOP"
            for tool, arguments, said in CANNOT_BE_DONE:
                assert said in await refused(client, tool, arguments)
            linked = await call(client, "attribute_log", log_paths=[str(logs)])
            assert "secret_4711" not in str(linked), "a link among logs is not followed"

    with running_service(CORPUS, tmp_path / "s.sqlite") as service, service.client() as http:
        report = {"job_id": "j", "cycle_id": "j:0", "agent": "a", "log_paths": [LOGS]}
        http.post("/v1/cycles", json=report)
        asyncio.run(talk(service.url))
