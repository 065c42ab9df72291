"""What the MCP server starts goes on by itself."""

import sys
import time
from pathlib import Path

import pytest

from aorta.cli import mcp_tools

LOUD = """#!/bin/sh
mkdir -p "$PWD/solve/now/.aorta"
echo '{}' > "$PWD/solve/now/.aorta/request.json"
head -c 300000 /dev/zero >&2
touch "$PWD/went_on"
"""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_solve_that_writes_much_to_stderr_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "loud"
    program.write_text(LOUD)
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    begun = mcp_tools._started(["true"], tmp_path, {})
    assert begun["run_dir"] == str(tmp_path / "solve" / "now")
    deadline = time.monotonic() + 20
    while not (tmp_path / "went_on").exists():
        assert time.monotonic() < deadline, "it waits for somebody to read"
        time.sleep(0.02)
