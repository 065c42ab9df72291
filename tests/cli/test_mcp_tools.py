"""What the MCP server starts goes on by itself."""

import sys
from pathlib import Path

import pytest

from support.waiting import wait_until

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
    from aorta.cli import mcp_tools  # and with it the SDK: not in every worker that collects this

    begun = mcp_tools._started(["true"], tmp_path, {})
    assert begun["run_dir"] == str(tmp_path / "solve" / "now")
    wait_until((tmp_path / "went_on").exists, "the end of what nobody reads")
