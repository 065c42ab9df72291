"""What the site decides about its bundles: `--policy FILE`, `--scrub` and `--redaction-from`."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import Field

from aorta.core.documents import StrictModel, validated
from aorta.core.errors import UsageError
from aorta.registry.documents import load_document
from aorta.scrub.known import split_patterns


class Policy(StrictModel):
    """In globs, `*` also crosses folders: `logs/*` is everything below `logs`."""

    scrub: list[str] = Field(default_factory=list)  # patterns to take out, besides what is detected
    secret_names: list[str] = Field(default_factory=list)  # globs of keys and variables to empty
    keep: list[str] = Field(default_factory=list)  # values that look private and may leave
    include: list[str] = Field(default_factory=list)  # files besides the usual ones
    exclude: list[str] = Field(default_factory=list)  # files to leave out
    binary: list[str] = Field(default_factory=list)  # files that leave as they are, unscrubbed
    max_file_mib: int = Field(default=7680, ge=1, le=8191)  # a plain tar header holds 8 GiB
    max_total_mib: int = Field(default=16384, ge=1, le=262144)


def read_policy(path: Path | None) -> Policy:
    return Policy() if path is None else validated(Policy, load_document(path), file=str(path))


def scrub_patterns(
    policy: Policy, options: Sequence[str], redaction_from: Path | None
) -> tuple[str, ...]:
    """Every pattern the user gave, wherever it was given."""
    given = [pattern for option in options for pattern in split_patterns(option)]
    return (*policy.scrub, *given, *(_patterns_of(redaction_from) if redaction_from else ()))


def matches(path: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(path, glob) for glob in globs)


def _patterns_of(path: Path) -> list[str]:
    """One pattern a line; `#` begins a comment."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as wrong:
        reason = wrong.strerror if isinstance(wrong, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read the patterns: {reason}", where=str(path)) from None
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]
