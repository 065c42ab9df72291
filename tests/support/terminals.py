"""A real terminal of any width around the command line, and what it would receive."""

import os
import pty
import re
from pathlib import Path

from support import fork_server
from support.aorta_cli import environ
from support.waiting import patience

_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


def on_terminal(arguments: list[str], cwd: Path, columns: int) -> tuple[str, int]:
    """Everything a terminal of this width would receive."""
    leader, follower = pty.openpty()
    env = environ({"TERM": "xterm", "COLUMNS": str(columns), "LINES": "24"})
    process = fork_server.start(
        *arguments, cwd=cwd, env=env, stdin=follower, stdout=follower, stderr=follower
    )
    os.close(follower)
    received = b""
    while True:
        try:
            data = os.read(leader, 65536)
        except OSError:  # the last process closed it
            break
        if not data:
            break
        received += data
    os.close(leader)
    return received.decode("utf-8", "replace"), process.wait(patience())


def written_lines(received: str) -> list[str]:
    """Every line that was ever drawn, without what moves the cursor or colours it."""
    return [line for line in re.split(r"[\r\n]+", _CONTROL.sub("", received)) if line.strip()]
