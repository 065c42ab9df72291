"""The three ways to name a recipe on a command line: a file, flags, or a run directory to go on with."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from aorta.core.documents import validated
from aorta.core.errors import SpecError, UsageError
from aorta.core.oracle import Oracle
from aorta.triage.files import RESOLVED_RECIPE, SIDECARS
from aorta.triage.flags import Flags, build_recipe_from_flags, names_of
from aorta.triage.plan import NONE
from aorta.triage.recipe import Recipe, RecipeFile, load_recipe
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
    )
    return build_recipe_from_flags(flags)


def _mitigations(given: Mapping[str, Any]) -> list[str]:
    """A search for the smallest stack always begins without any."""
    names = names_of(given["mitigation_axis"] or NONE, "--mitigation-axis")
    return list(dict.fromkeys([NONE, *names])) if given["mode"] == "optimize" else names
