"""Environment layers, weakest first: environment, mitigations, recipe, cell or command line."""

from collections.abc import Collection, Mapping, Sequence

from aorta.core.errors import UsageError


def layered(*layers: Mapping[str, str]) -> dict[str, str]:
    """Later layers win."""
    merged: dict[str, str] = {}
    for layer in layers:
        merged.update(layer)
    return merged


def stack_mitigations(
    stack: Sequence[tuple[str, Mapping[str, str]]],
    *,
    decided: Collection[str] = (),
    where: str | None = None,
) -> dict[str, str]:
    """The union of a stack of mitigations, which must agree on every variable they share and no later layer decides."""
    merged: dict[str, str] = {}
    owner: dict[str, str] = {}
    for name, env in stack:
        for variable, value in env.items():
            if merged.get(variable, value) != value and variable not in decided:
                raise UsageError(
                    f"mitigations {owner[variable]!r} and {name!r} set {variable} to different values; "
                    f"drop one, or decide it with extra_env: {{{variable}: VALUE}}",
                    where=where,
                )
            merged[variable] = value
            owner[variable] = name
    return merged
