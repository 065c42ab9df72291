"""`aorta attrsvc`: the attribution service."""

from pathlib import Path

import click

from aorta.cli.printing import say
from aorta.cli.service_options import Access, server_token_options


@click.command("attrsvc")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=50050, show_default=True)
@click.option(
    "--allowed-root",
    "roots",
    multiple=True,
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory that logs may be read from (repeatable).",
)
@click.option(
    "--db", default="attrsvc.sqlite", show_default=True, help="SQLite file, or a database URL."
)
@click.option(
    "--keep-days",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="Forget a job this long after its last report; 0: never.",
)
@server_token_options
@click.option(
    "--rate-limit",
    type=click.FloatRange(min=0),
    default=5000.0,
    show_default=True,
    help="Requests a second from one address; 0: no limit.",
)
@click.option("--max-no-progress-cycles", type=click.IntRange(min=0), default=3, show_default=True)
def command(
    host: str,
    port: int,
    roots: tuple[Path, ...],
    db: str,
    keep_days: float,
    token_file: Path | None,
    no_token: bool,
    rate_limit: float,
    max_no_progress_cycles: int,
) -> None:
    """Take reports of failed cycles and answer with one decision each, over HTTP.

    POST /v1/cycles, GET /v1/cycles/{job}/{cycle}/decision?wait=S, /v1/jobs, /healthz, /metrics,
    /docs; and the /logs wire of NVIDIA's resiliency extension. Callers need a token: the one of
    --token-file, or one that is made and kept where only you can read it, and where `aorta launch`
    and `aorta mcp` look for it.
    Exit codes: 0 stopped, 2 the command line is wrong, 5 the database cannot be opened, the port is
    taken, or the extra `service` is missing.
    """
    from aorta.core.errors import InfrastructureError

    try:
        from aorta.attribution.server import leave, listen, serve, url_of
        from aorta.attribution.service import Settings, create_app, database_url
    except ImportError as missing:
        raise InfrastructureError(
            f"{missing.name} is not installed; install aorta-triage[service]"
        ) from None
    access = Access(token_file, no_token)
    settings = Settings(
        roots,
        database_url(db),
        access.token,
        rate_limit,
        keep_days,
        max_no_progress_cycles,
    )
    app = create_app(settings)
    listener = listen(host, port)
    with access.told(host, listener.getsockname()[1]):
        if keep_days:
            say(f"aorta: a job is forgotten {keep_days:g} days after its last report (--keep-days)")
        say(f"aorta: attribution service at {url_of(listener)}")
        serve(app, listener)
    leave()
