"""`aorta env`: what exactly is this machine?"""

import errno
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aorta.cli.options import as_json
from aorta.cli.printing import print_json, say
from aorta.core.errors import InfrastructureError, UsageError

if TYPE_CHECKING:
    from aorta.probe.snapshot import Difference, EnvSnapshot

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
@click.option(
    "--diff",
    "compared",
    nargs=2,
    metavar="A B",
    type=click.Path(path_type=Path),
    help="Show what differs between two snapshot files, and take none.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show the installed packages too.")
def probe(
    output: Path | None,
    as_json: bool,
    compared: tuple[Path, Path] | None,
    verbose: bool,
) -> None:
    """Take a snapshot of this machine: host, GPUs, driver stack, container, Python, packages,
    known variables.

    What could not be found out is listed, and is never an error. Secrets do not enter the snapshot.

    \b
    Exit codes: 0 done; 2 the command line, or a file named in it, is wrong; 5 the disk fails.
    """
    if compared:
        if output:
            raise UsageError("--diff compares two files and takes no snapshot; remove --output")
        _show_differences(*compared, as_json=as_json)
        return
    snapshot = _of_the_active_environment()
    place = output or (None if as_json else _DEFAULT_FILE)
    if place:
        _write(snapshot, place)
    if as_json:
        print_json(snapshot.schema, snapshot.to_dict())
    elif str(place) != "-":
        click.echo(snapshot.summary(verbose=verbose))


def _of_the_active_environment() -> "EnvSnapshot":
    """The machine as the Python that comes first on the path sees it, where that is one of another
    virtual environment than ours; else as ours does.
    """
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


def _show_differences(first: Path, second: Path, *, as_json: bool) -> None:
    from aorta.probe.snapshot import differences

    found = differences(_snapshot_at(first), _snapshot_at(second))
    if as_json:
        rows = [{"path": e.path, "change": e.change, "a": e.before, "b": e.after} for e in found]
        print_json("aorta.env.diff/1", {"equal": not rows, "differences": rows})
        return
    for entry in found:
        click.echo(_as_line(entry))
    if not found:
        click.echo("no difference")


def _snapshot_at(path: Path) -> Mapping[str, Any]:
    from aorta.registry.documents import load_document

    document = load_document(path, "json")
    if not isinstance(document, Mapping) or "schema_version" not in document:
        raise UsageError(
            "is no snapshot: expected a file written by `aorta env probe`", where=str(path)
        )
    return document


def _as_line(entry: "Difference") -> str:
    sign = {"added": "+", "removed": "-"}.get(entry.change, "~")
    sides = {"added": [entry.after], "removed": [entry.before]}
    shown = sides.get(entry.change, [entry.before, entry.after])
    values = " -> ".join(json.dumps(side, ensure_ascii=False) for side in shown)
    return f"{sign} {entry.path}: {values}"
