"""How a service is set up: what `aorta attrsvc` was told."""

from dataclasses import dataclass
from pathlib import Path

from aorta.attribution.opinion import Adviser


@dataclass(frozen=True)
class Settings:
    allowed_roots: tuple[Path, ...]
    database_url: str
    token: str | None = None
    own_user_is_free: bool = False  # callers of the same user need no token
    rate_limit: float = 5000.0  # requests a second from one address
    keep_days: float = 30.0  # after a job's last report; 0: for good
    no_progress_limit: int = 3
    adviser: Adviser | None = None


def database_url(database: str) -> str:
    """A URL as it is, a file name as SQLite."""
    return database if "://" in database else f"sqlite:///{Path(database).resolve()}"
