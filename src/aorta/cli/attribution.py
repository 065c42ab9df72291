"""`aorta attribute`, `attrsvc` and `mcp`: what killed this cycle, and should it restart?"""

from collections.abc import Iterator
from contextlib import contextmanager
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
    "--max-no-progress-cycles",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="Stop after this many cycles in a row without progress; 0: never for that.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def attribute(as_json: bool, **given: Any) -> None:
    """Say what failed, who began it, how sure that is, and whether a restart can help.

    LOG is a log of any size (gzip is read as it is), a directory of rank_<r>.out/.err, a cycle
    directory of `aorta launch`, or its log directory: then the last cycle in it is read, and those
    before are its history. Exit codes: 0 an answer was found (also: it ended well), 2 the command
    line is wrong, 3 the evidence does not tell.
    """
    from aorta.attribution import AttributeRequest, attribute_request, last_cycle
    from aorta.attribution.documents import (
        SCHEMA,
        CycleState,
        FailureClass,
        attribution_document,
        described,
    )
    from aorta.core.errors import Exit

    for cycle in filter(None, map(last_cycle, given["logs"])):
        say(f"aorta: reading {cycle}, the last cycle there")
    result = attribute_request(AttributeRequest(**given))
    if as_json:
        print_json(SCHEMA, attribution_document(result))
    else:
        click.echo(described(result))
    finding = result.finding
    ended_well = finding.state is CycleState.ENDED_WELL
    if finding.failure_class is FailureClass.UNKNOWN and not ended_well:
        raise click.exceptions.Exit(Exit.NO_ANSWER)


class Access:
    """Who may ask: holders of the given token, or of one that is made."""

    def __init__(self, token_file: Path | None, no_token: bool) -> None:
        from aorta.attribution.client import new_token, read_token
        from aorta.core.errors import UsageError

        if no_token and token_file is not None:
            raise UsageError("--no-token and --token-file exclude each other")
        self.token = None if no_token else read_token(token_file) or new_token()
        self._given, self._made = token_file, token_file is None and not no_token

    @contextmanager
    def announced(self, host: str, port: int) -> Iterator[Path | None]:
        """The token's file. One that was made lies there, for this user, while it is served."""
        from aorta.attribution.client import LOOPBACK, made_token

        if self.token is not None and self._made:
            with made_token(self.token, port) as path:
                say(f"aorta: callers need the token in {path}; aorta launch and aorta mcp find it")
                yield path
            return
        if self.token is None:
            where = "on this machine" if host in LOOPBACK else "who reaches this port"
            say(f"aorta: no token is asked for: anybody {where} can ask")
        yield self._given


@click.command("attrsvc")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=50050, show_default=True)
@click.option(
    "--allowed-root",
    "roots",
    multiple=True,
    required=True,
    type=_DIRECTORY,
    help="Directory that logs may be read from (repeatable).",
)
@click.option(
    "--db", default="attrsvc.sqlite", show_default=True, help="SQLite file, or a database URL."
)
@click.option(
    "--token-file", type=_FILE, help="File holding the bearer token every request must carry."
)
@click.option(
    "--no-token",
    is_flag=True,
    help="Let everybody ask who reaches the port: for callers that can send no token.",
)
@click.option(
    "--rate-limit",
    type=click.FloatRange(min=0),
    default=5000.0,
    show_default=True,
    help="Requests a second from one address; 0: no limit.",
)
@click.option("--max-no-progress-cycles", type=click.IntRange(min=0), default=3, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON document, once it listens.")
def attrsvc(
    host: str,
    port: int,
    roots: tuple[Path, ...],
    db: str,
    token_file: Path | None,
    no_token: bool,
    rate_limit: float,
    max_no_progress_cycles: int,
    as_json: bool,
) -> None:
    """Take reports of failed cycles and answer with one decision each, over HTTP.

    POST /v1/cycles, GET /v1/cycles/{job}/{cycle}/decision?wait=S, /healthz, /metrics, /docs; and
    the /logs wire of NVIDIA's resiliency extension. Callers need a token: the one of
    --token-file, or one that is made and kept where only you can read it, and where `aorta launch`
    and `aorta mcp` look for it.
    Exit codes: 0 stopped, 2 the command line is wrong, 5 the database cannot be opened, the port is
    taken, or the extra `service` is missing.
    """
    from aorta.core.errors import InfrastructureError

    try:
        from aorta.attribution.server import leave, listen, serve, url_of
        from aorta.attribution.service import create_app
    except ImportError as missing:
        raise InfrastructureError(
            f"{missing.name} is not installed; install aorta-triage[service]"
        ) from None
    access = Access(token_file, no_token)
    app = create_app(roots, db, access.token, rate_limit, max_no_progress_cycles)
    listener = listen(host, port)
    port = listener.getsockname()[1]
    with access.announced(host, port) as token:
        say(f"aorta: attribution service at {url_of(listener)}")
        if as_json:
            where = {"url": url_of(listener), "host": host, "port": port}
            print_json("aorta.attrsvc/1", {**where, "token_file": token and str(token.absolute())})
        serve(app, listener)
    leave()


@click.command("mcp")
@click.option(
    "--allowed-root",
    "roots",
    multiple=True,
    default=[Path()],
    type=_DIRECTORY,
    help="Directory that logs may be read from (repeatable; default: the current one).",
)
@click.option(
    "--service-url", help="An attribution service (aorta attrsvc) that get_decision asks."
)
@click.option("--token-file", type=_FILE, help="File holding the token that is shown to it.")
def mcp(roots: tuple[Path, ...], service_url: str | None, token_file: Path | None) -> None:
    """Offer attribution (attribute_log, get_decision) over MCP on stdin and stdout.

    Without --token-file the token is found that a service of yours made. Exit codes: 0 the client
    went away or it was stopped, 2 the command line is wrong, 5 the extra `mcp` is missing.
    """
    from aorta.core.errors import InfrastructureError

    try:
        from mcp.server import MCPServer  # noqa: F401

        from aorta.attribution.client import JsonClient, read_token, token_for
        from aorta.attribution.server import create_mcp_server
    except ImportError as missing:
        raise InfrastructureError(
            f"{missing.name} is not installed; install aorta-triage[mcp]"
        ) from None
    service = None
    if service_url:
        service = JsonClient(service_url, read_token(token_file), find_token=token_for)
    create_mcp_server(roots, service).run("stdio")
