"""Options of the verbs that serve HTTP (which token callers must show) and of those that may ask a
language model for a second opinion.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aorta.cli.options import Given, stacked
from aorta.cli.printing import say

if TYPE_CHECKING:
    from aorta.attribution.opinion import Adviser

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


adviser_options = stacked(
    click.option("--llm-url", help="OpenAI-compatible URL to ask for a second opinion (off)."),
    click.option("--llm-model", default="default", help="Model to ask at --llm-url."),
    click.option("--llm-key-file", type=_FILE, help="File holding the key for --llm-url."),
    click.option("--llm-timeout", type=click.FloatRange(min=0.1), default=5.0, show_default=True),
)


def adviser_from(given: Given) -> "Adviser | None":
    """Whom to ask for a second opinion; None without a URL."""
    url, model = given.pop("llm_url"), given.pop("llm_model")
    key_file, timeout = given.pop("llm_key_file"), given.pop("llm_timeout")
    if url is None:
        return None
    from aorta.attribution.opinion import Adviser
    from aorta.core.errors import UsageError

    if not url.startswith(("http://", "https://")):
        raise UsageError("expected an address such as https://host/v1", where="--llm-url")
    key = key_file.read_text(encoding="utf-8").strip() if key_file else None
    return Adviser(url, model, key, timeout)


class Access:
    """Who may ask: holders of the given token; without one, this user, or holders of a new one."""

    def __init__(self, token_file: Path | None, no_token: bool) -> None:
        from aorta.attribution.client import new_token, read_token
        from aorta.core.errors import UsageError

        if no_token and token_file is not None:
            raise UsageError("--no-token and --token-file exclude each other")
        self.shown = read_token(token_file)  # what was given: shown to other services too
        self.token = None if no_token else self.shown or new_token()
        self.own_user_is_free = self._made = token_file is None and not no_token

    @contextmanager
    def told(self, host: str, port: int) -> Iterator[None]:
        """While it is served: a token that was made lies where callers of this user find it."""
        from aorta.attribution.client import LOOPBACK, made_token

        if self.token is not None and self._made:
            with made_token(self.token, port) as path:
                say(f"aorta: other users and machines need the token in {path}")
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
