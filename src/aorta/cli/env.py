"""`aorta env`: what exactly is this machine?"""

import errno
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aorta.cli.options import as_json
from aorta.cli.printing import print_json, say
from aorta.core.errors import InfrastructureError, UsageError

if TYPE_CHECKING:
    from aorta.probe.snapshot import EnvSnapshot

_DEFAULT_FILE = Path("env.json")
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS}


@click.group(no_args_is_help=False)
def command() -> None:
    """What exactly is this machine?"""


@command.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Where to write the snapshot; - is stdout.  [default: env.json; none with --json]",
)
@as_json
@click.option("-v", "--verbose", is_flag=True, help="Show the installed packages too.")
def probe(output: Path | None, as_json: bool, verbose: bool) -> None:
    """Take a snapshot of this machine: host, GPUs, driver stack, container, Python, packages,
    known variables.

    What could not be found out is listed, and is never an error. Secrets do not enter the snapshot.

    \b
    Exit codes: 0 done; 2 the command line, or a file named in it, is wrong; 5 the disk fails.
    """
    snapshot = _of_the_active_environment()
    place = output or (None if as_json else _DEFAULT_FILE)
    if place:
        _write(snapshot, place)
    if as_json:
        print_json(snapshot.schema, snapshot.to_dict())
    elif str(place) != "-":
        click.echo(snapshot.summary(verbose=verbose))


def _of_the_active_environment() -> "EnvSnapshot":
    """The machine as the Python of the active virtual environment sees it, else as ours does."""
    import shutil
    import subprocess
    import sys

    from aorta.probe.snapshot import EnvSnapshot, collect_env, probe_argv

    first = shutil.which("python3") or shutil.which("python")
    home = Path(first).parent if first else None
    if home is None or home == Path(sys.executable).parent:
        return collect_env()
    if not (home.parent / "pyvenv.cfg").exists():
        return collect_env()
    words = (str(first), *probe_argv(mounted=False)[1:])
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    try:
        return EnvSnapshot.from_dict(json.loads(done.stdout))
    except ValueError:
        say(f"{first} does not answer: this is the environment of {sys.executable}")
        return collect_env()


def _write(snapshot: "EnvSnapshot", place: Path) -> None:
    from aorta.engine.snapshots import write_snapshot

    try:
        write_snapshot(snapshot, place)
    except OSError as wrong:
        kind = InfrastructureError if wrong.errno in _NO_SPACE else UsageError
        raise kind(f"cannot be written: {wrong.strerror}", where=str(place)) from None
    if str(place) != "-":
        mark = " [PARTIAL]" if snapshot.partial else ""
        say(f"wrote {place} (schema_version={snapshot.schema_version}){mark}")
