"""A recipe from flags: the product of two axes, as the same `Recipe` that a file gives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from aorta.core.documents import validated
from aorta.core.errors import UsageError
from aorta.core.names import slug
from aorta.triage.recipe import (
    SCHEMA_VERSION,
    Recipe,
    RecipeFile,
    check_names,
    checked_cell_name,
    image_of,
    unique_files,
)


@dataclass(frozen=True)
class Flags:
    """What flag mode was given; None is what was not."""

    workload: str
    mitigation_axis: Sequence[str]
    environment_axis: Sequence[str]
    trials: int
    steps: int | None = None
    ticket: str | None = None
    baseline_cell: str | None = None
    confound_threshold: float | None = None
    workload_config: Mapping[str, Any] = field(default_factory=dict)
    sidecars: Sequence[Path] = ()


def build_recipe_from_flags(flags: Flags) -> Recipe:
    """One cell for each mitigation in each environment, named `<mitigation>-<environment>`."""
    confound = {"threshold": flags.confound_threshold, "baseline_cell": flags.baseline_cell}
    document = {
        "schema_version": SCHEMA_VERSION,
        "ticket": flags.ticket,
        "workload": flags.workload,
        "trials": flags.trials,
        "steps": flags.steps,
        "workload_config": dict(flags.workload_config),
        "confound": {key: value for key, value in confound.items() if value is not None},
        "cells": _cells(flags),
    }
    content = validated(RecipeFile, document, file="command line")
    recipe = Recipe(content, sidecars=unique_files(flags.sidecars), base=Path.cwd())
    check_names(recipe)
    return recipe


def names_of(axis: str, option: str) -> list[str]:
    """The names of a comma-separated option; each once."""
    names = [name.strip() for name in axis.split(",") if name.strip()]
    if not names:
        raise UsageError(f"{option}: found no name, expected such as a,b")
    return list(dict.fromkeys(names))


def _cells(flags: Flags) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = []
    for mitigation, value in product(flags.mitigation_axis, flags.environment_axis):
        environment = image_of(value)
        shown = environment if isinstance(environment, str) else environment.environment_name
        cells.append(
            {
                "name": checked_cell_name(slug(f"{mitigation}-{shown}")),
                "mitigations": [mitigation],
                "environment": environment
                if isinstance(environment, str)
                else environment.model_dump(),
            }
        )
    _check_distinct(cells)
    return cells


def _check_distinct(cells: Sequence[Mapping[str, Any]]) -> None:
    """Names that are not path-safe are usable, unless two of them end up in one directory."""
    seen: dict[str, Mapping[str, Any]] = {}
    for cell in cells:
        first = seen.setdefault(cell["name"], cell)
        if first is not cell:
            pairs = [f"{c['mitigations'][0]} in {c['environment']}" for c in (first, cell)]
            raise UsageError(f"{' and '.join(pairs)} would share the directory {cell['name']!r}")
