"""`aorta report`, `watch` and `runs`: show me, show me while it runs, and which runs are there?"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aorta.cli.options import as_json
from aorta.cli.printing import print_json, say
from aorta.core.errors import UsageError

if TYPE_CHECKING:
    from aorta.report.runs import Listed

_PATH = click.Path(path_type=Path)
_OPEN = click.option("--open", "open_it", is_flag=True, help="Show it in a browser.")
_WIDE = 160  # where no terminal says how wide it is


@click.command()
@click.argument("run_dir", type=_PATH)
@click.option("-o", "--output", type=_PATH, help="[default: RUN_DIR/report.html]")
@click.option("--share", is_flag=True, help="Replace names, addresses and paths too.")
@_OPEN
@as_json
def report(run_dir: Path, output: Path | None, share: bool, open_it: bool, as_json: bool) -> None:
    """Make one HTML page of any run directory: the answer, a picture, the evidence.

    The page needs no network and no script. Secrets are replaced; with --share so are names,
    addresses and paths, so that it may leave this machine.

    \b
    aorta report results/half_nan
    aorta report triage_results/GPU-7/half_nan/2026-11-15T05-35-08 -o page.html --open

    \b
    Exit codes: 0 written; 2 this is no run directory; 5 it cannot be written.
    """
    from aorta.report.building import write_page

    place = output or run_dir / "report.html"
    page, text = write_page(run_dir, place, shared=share)
    if as_json:
        content = {"path": str(place), "bytes": len(text.encode()), "answer": page.answer.sentence}
        print_json("aorta.report/1", content)
    else:
        click.echo(f"{page.answer.sentence}\n{place}")
    if open_it:
        click.launch(place.resolve().as_uri())


@click.command()
@click.argument("run_dir", type=_PATH)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="[default: any free one]")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on. The token that viewers need is part of the address printed.",
)
@_OPEN
def watch(run_dir: Path, port: int, host: str, open_it: bool) -> None:
    """Show the page of a run live, wherever the run is, as long as its directory can be read.

    It only reads: the run does not notice. It goes on when the run has ended; Ctrl-C ends it.

    \b
    aorta watch reduce/GPU-7/2026-11-15T05-35-08
    aorta watch /shared/results/half_nan --port 8080

    \b
    Exit codes: 0 ended by Ctrl-C; 2 no such directory; 5 the port is taken.
    """
    from aorta.report.watch import WatchServer

    if not run_dir.is_dir():
        raise UsageError("there is no such directory; expected a run directory", where=str(run_dir))
    server = WatchServer(run_dir, host, port)
    try:
        click.echo(server.address)
        say("Ctrl-C ends the view; the run does not notice")
        if open_it:
            click.launch(server.address)
        server.serve()
    except KeyboardInterrupt:
        say()
    finally:
        server.close()


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
def runs() -> None:
    """List the runs below a directory, newest first, or say what changed between two.

    \b
    aorta runs
    aorta runs triage_results
    aorta runs compare results/half_nan results/half_nan-2
    """


@runs.command("list")
@click.argument("directory", type=_PATH, default=Path())
@as_json
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


@runs.command("compare")
@click.argument("before", type=_PATH)
@click.argument("after", type=_PATH)
@as_json
def compare_(before: Path, after: Path, as_json: bool) -> None:
    """What is different between the runs BEFORE and AFTER: answer, rates, results, machine."""
    from aorta.report.runs import compare

    changed = compare(before, after)
    if as_json:
        print_json("aorta.comparison/1", {"changed": [vars(row) for row in changed]})
    elif not changed:
        click.echo("nothing that matters differs")
    else:
        rows = ((row.what, row.before, row.after, row.note) for row in changed)
        _print_table(("what", "before", "after", ""), rows)


def _show(runs: "list[Listed]", directory: Path) -> None:
    from datetime import UTC, datetime

    from aorta.core.durations import show_duration

    now = datetime.now(UTC)

    def age(run: "Listed") -> str:
        return show_duration((now - run.created).total_seconds()) if run.created else ""

    _print_table(
        ("verb", "ticket", "state", "age", "answer", "directory"),
        (
            (r.verb, r.ticket, r.state, age(r), r.answer, str(r.path.relative_to(directory)))
            for r in runs
        ),
    )


def _print_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for name in head:
        narrow = name in {"verb", "ticket", "state", "age"}
        table.add_column(name, overflow="fold", no_wrap=narrow)
    for row in rows:
        table.add_row(*map(Text, row))
    Console(width=None if sys.stdout.isatty() else _WIDE).print(table)
