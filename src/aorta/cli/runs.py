"""`aorta runs`: which runs are there, and what changed from one to another?"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aorta.cli.printing import print_json
from aorta.core.errors import UsageError

if TYPE_CHECKING:
    from aorta.report.runs import Changed, Listed

_WIDE = 160  # where no terminal says how wide it is


class _ListUnlessNamed(click.Group):
    """`aorta runs DIR` lists; `aorta runs compare A B` compares."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in {*self.commands, "-h", "--help"}:
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=_ListUnlessNamed,
    subcommand_metavar="[DIR] | compare A B",
    context_settings={"help_option_names": ["-h", "--help"]},
)
def command() -> None:
    """List the runs below a directory, newest first, or say what changed between two.

    \b
    aorta runs
    aorta runs triage_results
    aorta runs compare results/half_nan results/half_nan-2
    """


@command.command("list")
@click.argument("directory", type=click.Path(path_type=Path), default=Path())
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def list_(directory: Path, as_json: bool) -> None:
    """Every run below DIRECTORY: verb, ticket, state, answer, age."""
    from aorta.report.runs import list_runs

    if not directory.is_dir():
        raise UsageError("there is no such directory", where=str(directory))
    found = list_runs(directory)
    if as_json:
        print_json("aorta.runs/1", {"runs": [run.to_json() for run in found]})
    elif not found:
        click.echo(f"no runs below {directory}")
    else:
        _show(found, directory)


@command.command("compare")
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def compare_(before: Path, after: Path, as_json: bool) -> None:
    """What is different between the runs BEFORE and AFTER: answer, rates, results, machine."""
    from aorta.report.runs import compare

    changed = compare(before, after)
    if as_json:
        print_json("aorta.comparison/1", {"changed": [vars(row) for row in changed]})
    elif not changed:
        click.echo("nothing that matters differs")
    else:
        _show_changes(changed)


def _show(runs: "list[Listed]", directory: Path) -> None:
    from datetime import UTC, datetime

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from aorta.core.durations import show_duration

    table = Table(box=None, pad_edge=False)
    for name in ("verb", "ticket", "state", "age"):
        table.add_column(name, no_wrap=True)
    table.add_column("answer", ratio=1)
    table.add_column("directory", overflow="fold")
    now = datetime.now(UTC)
    for run in runs:
        age = show_duration((now - run.created).total_seconds()) if run.created else ""
        place = str(run.path.relative_to(directory))
        cells = (run.verb, run.ticket, run.state, age, run.answer, place)
        table.add_row(*(Text(cell) for cell in cells))
    Console(width=None if sys.stdout.isatty() else _WIDE).print(table)


def _show_changes(changed: "list[Changed]") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for name in ("what", "before", "after", ""):
        table.add_column(name, overflow="fold")
    for row in changed:
        table.add_row(*(Text(cell) for cell in (row.what, row.before, row.after, row.note)))
    Console(width=None if sys.stdout.isatty() else _WIDE).print(table)
