"""Options of the verbs that serve HTTP: which token callers must show."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from aorta.cli.options import stacked
from aorta.cli.printing import say

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class Access:
    """Who may ask: holders of the given token, or of one that is made."""

    def __init__(self, token_file: Path | None, no_token: bool) -> None:
        from aorta.attribution.client import new_token, read_token
        from aorta.core.errors import UsageError

        if no_token and token_file is not None:
            raise UsageError("--no-token and --token-file exclude each other")
        self.shown = read_token(token_file)  # what was given: shown to other services too
        self.token = None if no_token else self.shown or new_token()
        self._made = token_file is None and not no_token

    @contextmanager
    def told(self, host: str, port: int) -> Iterator[None]:
        """While it is served: a token that was made lies where callers of this user find it."""
        from aorta.attribution.client import LOOPBACK, made_token

        if self.token is not None and self._made:
            with made_token(self.token, port) as path:
                say(f"aorta: callers need the token in {path}; aorta launch and aorta mcp find it")
                yield
            return
        if self.token is None:
            where = "on this machine" if host in LOOPBACK else "who reaches this port"
            say(f"aorta: no token is asked for: anybody {where} can ask")
        yield


server_token_options = stacked(
    click.option(
        "--token-file", type=_FILE, help="File holding the bearer token every request must carry."
    ),
    click.option(
        "--no-token",
        is_flag=True,
        help="Let everybody ask who reaches the port: for callers that can send no token.",
    ),
)
