"""A program that is not ours, run to its end for what it says."""

from collections.abc import Sequence
from subprocess import CompletedProcess, run
from typing import Any


def heard(words: Sequence[str], text: str = "", **how: Any) -> CompletedProcess[str]:
    """It reads `text`; what it says is text too, whatever its bytes. `how` else it is run."""
    how |= {"capture_output": True, "check": False, "encoding": "utf-8", "errors": "replace"}
    done: CompletedProcess[str] = run(words, input=text, **how)  # noqa: PLW1510
    return done
