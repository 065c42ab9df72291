"""`aorta report`: show me."""

from pathlib import Path

import click

from aorta.cli.options import as_json
from aorta.cli.printing import print_json

_PATH = click.Path(path_type=Path)


@click.command()
@click.argument("run_dir", type=_PATH)
@click.option("-o", "--output", type=_PATH, help="[default: RUN_DIR/report.html]")
@click.option("--share", is_flag=True, help="Replace names, addresses and paths too.")
@click.option("--open", "open_it", is_flag=True, help="Show it in a browser.")
@as_json
def command(run_dir: Path, output: Path | None, share: bool, open_it: bool, as_json: bool) -> None:
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
