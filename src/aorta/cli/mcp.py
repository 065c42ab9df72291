"""`aorta mcp`: attribution as tools for an assistant."""

from pathlib import Path

import click

from aorta.cli.printing import say
from aorta.cli.service_options import Access, server_token_options


@click.command("mcp")
@click.option(
    "--transport", type=click.Choice(["stdio", "http"]), default="stdio", show_default=True
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on (http).")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=50052, show_default=True, help="(http)"
)
@click.option(
    "--allowed-root",
    "roots",
    multiple=True,
    default=[Path()],
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory that logs may be read from (repeatable; default: the current one).",
)
@click.option(
    "--service-url", help="An attribution service (aorta attrsvc) that get_decision asks."
)
@server_token_options
def command(
    transport: str,
    host: str,
    port: int,
    roots: tuple[Path, ...],
    service_url: str | None,
    token_file: Path | None,
    no_token: bool,
) -> None:
    """Offer attribution (attribute_log, get_decision) over MCP.

    --token-file: asked of callers (http) and shown to the service; without it both find the token
    that a server of yours made. Exit codes: 0 the client went away or it was stopped, 2 the command
    line is wrong, 5 the port is taken or the extra `mcp` is missing.
    """
    from aorta.core.errors import InfrastructureError

    try:
        from aorta.attribution.client import JsonClient, token_for
        from aorta.attribution.mcp_server import create_server
        from aorta.attribution.server import Guard, RateLimit, leave, listen, serve, url_of
    except ImportError as missing:
        raise InfrastructureError(
            f"{missing.name} is not installed; install aorta-triage[mcp]"
        ) from None
    access = Access(token_file, no_token)
    service = None
    if service_url:
        service = JsonClient(service_url, access.shown, find_token=token_for)
    server = create_server(roots, service)
    if transport == "stdio":
        server.run("stdio")
        return
    app = Guard(server.streamable_http_app(host=host), token=access.token, limit=RateLimit(0))
    listener = listen(host, port)
    with access.told(host, listener.getsockname()[1]):
        say(f"aorta: MCP server at {url_of(listener)}/mcp")
        serve(app, listener)
    leave()
