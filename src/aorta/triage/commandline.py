"""The three ways to name a recipe on a command line: a file, flags, or a run directory to go on with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count, product
from pathlib import Path
from typing import Any

from aorta.core.documents import validated
from aorta.core.errors import SpecError, UsageError
from aorta.core.names import slug
from aorta.core.oracle import Oracle
from aorta.triage.files import RESOLVED_RECIPE, SIDECARS
from aorta.triage.plan import NONE, baseline_index
from aorta.triage.recipe import (
    SCHEMA_VERSION,
    Cell,
    InlineImage,
    Recipe,
    RecipeFile,
    check_names,
    checked_cell_name,
    image_of,
    load_recipe,
    unique_files,
)
from aorta.workloads.discovery import COMMAND

_EVERY_TRIAL_COUNTS = 40
"""optimize: trials of one candidate at most, where nothing else was said."""


def wrapped(command_line: Sequence[str], oracle: Oracle | None) -> dict[str, Any]:
    """The `workload_config` of a command behind `--`, word for word; empty without one."""
    if not command_line:
        return {}
    try:
        "\0".join(command_line).encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError(
            "the command holds bytes that are not UTF-8, which no recipe can hold; put it into a script"
        ) from None
    config: dict[str, Any] = {"command": list(command_line), "cwd": str(Path.cwd())}
    if oracle is not None:
        config["oracle"] = oracle.model_dump(exclude_defaults=True, mode="json")
        config["oracle"]["kind"] = oracle.kind
    return config


def from_file(path: Path, sidecars: Sequence[Path], command: Mapping[str, Any]) -> Recipe:
    recipe = load_recipe(path, sidecars, defaults={"workload": COMMAND} if command else None)
    if not command:
        return recipe
    if recipe.content.workload != COMMAND:
        raise SpecError(
            f"found {recipe.content.workload!r} beside a command behind --; "
            f"expected workload: {COMMAND}, or no workload",
            where=f"{path}: workload",
        )
    content = recipe.content.model_dump(mode="python")
    content["workload_config"] = {**recipe.content.workload_config, **command}
    checked = validated(RecipeFile, content, file=str(path))
    return replace(recipe, content=checked)


def extended(recipe: Recipe, given: Mapping[str, Any]) -> Recipe:
    """The recipe with what the command line adds: cells of its axes, another number of trials, a control."""
    content = recipe.content.model_dump(mode="python")
    if given["trials"] is not None:
        content["trials"] = given["trials"]
    if given["exact_trials"]:
        content["exact_trials"] = True
    if given["control"] and content["control"] is None:
        content["control"] = {}
    content["cells"] = [*content["cells"], *_added_cells(recipe, given)]
    checked = replace(recipe, content=validated(RecipeFile, content, file=recipe.file))
    check_names(checked)
    return checked


def _added_cells(recipe: Recipe, given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The product of the axes, each cell like the baseline but for its mitigation and environment; none twice."""
    if given["mitigation_axis"] is None and given["environment_axis"] is None:
        return []
    baseline = recipe.content.cells[baseline_index(recipe)]
    usual = baseline.model_dump(mode="python")
    stacks = [[name] for name in names_of(given["mitigation_axis"] or NONE, "--mitigation-axis")]
    if given["mitigation_axis"] is None:
        stacks = [list(baseline.mitigations)]
    places: list[Any] = [usual["environment"]]
    if given["environment_axis"] is not None:
        places = [image_of(n) for n in names_of(given["environment_axis"], "--environment-axis")]
    known = [(list(cell.mitigations), cell.environment_name) for cell in recipe.content.cells]
    names = {cell.name for cell in recipe.content.cells}
    added: list[dict[str, Any]] = []
    for stack, place in product(stacks, places):
        environment = place.model_dump() if isinstance(place, InlineImage) else place
        cell = Cell.model_validate({**usual, "mitigations": stack, "environment": environment})
        if (stack, cell.environment_name) in known:
            continue
        wanted = slug(f"{'+'.join(stack)}-{cell.environment_name}")
        numbered = (f"{wanted}-{number}" for number in count(2))
        name = next(n for n in chain([wanted], numbered) if n not in names)
        names.add(name)
        known.append((stack, cell.environment_name))
        added.append({**cell.model_dump(mode="python"), "name": checked_cell_name(name)})
    return added


def from_run_dir(run_dir: Path) -> Recipe:
    """The recipe that a run directory holds, with its own copies of the sidecars."""
    sidecars = sorted((run_dir / SIDECARS).glob("*"))
    return load_recipe(run_dir / RESOLVED_RECIPE, sidecars)


def from_flags(given: Mapping[str, Any], command: Mapping[str, Any]) -> Recipe:
    """Flag mode. What must be said is asked for by the names of the options."""
    optimizing = given["mode"] == "optimize"
    if given["workload"] == "":
        raise UsageError("--workload is empty; name a workload, or leave it out")
    if bool(command) == bool(given["workload"]):
        raise UsageError("give --recipe FILE, or either --workload NAME or a command behind --")
    needed = {"--steps": given["steps"] or command}
    if not optimizing:
        needed |= {
            "--mitigation-axis": given["mitigation_axis"],
            "--environment-axis": given["environment_axis"],
            "--trials": given["trials"],
        }
    missing = [option for option, value in needed.items() if not value]
    if missing:
        raise UsageError(f"without --recipe, {', '.join(missing)} must be given")
    flags = Flags(
        workload=given["workload"] or COMMAND,
        mitigation_axis=_mitigations(given),
        environment_axis=names_of(given["environment_axis"] or "local", "--environment-axis"),
        trials=given["trials"] or _EVERY_TRIAL_COUNTS,
        steps=given["steps"],
        ticket=given["ticket"],
        baseline_cell=given["baseline_cell"],
        confound_threshold=given["confound_threshold"],
        workload_config=command,
        sidecars=given["mitigations_files"],
        exact_trials=given["exact_trials"],
        control=given["control"],
    )
    return build_recipe_from_flags(flags)


def _mitigations(given: Mapping[str, Any]) -> list[str]:
    """A search for the smallest stack always begins without any."""
    names = names_of(given["mitigation_axis"] or NONE, "--mitigation-axis")
    return list(dict.fromkeys([NONE, *names])) if given["mode"] == "optimize" else names


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
    exact_trials: bool = False
    control: bool = False


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
        "exact_trials": flags.exact_trials,
        "control": flags.control,
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
