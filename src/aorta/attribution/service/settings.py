"""How a service is set up: what `aorta attrsvc` was told."""

from dataclasses import dataclass
from pathlib import Path

from aorta.attribution.opinion import Adviser
from aorta.core.errors import UsageError

_SHORTEST_TOKEN = 8


@dataclass(frozen=True)
class Settings:
    allowed_roots: tuple[Path, ...]
    database_url: str
    token: str | None = None
    rate_limit: float = 5000.0  # requests a second from one address
    no_progress_limit: int = 3
    adviser: Adviser | None = None


def database_url(database: str) -> str:
    """A URL as it is, a file name as SQLite."""
    return database if "://" in database else f"sqlite:///{Path(database).resolve()}"


def warning_for(host: str, token: str | None) -> str | None:
    """What to say to somebody who opens a server to others."""
    if token is not None or host in {"127.0.0.1", "::1", "localhost"}:
        return None
    return "listening beyond this machine without --token-file: anybody there can ask"


def read_token(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise UsageError("the token file cannot be read as ASCII text", where=str(path)) from None
    if len(token) < _SHORTEST_TOKEN:
        raise UsageError(f"the token is shorter than {_SHORTEST_TOKEN} characters", where=str(path))
    return token
