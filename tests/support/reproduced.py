"""Both sides of an answer, shown as somebody does who pastes the commands of its report."""

import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.aorta_cli import environ
from support.waiting import patience

_BLOCK = re.compile(r"^```sh\n(.*?)\n```$", re.DOTALL | re.MULTILINE)


def assert_both_sides_show(
    result: Mapping[str, Any], env: Mapping[str, str] | None = None, *, bad: int = 1
) -> None:
    """The good side passes and the bad one fails as its trials did, by the text of the report."""
    sides = result["reproduce"]
    report = (Path(result["output_dir"]) / "report.md").read_text()
    assert _BLOCK.findall(report) == [sides["good"], sides["bad"]]
    assert pasted(sides["good"], env) == 0
    assert pasted(sides["bad"], env) == bad


def pasted(text: str, env: Mapping[str, str] | None = None) -> int:
    """The exit code of a command in a shell that goes on after it and where it leaves nothing."""
    with tempfile.TemporaryDirectory() as scratch:
        shell = subprocess.run(
            ("sh", "-c", 'eval "$1"\necho "the shell goes on after $?"', "sh", text),
            cwd=scratch,
            env=environ({**(env or {}), "TMPDIR": scratch}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=patience(),
            check=False,
        )
        last = shell.stdout.splitlines()[-1:] or [""]
        assert last[0].startswith("the shell goes on after "), f"{text}\n{shell}"
        assert list(Path(scratch).iterdir()) == [], text
    print(shell.stdout, shell.stderr)  # where a side does not show, this says why
    return int(last[0].rpartition(" ")[2])
