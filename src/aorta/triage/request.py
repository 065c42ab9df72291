"""What may be asked of a triage: a recipe file, axes that span one, or a run to go on with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

from aorta.core.documents import validated
from aorta.core.errors import UsageError
from aorta.core.names import slug
from aorta.core.oracle import Oracle, oracle_to_json
from aorta.engine.judge import NOTHING, HitCount
from aorta.engine.session import Resume
from aorta.executors.choosing import ExecutorChoice
from aorta.registry.environments import NO_MITIGATION
from aorta.registry.sidecars import RESOLVED_RECIPE
from aorta.triage.recipe import (
    SCHEMA_VERSION,
    Recipe,
    RecipeFile,
    check_names,
    checked_cell_name,
    image_of,
    load_recipe,
    unique_files,
)
from aorta.workloads.base import COMMAND

_MOST_TRIALS = 40  # of one candidate of optimize, where nothing else was said

# What a recipe says itself; the mode, output_dir and the like stay free beside it.
_RECIPE_CONTENT = (
    *("workload", "mitigation_axis", "environment_axis", "trials", "steps", "ticket"),
    *("baseline_cell", "confound_threshold"),
)


@dataclass(frozen=True, kw_only=True)
class TriageRequest:
    """A recipe, or what spans one; None is what was not said."""

    recipe: Path | Recipe | None = None
    mode: Literal["matrix", "optimize"] = "matrix"
    workload: str | None = None
    command: tuple[str, ...] = ()
    oracle: Oracle | None = None  # of the command; None: any failing exit
    mitigation_axis: tuple[str, ...] | None = None
    environment_axis: tuple[str, ...] | None = None
    trials: int | None = None  # of one cell, at most
    steps: int | None = None  # of one trial
    ticket: str | None = None
    baseline_cell: str | None = None
    confound_threshold: float | None = None
    mitigations_files: tuple[Path, ...] = ()
    timeout: float | None = None  # of one trial, in seconds
    max_wall_clock: float | None = None  # in seconds
    seen: HitCount = NOTHING  # how often it was seen to fail before, without mitigations: optimize
    executor: ExecutorChoice = field(default_factory=ExecutorChoice)
    output_dir: Path = Path("triage_results")
    run_dir: Path | None = None  # exactly there, and not in a new one below output_dir
    resume: Resume | None = None


def recipe_of(request: TriageRequest) -> Recipe:
    """The recipe that the request names; a time limit of the request wins over its own."""
    recipe = _named_recipe(request)
    if request.timeout is None:
        return recipe
    content = recipe.content.model_copy(update={"timeout": request.timeout})
    return replace(recipe, content=content)


def _named_recipe(request: TriageRequest) -> Recipe:
    if request.oracle is not None and not request.command:
        raise UsageError(
            "--oracle and its options describe a command's failure; give one behind --"
        )
    command = wrapped(request.command, request.oracle)
    given = (name for name in _RECIPE_CONTENT if getattr(request, name) is not None)
    passed = [f"--{name.replace('_', '-')}" for name in given]
    if request.recipe is not None:
        if passed:
            raise UsageError(
                f"{', '.join(passed)} cannot stand beside --recipe, which says this itself; "
                "change the recipe, or leave --recipe out"
            )
        if isinstance(request.recipe, Recipe):
            return request.recipe
        return load_recipe(request.recipe, request.mitigations_files, command)
    begun = request.resume.run if request.resume is not None else None
    if begun is not None and not passed and not command:
        return load_recipe(begun / RESOLVED_RECIPE)  # with its own copies of the sidecars
    return from_flags(request, command)


def wrapped(command_line: Sequence[str], oracle: Oracle | None) -> dict[str, Any]:
    """The `workload_config` of a command behind `--`, word for word; empty without one."""
    if not command_line:
        return {}
    try:
        "\0".join(command_line).encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError(
            "the command holds bytes that are not UTF-8, which no recipe can hold; put it into a "
            "script"
        ) from None
    config: dict[str, Any] = {"command": list(command_line), "cwd": str(Path.cwd())}
    if oracle is not None:
        config["oracle"] = oracle_to_json(oracle)
    return config


def from_flags(request: TriageRequest, command: Mapping[str, Any]) -> Recipe:
    """One cell for each mitigation in each environment, named `<mitigation>-<environment>`."""
    if request.workload == "":
        raise UsageError("--workload is empty; name a workload, or leave it out")
    if bool(command) == bool(request.workload):
        raise UsageError("give --recipe FILE, or either --workload NAME or a command behind --")
    given: dict[str, object] = {"--steps": request.steps or (command or None)}
    if request.mode != "optimize":
        given |= {
            "--mitigation-axis": request.mitigation_axis,
            "--environment-axis": request.environment_axis,
            "--trials": request.trials,
        }
    missing = [option for option, value in given.items() if value is None]
    if missing:
        raise UsageError(f"without --recipe, {', '.join(missing)} must be given")
    confound = {"threshold": request.confound_threshold, "baseline_cell": request.baseline_cell}
    document = {
        "schema_version": SCHEMA_VERSION,
        "ticket": request.ticket,
        "workload": COMMAND if command else request.workload,
        "trials": _MOST_TRIALS if request.trials is None else request.trials,
        "steps": request.steps,
        "workload_config": dict(command),
        "confound": {key: value for key, value in confound.items() if value is not None},
        "cells": _cells(request),
    }
    content = validated(RecipeFile, document, file="command line")
    recipe = Recipe(content, sidecars=unique_files(request.mitigations_files), base=Path.cwd())
    check_names(recipe)
    return recipe


def _each_once(given: Sequence[str] | None, option: str, usual: Sequence[str] = ()) -> list[str]:
    names = usual if given is None else given
    if not names:
        raise UsageError(f"{option}: found no name, expected such as a,b")
    return list(dict.fromkeys(names))


def _cells(request: TriageRequest) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = []
    places = _each_once(request.environment_axis, "--environment-axis", ("local",))
    names = _each_once(request.mitigation_axis, "--mitigation-axis", (NO_MITIGATION,))
    if request.mode == "optimize":  # which always begins without any
        names = list(dict.fromkeys([NO_MITIGATION, *names]))
    for mitigation, place in product(names, map(image_of, places)):
        shown = place if isinstance(place, str) else place.environment_name
        cells.append(
            {
                "name": checked_cell_name(slug(f"{mitigation}-{shown}")),
                "mitigations": [mitigation],
                "environment": place if isinstance(place, str) else place.model_dump(),
            }
        )
    return cells
