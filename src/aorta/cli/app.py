"""The click application: verbs loaded when named, errors as one line, exit codes as documented."""

import difflib
import importlib
import signal
import sys
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from aorta.cli import COMMANDS, OTHER_NAMES, VERBS, top_help
from aorta.cli.printing import print_json, say, why_results_are_lost
from aorta.core.errors import AortaError, Exit, Terminated, UsageError
from aorta.version import __version__


class _LazyVerbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in OTHER_NAMES:
            say(f"aorta: `{name}` is `aorta {OTHER_NAMES[name]}` here")
            verb, _, inner = OTHER_NAMES[name].partition(" ")
            group = self.get_command(ctx, verb)
            if isinstance(group, click.Group) and inner:
                return group.get_command(ctx, inner)
            return group
        if name not in COMMANDS:
            near = difflib.get_close_matches(name, COMMANDS, 1)
            if near:
                raise UsageError(f"there is no verb {name!r}; did you mean {near[0]!r}?")
            return None
        module, _, found = COMMANDS[name].partition(":")
        command: click.Command = getattr(importlib.import_module(f"aorta.cli.{module}"), found)
        return command

    def get_help(self, ctx: click.Context) -> str:
        return top_help().rstrip("\n")


@click.group(cls=_LazyVerbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="aorta", message="%(prog)s %(version)s")
def app() -> None:
    """Every verb of Aorta."""


def run(arguments: Sequence[str]) -> NoReturn:
    """Run one command line and leave with its exit code."""
    signal.signal(signal.SIGTERM, _terminate)
    code = _exit_code(arguments)
    if why := why_results_are_lost():
        say(f"aorta: stdout: cannot be written: {why}")
        code = Exit.INFRASTRUCTURE
    raise SystemExit(code)


def _exit_code(arguments: Sequence[str]) -> int:
    # Behind a literal `--` is the user's command.
    as_json = "--json" in takewhile("--".__ne__, arguments)
    try:
        try:
            Path.cwd()
        except FileNotFoundError:
            raise UsageError("the current directory is gone; cd to one that exists") from None
        return int(app.main(list(arguments), prog_name="aorta", standalone_mode=False) or 0)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as wrong:
        context = getattr(wrong, "ctx", None)
        help_of = context.command_path if context else "aorta"
        return _fail(UsageError(wrong.format_message()), as_json, f" (try '{help_of} --help')")
    except AortaError as wrong:
        return _fail(wrong, as_json)
    except (KeyboardInterrupt, click.Abort):
        return _interrupted(Exit.INTERRUPTED, as_json)
    except Terminated:
        return _interrupted(Exit.TERMINATED, as_json)


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise Terminated


def _fail(error: AortaError, as_json: bool, hint: str = "") -> int:
    _print_error(error.kind, error.message, error.where, as_json)
    print(f"aorta: {error}{hint}", file=sys.stderr)
    return int(error.exit_code)


def _interrupted(code: Exit, as_json: bool) -> int:
    _print_error("interrupted", "interrupted", None, as_json)
    print("aorta: interrupted", file=sys.stderr)
    return int(code)


def _print_error(kind: str, message: str, where: str | None, as_json: bool) -> None:
    if as_json:
        body = {"kind": kind, "message": message, "where": where}
        print_json("aorta.error/1", {"error": body})
