"""Runs the command line as a user does: another process, its exit code, its two streams."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import fork_server
from support.waiting import patience

COMMAND = (sys.executable, "-m", "aorta")
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Finished:
    """How one command line ended."""

    arguments: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str

    def json(self) -> Any:
        """The one document of `--json`; anything else on stdout is a failure of the test."""
        assert self.stdout.count("\n") == 1, f"not exactly one line on stdout: {self}"
        return json.loads(self.stdout)


def environ(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a command line under test: this checkout first on the path, no colours."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1", **(extra or {})}


def aorta(
    *arguments: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    timeout: float = 120,
) -> Finished:
    """Run `aorta ARGUMENTS...` to its end. Whether it should have succeeded is for the test to
    say.
    """
    words = tuple(str(argument) for argument in arguments)
    started = fork_server.start(
        *words,
        cwd=cwd,
        env=environ(env),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    )
    with started as process:
        try:
            stdout, stderr = process.communicate(stdin, timeout=patience(timeout))
        except BaseException:
            process.kill()
            raise
    return Finished(words, process.returncode, stdout, stderr)


def start_aorta(
    *arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start `aorta ARGUMENTS...` in its own session, for tests that send it signals while it
    works.
    """
    return fork_server.start(
        *map(str, arguments),
        cwd=cwd,
        env=environ(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
