"""One JSON document on stdout for machines, words on stderr; a lost stream loses no work."""

import errno
import fcntl
import io
import json
import os
import stat
import sys
import termios
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import click

from aorta.version import __version__

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def print_json(schema: str, content: Mapping[str, Any]) -> None:
    """The one document of `--json`. Nothing else of ours goes to stdout in that mode."""
    document = {"schema": schema, "aorta_version": __version__, **content}
    print(json.dumps(document, ensure_ascii=False, allow_nan=False), flush=True)


def say(text: str = "") -> None:
    """Words for people go to stderr, above a live view: stdout belongs to results."""
    print(text, file=sys.stderr, flush=True)


def show_plan(
    verb: str,
    lines: Iterable[str],
    *,
    as_json: bool,
    echo: Callable[[str], object] = say,
    **content: Any,
) -> None:
    """What a dry run says: `content` and the lines as the one document, or the lines alone."""
    said = [*lines]
    if as_json:
        print_json(f"aorta.{verb}.plan/1", {**content, "lines": said})
    else:
        for line in said:
            echo(line)
    say("nothing was run")


class Result(Protocol):
    @property
    def exit_code(self) -> int: ...
    def to_json(self) -> Mapping[str, Any]: ...


def show_and_leave(
    schema: str, result: Result, lines: Iterable[str], *, as_json: bool, go_on: str | None
) -> NoReturn:
    """The result on stdout, on stderr how to go on with what is not done, and the exit code."""
    if as_json:
        print_json(schema, result.to_json())
    else:
        for line in lines:
            click.echo(line)
    if go_on:
        say(f"aorta: {go_on}")
    raise click.exceptions.Exit(int(result.exit_code))


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


class _Unfailing(io.FileIO):
    """Keeps the first write error in `failed`: `aorta run | head -1` must not end the trials."""

    failed: OSError | None = None

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except BlockingIOError:
            raise
        except OSError as wrong:
            self.failed = self.failed or wrong
            return memoryview(data).nbytes


def open_standard_streams() -> None:
    """After `>&-` no file takes a stream's number; non-UTF-8 is escaped, which JSON reads back."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    sys.stdout = _unfailing(1, sys.stdout)
    sys.stderr = _unfailing(2, sys.stderr)


def _unfailing(number: int, stream: object) -> io.TextIOWrapper:
    known = stream if isinstance(stream, io.TextIOWrapper) else None
    return io.TextIOWrapper(
        io.BufferedWriter(_Unfailing(number, "w", closefd=False)),
        encoding=known.encoding if known else "utf-8",
        errors="backslashreplace",
        line_buffering=known.line_buffering if known else False,
        write_through=known.write_through if known else False,
    )


def why_results_are_lost() -> str:
    """What kept results from stdout, such as a full disk; "" if nothing did or its reader left."""
    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    failed = raw.failed if isinstance(raw, _Unfailing) else None
    return "" if failed is None or failed.errno == errno.EPIPE else failed.strerror or str(failed)
