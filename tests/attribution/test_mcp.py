"""The MCP server through the SDK's own client, over both transports."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from benchmarks.faults.corpus import CORPUS

from support import fork_server
from support.aorta_cli import environ
from support.attribution_service import running_service
from support.waiting import patience

if TYPE_CHECKING:  # 0.6 s in every worker that only collects
    from mcp import Client, StdioServerParameters

pytestmark = pytest.mark.xdist_group("attrsvc")
LOGS = str(CORPUS / "disk_full_write")
ACCEPTS = {"Accept": "application/json, text/event-stream"}
CANNOT_BE_DONE: list[tuple[str, dict[str, Any], str]] = [
    ("attribute_log", {"log_paths": ["/etc/passwd"]}, "outside the allowed roots"),
    ("attribute_log", {"log_paths": [f"{CORPUS}/../x"]}, "hold no '..'"),
]
INITIALISE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


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


def posted(url: str, headers: dict[str, str]) -> httpx.Response:
    return httpx.post(url, json=INITIALISE, headers=headers, timeout=patience())


def test_over_http_every_tool_is_there_but_for_a_web_page_that_points_its_name_at_this_machine() -> (
    None
):
    from mcp import Client

    async def talk() -> None:
        async with http_server("--no-token") as url:
            async with Client(url) as client:
                found = await call(client, "attribute_log", log_paths=[LOGS])
                assert found["finding"]["class"] == "disk_full"
                alone = await refused(client, "get_decision", {"job_id": "j", "cycle_id": "0"})
                assert "no attribution service is configured" in alone
            for foreign in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
                answer = posted(url, {**ACCEPTS, **foreign})
                assert answer.status_code in {HTTPStatus.MISDIRECTED_REQUEST, HTTPStatus.FORBIDDEN}
            assert posted(url, ACCEPTS).status_code == HTTPStatus.OK

    asyncio.run(talk())


def test_over_http_only_callers_with_the_token_are_answered(tmp_path: Path) -> None:
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    token = tmp_path / "token"
    token.write_text("correct horse battery\n")

    async def talk() -> None:
        async with http_server("--token-file", str(token)) as url:
            for headers in ({}, {"Authorization": "Bearer wrong"}):
                answer = posted(url, {**ACCEPTS, **headers})
                assert answer.status_code == HTTPStatus.UNAUTHORIZED
            bearer = {"Authorization": "Bearer correct horse battery"}
            allowed = httpx2.AsyncClient(headers=bearer, timeout=patience())
            async with allowed, Client(streamable_http_client(url, http_client=allowed)) as client:
                found = await call(client, "attribute_log", log_paths=[LOGS])
                assert found["finding"]["class"] == "disk_full"

    asyncio.run(talk())


@asynccontextmanager
async def http_server(*options: str) -> AsyncIterator[str]:
    words = ("mcp", "--transport", "http", "--port", "0", *options, "--allowed-root", str(CORPUS))
    process = fork_server.start(*words, stderr=subprocess.PIPE, text=True, env=environ())
    assert process.stderr is not None
    try:
        while "MCP server at" not in (line := await asyncio.to_thread(process.stderr.readline)):
            assert line, "it ended"
        yield line.split()[-1]
    finally:
        process.terminate()
        process.wait(patience())
        process.stderr.close()
