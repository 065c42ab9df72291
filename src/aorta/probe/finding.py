"""What a probe answers: the value, and a line for each thing that should be known and is not."""

from dataclasses import dataclass
from typing import Any

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Finding:
    value: Any
    missing: tuple[str, ...] = ()  # "<field>: <cause>"


def missing_in(section: str, value: JsonObject, cause: str) -> tuple[str, ...]:
    """One line for every key of a section that is null."""
    return tuple(f"{section}.{key}: {cause}" for key, item in value.items() if item is None)
