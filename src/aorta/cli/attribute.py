"""`aorta attribute`: what killed this cycle, and should it restart?"""

from pathlib import Path
from typing import Any

import click

from aorta.cli.printing import print_json, say

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command("attribute")
@click.argument("logs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="LOG...")
@click.option(
    "--failures", type=_FILE, help='JSON: [{"rank", "exit_code", "signal"}], or a cycle_info.json.'
)
@click.option(
    "--history", type=_DIRECTORY, help="Directory of the job's earlier cycle_<n> directories."
)
@click.option(
    "--kernel-log",
    type=_FILE,
    multiple=True,
    help="Kernel messages of a node (dmesg, journalctl -k).",
)
@click.option(
    "--flight-recorder", type=_DIRECTORY, help="Directory of flight recorder dumps, JSON or pickle."
)
@click.option(
    "--patterns", type=_FILE, help="Your own patterns (TOML), read before the built-in ones."
)
@click.option(
    "--max-no-progress-cycles",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="Stop after this many cycles in a row without progress; 0: never for that.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def command(as_json: bool, **given: Any) -> None:
    """Say what failed, who began it, how sure that is, and whether a restart can help.

    LOG is a log of any size (gzip is read as it is), a directory of rank_<r>.out/.err, a cycle
    directory of `aorta launch`, or its log directory: then the last cycle in it is read, and those
    before are its history. Exit codes: 0 an answer was found (also: it ended well), 2 the command
    line is wrong, 3 the evidence does not tell.
    """
    from aorta.attribution.documents import SCHEMA, attribution_document, described
    from aorta.attribution.nouns import CycleState, FailureClass
    from aorta.attribution.request import AttributeRequest, attribute, last_cycle
    from aorta.core.errors import Exit

    for cycle in filter(None, map(last_cycle, given["logs"])):
        say(f"aorta: reading {cycle}, the last cycle there")
    result = attribute(AttributeRequest(**given))
    if as_json:
        print_json(SCHEMA, attribution_document(result))
    else:
        click.echo(described(result))
    finding = result.finding
    ended_well = finding.state is CycleState.ENDED_WELL
    if finding.failure_class is FailureClass.UNKNOWN and not ended_well:
        raise click.exceptions.Exit(Exit.NO_ANSWER)
