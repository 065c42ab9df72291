"""`aorta watch`: the page of a run while it goes on."""

from pathlib import Path

import click

from aorta.cli.printing import say
from aorta.core.errors import UsageError


@click.command()
@click.argument("run_dir", type=click.Path(path_type=Path))
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="[default: any free one]")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on. The token that viewers need is part of the address printed.",
)
@click.option("--open", "open_it", is_flag=True, help="Show it in a browser.")
def command(run_dir: Path, port: int, host: str, open_it: bool) -> None:
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
