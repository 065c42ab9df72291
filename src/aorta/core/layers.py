"""Environment layers, weakest first: environment, mitigations, recipe, cell or command line."""

from collections.abc import Mapping, Sequence

from aorta.core.errors import UsageError


def layered(*layers: Mapping[str, str]) -> dict[str, str]:
    """Later layers win."""
    merged: dict[str, str] = {}
    for layer in layers:
        merged.update(layer)
    return merged


def stack_mitigations(
    stack: Sequence[tuple[str, Mapping[str, str]]], *, where: str | None = None
) -> dict[str, str]:
    """The union of a stack of mitigations, which must agree on every variable they share."""
    merged: dict[str, str] = {}
    owner: dict[str, str] = {}
    for name, env in stack:
        for variable, value in env.items():
            if merged.get(variable, value) != value:
                raise UsageError(
                    f"mitigations {owner[variable]!r} and {name!r} set {variable} to different values; "
                    "drop one, or decide it with extra_env",
                    where=where,
                )
            merged[variable] = value
            owner[variable] = name
    return merged
