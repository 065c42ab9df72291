"""A solve that an assistant starts, follows and reads, through the SDK's own client."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import solve_stories

from support.aorta_cli import environ
from support.waiting import patience

if TYPE_CHECKING:  # every worker loads this file, and one of them needs a second for the SDK
    from mcp import Client


async def call(client: "Client", tool: str, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    structured = result.structured_content or {}
    return structured.get("result", structured)


def test_an_assistant_starts_a_solve_follows_it_and_reads_its_report(tmp_path: Path) -> None:
    from mcp import Client, StdioServerParameters

    story = solve_stories.missing_module(tmp_path)
    arguments = ["-m", "aorta", "mcp", "--allowed-root", str(tmp_path)]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=environ())

    async def talk() -> None:
        async with Client(server) as client:
            begun = await call(
                client, "start_solve", command=list(story.command), directory=str(tmp_path)
            )
            run_dir = begun["run_dir"]
            async with asyncio.timeout(patience()):
                status = await call(client, "solve_status", run_dir=run_dir)
                while status["state"] != "done":
                    await asyncio.sleep(0.1)
                    status = await call(client, "solve_status", run_dir=run_dir)
            assert status["status"] == "user_error"
            report = await call(client, "get_report", run_dir=run_dir)
            assert "modul_that_nobody_has" in report["answer"]
            (listed,) = await call(client, "list_runs", directory=str(tmp_path / "solve"))
            assert (listed["verb"], listed["state"]) == ("solve", "done")
            refused = await client.call_tool(
                "start_solve", {"command": ["true"], "directory": "/etc"}
            )
            assert refused.is_error

    asyncio.run(talk())
