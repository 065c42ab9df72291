"""Runs as tools for an assistant: start a solve, ask how it stands, read what came of it.

A solve that is started here is a process of the server's own user, in a directory that the server
was allowed at its start, and what is read back has been through the scrubber.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aorta.attribution.jail import PathJail
from aorta.attribution.mcp_server import in_a_sentence
from aorta.core.errors import InfrastructureError, UsageError
from aorta.report.building import page_of, reader_of
from aorta.report.run_reader import verb_of
from aorta.report.runs import list_runs as runs_below

if TYPE_CHECKING:
    from mcp.server import MCPServer

_PATIENCE = 60.0
_PAUSE = 0.05


def add_run_tools(server: "MCPServer", jail: PathJail, *, may_start: bool) -> None:
    """`may_start`: whoever reaches the server may run commands as its user."""

    @server.tool()
    @in_a_sentence
    def solve_status(run_dir: str) -> dict[str, Any]:
        """A solve's state: running, done or stopped, its stages so far, and its answer."""
        return _status(jail.admit(run_dir))

    @server.tool()
    @in_a_sentence
    def get_report(run_dir: str) -> dict[str, Any]:
        """The answer of any run directory with its documents; secrets are replaced."""
        opened = reader_of(jail.admit(run_dir)).open()
        page = page_of(opened)
        return {
            "verb": page.verb,
            "state": opened.state,
            "answer": page.answer.sentence,
            "more": page.answer.more,
            "documents": dict(opened.documents),
        }

    @server.tool()
    @in_a_sentence
    def list_runs(directory: str) -> list[dict[str, Any]]:
        """Every run below a directory, newest first: verb, ticket, state, answer."""
        return [run.to_json() for run in runs_below(jail.admit(directory))]

    if not may_start:
        return

    @server.tool()
    @in_a_sentence
    def start_solve(
        command: list[str],
        directory: str,
        budget: str | None = None,
        good: str | None = None,
        stages: list[str] | None = None,
        timeout: str | None = None,
        ticket: str | None = None,
    ) -> dict[str, Any]:
        """Start `aorta solve` of a failing command in a directory, and come back at once. Ask
        solve_status how it goes.

        budget and timeout: such as "30m". good: a revision that worked. stages: only these.
        """
        options = {
            "--budget": budget,
            "--good": good,
            "--stages": ",".join(stages) if stages else None,
            "--timeout": timeout,
            "--ticket": ticket,
        }
        return _started(command, jail.admit(directory), options)


def _started(
    command: list[str], directory: Path, options: Mapping[str, str | None]
) -> dict[str, Any]:
    if not command:
        raise UsageError(
            "there is no command to solve; expected its words, such as python, train.py"
        )
    output = directory / "solve"
    before = set(output.glob("*"))
    words = [word for name, value in options.items() if value for word in (name, value)]
    solve = (sys.executable, "-m", "aorta", "solve", "-q", "--output", str(output))
    # A file, which nobody has to read: a full pipe would stop what writes to it.
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            (*solve, *words, "--", *command),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,  # it outlives the server that started it
            env=os.environ.copy(),
        )
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            fresh = [p for p in output.glob("*") if p not in before]
            begun = [path for path in fresh if (path / ".aorta" / "request.json").is_file()]
            if begun:
                return {"run_dir": str(begun[0]), "process": process.pid}
            if process.poll() is not None:
                said.seek(0)
                lines = said.read().decode(errors="replace").strip().splitlines()
                raise UsageError(lines[-1] if lines else "it ended at once")
            time.sleep(_PAUSE)
    process.terminate()
    raise InfrastructureError("the solve did not begin in a minute; is the machine overloaded?")


def _status(run_dir: Path) -> dict[str, Any]:
    if verb_of(run_dir) != "solve":
        raise UsageError("this is no directory of a solve")
    opened = reader_of(run_dir).open()
    result = opened.documents.get("result") or {}
    return {
        "state": opened.state,
        "status": result.get("status"),
        "stages": result.get("stages") or opened.documents.get("stages") or [],
        "answer": page_of(opened).answer.sentence,
        "next": result.get("next") or [],
    }
