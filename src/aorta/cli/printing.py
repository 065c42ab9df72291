"""How a verb speaks: one JSON document on stdout for machines, words for people."""

import fcntl
import json
import os
import stat
import sys
import termios
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import click

from aorta.version import __version__


def print_json(schema: str, content: Mapping[str, Any]) -> None:
    """The one document of `--json`. Nothing else of ours goes to stdout in that mode."""
    document = {"schema": schema, "aorta_version": __version__, **content}
    click.echo(json.dumps(document, ensure_ascii=False, allow_nan=False))


def say(text: str = "") -> None:
    """Words for people go to stderr: stdout belongs to results."""
    click.echo(text, err=True)


def say_plan(lines: Iterable[str]) -> None:
    """What a dry run says."""
    for line in lines:
        say(line)
    say("nothing was run")


def warn_of_stdin() -> None:
    """Trials read nothing: what was piped into the command line would be lost silently."""
    if sys.stdin is None:
        return
    with suppress(OSError, ValueError):
        about = os.fstat(sys.stdin.fileno())
        waiting = about.st_size if stat.S_ISREG(about.st_mode) else 0
        if stat.S_ISFIFO(about.st_mode):
            room = fcntl.ioctl(sys.stdin.fileno(), termios.FIONREAD, b"\0" * 4)
            waiting = int.from_bytes(room, sys.byteorder)
        if waiting:
            say(
                "aorta: no trial saw what stands on stdin; put it into a file and run: "
                "bash -c 'COMMAND < FILE'"
            )


def say_above(text: str) -> None:
    """Above a live view, which takes over `sys.stderr`; click writes past it."""
    print(text, file=sys.stderr, flush=True)
