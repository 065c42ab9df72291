"""The options of the verbs that may ask a language model for a second opinion."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from aorta.attribution.opinion import Adviser

CommandT = TypeVar("CommandT", bound=Callable[..., Any])
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def adviser_options(command: CommandT) -> CommandT:
    for option in (
        click.option(
            "--llm-timeout", type=click.FloatRange(min=0.1), default=5.0, show_default=True
        ),
        click.option("--llm-key-file", type=_FILE, help="File holding the key for --llm-url."),
        click.option("--llm-model", default="default", help="Model to ask at --llm-url."),
        click.option("--llm-url", help="OpenAI-compatible URL to ask for a second opinion (off)."),
    ):
        command = option(command)
    return command


def adviser(url: str | None, model: str, key_file: Path | None, timeout: float) -> "Adviser | None":
    """Whom to ask, or None without a URL."""
    if url is None:
        return None
    from aorta.attribution.opinion import Adviser
    from aorta.core.errors import UsageError

    if not url.startswith(("http://", "https://")):
        raise UsageError("expected an address such as https://host/v1", where="--llm-url")
    key = key_file.read_text(encoding="utf-8").strip() if key_file else None
    return Adviser(url, model, key, timeout)
