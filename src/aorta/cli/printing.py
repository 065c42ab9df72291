"""How a verb speaks: one JSON document on stdout for machines, words for people."""

import json
import sys
from collections.abc import Iterable, Mapping
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


def say_above(text: str) -> None:
    """While a live view is up: it takes what is printed to `sys.stderr` and puts it above itself;
    click writes past it.
    """
    print(text, file=sys.stderr, flush=True)
