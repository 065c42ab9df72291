"""`aorta bundle`: what may leave this site, and what is in it?"""

import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aorta.cli import options
from aorta.cli.printing import print_json, say
from aorta.core.errors import Exit

if TYPE_CHECKING:
    from aorta.bundle.archive import BundleReport, Checked
    from aorta.bundle.pack import Prepared

_PATH = click.Path(path_type=Path)
_MIB = 2**20
_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
_MAX_SIZE = click.option(
    "--max-size",
    type=click.IntRange(min=1),
    default=4096,
    show_default=True,
    metavar="MIB",
    help="Refuse a bundle that unpacks to more.",
)
_BUNDLE = click.argument("bundle", metavar="FILE", type=_PATH)


class _PackByDefault(click.Group):
    """`aorta bundle RUN_DIR` packs; the other words are its sub-commands."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in self.commands:
            args = ["pack", *(args or ["--help"])]
        return super().parse_args(ctx, args)


@click.group(cls=_PackByDefault)
def command() -> None:
    """Pack a run directory, verify, show or unpack a bundle."""


@command.command()
@click.argument("run_dir", type=_PATH)
@click.option("--output", type=_PATH, default=Path(), help="Where the bundle goes. [default: here]")
@click.option("--ticket", metavar="T", help="Instead of the ticket that the run itself names.")
@click.option(
    "--scrub",
    multiple=True,
    metavar="P[,P]",
    help="Take out this text too; * and ? are wildcards, re: a regex.",
)
@click.option(
    "--policy", type=_PATH, metavar="FILE", help="The site's rules: scrub, keep, include, exclude."
)
@click.option("--review", is_flag=True, help="Show every file and every replacement, then ask.")
@click.option(
    "--whole-logs", is_flag=True, help="Not only the first 1 MiB and the last 7 MiB of each log."
)
@click.option(
    "--allow-binary", is_flag=True, help="Let files that are no text leave as they are, unscrubbed."
)
@options.unless(
    "--no-check", "check", help="Do not run the reproducer from where the bundle is unpacked."
)
@_AS_JSON
def pack(review: bool, as_json: bool, **given: Any) -> None:
    """Pack RUN_DIR (of reduce, triage, bisect, run or a stopped launch) into TICKET-UTC.tar.gz.

    Secrets, private paths, addresses and names are replaced by placeholders; RUN_DIR is not
    changed, and nothing is sent anywhere. The other side uses `aorta bundle verify FILE`, `show
    FILE` and `unpack FILE DIR`.

    A reproducer that failed by itself is unpacked into an empty directory and run there, with
    another home and user name; SHIP.md says what came of it.

    Exit codes: 0 packed; 1 refused, or review answered No; 2 wrong arguments or no ticket; 3
    packed, and the reproducer does not fail the same way; 5 cannot write.
    """
    from aorta.bundle.archive import RefusedError
    from aorta.bundle.request import SCHEMA, BundleRequest, bundle

    request = BundleRequest(**given)
    try:
        report = bundle(request, _agreed) if review else bundle(request)
    except RefusedError as refused:
        for problem in refused.problems:
            say(f"refused: {problem}")
        raise
    if report is None:
        raise RefusedError(("the review was not answered with Yes",), where=str(request.run_dir))
    if as_json:
        print_json(SCHEMA, report.to_json())
    else:
        _show_packed(report)
    if report.checked is not None and not report.checked.reproduces:
        say(f"The reproducer in it {_outcome(report.checked)}")
        raise click.exceptions.Exit(Exit.NO_ANSWER)


@command.command()
@_BUNDLE
@click.option(
    "--run",
    "run_it",
    is_flag=True,
    help="Also unpack it into an empty directory and run its reproducer there. It is somebody's "
    "program: read it first.",
)
@click.option("--timeout", type=float, metavar="SECONDS", help="With --run: for one trial.")
@_MAX_SIZE
@_AS_JSON
def verify(bundle: Path, run_it: bool, timeout: float | None, max_size: int, as_json: bool) -> None:
    """Check every hash and every name in FILE, and that nothing else is in it.

    Exit codes: 0 whole (with --run: and it fails like the original); 1 damaged, changed or
    hostile; 2 no such file; 3 with --run: it does not fail the same way, or there is
    nothing to run.
    """
    from aorta.bundle import archive

    verified = archive.verify(bundle, max_size * _MIB)
    checked = None
    if run_it:
        from aorta.bundle.request import rehearse

        checked = rehearse(bundle, timeout=timeout, max_bytes=max_size * _MIB)
    run = {"run": checked.model_dump() if checked else None} if run_it else {}
    if as_json:
        print_json("aorta.bundle_verify/1", {**verified.summary(), **run})
    else:
        files = f"{len(verified.manifest.files)} files for {verified.manifest.ticket}"
        click.echo(f"{bundle}: whole, {files}")
        click.echo(f"sha256 {verified.sha256}")
        if run_it:
            click.echo(f"run: {_outcome(checked)}")
    if run_it and (checked is None or not checked.reproduces):
        raise click.exceptions.Exit(Exit.NO_ANSWER)


def _outcome(checked: "Checked | None") -> str:
    if checked is None:
        return "there is no reproducer in it"
    if checked.reproduces:
        return f"failed like the original {checked.reproduced} of {checked.of} times"
    if not checked.of:
        return f"could not be run: {checked.why}"
    return f"did not fail like the original ({checked.of} runs): {checked.why}"


@command.command()
@_BUNDLE
@_MAX_SIZE
@_AS_JSON
def show(bundle: Path, max_size: int, as_json: bool) -> None:
    """Say what is in FILE, after verifying it."""
    from aorta.bundle import archive

    verified = archive.verify(bundle, max_size * _MIB)
    manifest = verified.manifest.model_dump(mode="json", by_alias=True)
    if as_json:
        print_json("aorta.bundle_show/1", {**verified.summary(), "manifest": manifest})
        return
    click.echo(
        f"{verified.manifest.ticket}, made by aorta {verified.manifest.verb} "
        f"({manifest['created'] or 'no date'})"
    )
    for file in verified.manifest.files:
        removed = ", ".join(f"{count} {group}" for group, count in file.scrubbed.items())
        note = (
            "not scrubbed (binary)" if file.unscrubbed else f"removed: {removed}" if removed else ""
        )
        click.echo(f"{file.bytes:>10}  {file.path}  {note}".rstrip())


@command.command()
@_BUNDLE
@click.argument("directory", metavar="DIR", type=_PATH)
@_MAX_SIZE
@_AS_JSON
def unpack(bundle: Path, directory: Path, max_size: int, as_json: bool) -> None:
    """Verify FILE and unpack it into a new folder in DIR; a bad bundle leaves nothing behind.

    Exit codes: 0 unpacked; 1 the bundle is bad; 2 no such file, or already unpacked there; 5 cannot
    write.
    """
    from aorta.bundle import archive

    verified, folder = archive.unpack(bundle, directory, max_size * _MIB)
    recipes = sorted(folder.rglob("recipe.resolved.yaml"))
    following = [f"aorta triage run --recipe {shlex.quote(str(recipe))}" for recipe in recipes]
    if as_json:
        print_json(
            "aorta.bundle_unpack/1",
            {**verified.summary(), "directory": str(folder), "next": following},
        )
        return
    click.echo(str(folder))
    for line in following:
        say(f"next: {line}")


def _agreed(prepared: "Prepared", checked: "Checked | None") -> bool:
    from aorta.report.review import review_lines, review_page

    for line in review_lines(prepared, checked):
        say(line)
    with tempfile.NamedTemporaryFile("w", suffix=".html", prefix="aorta-review-") as page:
        page.write(review_page(prepared, checked))
        page.flush()
        say(f"The same as a page, until you answer: file://{page.name}")
        try:
            return click.confirm("Write this bundle?", default=False, err=True)
        except click.Abort:  # the end of the input is no answer, and no answer is No
            say()
            return False


def _show_packed(report: "BundleReport") -> None:
    from aorta.bundle.layouts import LOGS_ONLY
    from aorta.scrub.files import is_program

    manifest = report.manifest
    removed = ", ".join(f"{count} {group}" for group, count in manifest.scrubbed.items() if count)
    click.echo(str(report.path))
    say(
        f"{len(manifest.files)} files; removed: {removed or 'nothing'}; left here: "
        f"{len(manifest.left_out)} files"
    )
    say(f"sha256 {report.sha256}")
    cut = [file for file in manifest.files if file.left_out_bytes]
    if cut:
        size = sum(file.left_out_bytes for file in cut) / 1e6
        say(f"the middle of {len(cut)} logs ({size:.1f} MB) stays here; --whole-logs packs all")
    raw = [file for file in manifest.files if file.unscrubbed]
    if raw:
        size = sum(file.bytes for file in raw) / 1e6
        say(f"{len(raw)} binary files ({size:.1f} MB) leave as they are, not scrubbed")
    if not any(is_program(file.path) for file in manifest.files):
        say(LOGS_ONLY)
    if report.checked is not None:
        say(f"unpacked elsewhere, the reproducer {_outcome(report.checked)}")
    say("Nothing was sent. Read SHIP.md inside, then ship the file yourself.")
