"""For other verbs: a spec that reduces further, and a recipe that triage runs unedited."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aorta.core.axis import (
    Axis,
    AxisKind,
    ChoiceAxis,
    NumberAxis,
    Point,
    StepsAxis,
    Value,
    as_single,
    as_window,
)
from aorta.core.failure import Failure, failure_to_json
from aorta.core.oracle import ExitCodeOracle, Oracle, PythonOracle, naming, oracle_to_json
from aorta.core.trial import RuntimeKind
from aorta.probe.gpus import platform_here
from aorta.reduce.files import secret_variables
from aorta.reduce.plan import ReducePlan
from aorta.registry.environments import NO_MITIGATION
from aorta.registry.mitigation import UNKNOWN_FAILURE
from aorta.registry.mitigations import plausible_mitigations
from aorta.workloads.child import ChildExit
from aorta.workloads.ranks import ANY_RANK

# Most of one cell: enough to tell a cure from nothing, of a certain failure and of a flaky one.
_CERTAIN_TRIALS, _FLAKY_TRIALS = 12, 30


def spec_document(
    plan: ReducePlan,
    point: Point,
    changed: Mapping[str, Any],
    placed: Mapping[str, str | Path],
    folder: Path,
) -> dict[str, Any]:
    """The spec with its final values; exhausted axes become plain variables, secrets are left out.

    `changed` is what the workload is called and run with in the folder.
    """
    document = {key: value for key, value in plan.spec.document.items() if key != "scrub"}
    workload = {**document.get("workload", {}), **changed}
    workload.pop("files", None)
    fixed: dict[str, str] = {}
    given_axes = document.get("axes", [])
    axes = [{**one, "initial": "repro.py"} for one in given_axes if one.get("kind") == "source"]
    others = [one for one in given_axes if one.get("kind") != "source"]
    for binding, written in zip(plan.bindings, others, strict=True):
        axis = binding.axis
        final = _final(axis, point[axis.name], placed, folder)
        if final is None:
            fixed[axis.name] = str(placed[axis.name])
        else:
            axes.append({**written, **final})
    given = secret_variables(dict(document.get("extra_env", {})))
    kept = {k: v for k, v in document.get("extra_env", {}).items() if k not in given}
    around = {**kept, **fixed}
    document |= {"workload": workload, "axes": axes}
    document.pop("extra_env", None)
    return {**document, "extra_env": around} if around else document


def _final(
    axis: Axis, value: Value, placed: Mapping[str, str | Path], folder: Path
) -> dict[str, Any] | None:
    """The keys that change; None where the kind cannot say what is left."""
    if axis.kind is AxisKind.RANKS:
        return None
    if isinstance(axis, ChoiceAxis):
        left = list(axis.choices[axis.choices.index(as_single(value)) :])
        return {"initial": left[0], "choices": left} if len(left) > 1 else None
    if isinstance(axis, StepsAxis):
        span = as_window(value)
        return {"initial": [span.start, span.length]}
    if isinstance(axis, NumberAxis):
        return {"initial": value}
    left_items = placed[axis.name]
    if isinstance(left_items, Path):
        return {"initial": str(left_items.relative_to(folder))}
    return {"initial": left_items} if value else None


def recipe_document(
    plan: ReducePlan, script: str, failure: Failure | None, *, flaky: bool
) -> dict[str, Any]:
    """A recipe of the `command` workload with a cell for every mitigation that may help here.

    Its paths are relative to the recipe, so it runs wherever it is put.
    """
    environment = plan.request.environment
    inline = environment.kind is RuntimeKind.DOCKER and environment.source == "inline"
    active = list(plan.mitigations)
    place = {"docker": environment.image} if inline else environment.name
    around = plan.base.env if environment.isolated else {**os.environ, **plan.base.env}
    # Only what every aorta has: the recipe runs where no plugin of this machine is.
    worthwhile = plausible_mitigations(UNKNOWN_FAILURE, platform_here(), current_env=around)
    stacks = {"baseline": active or [NO_MITIGATION]} | {
        entry.name: [*active, entry.name] for entry in worthwhile if entry.name not in active
    }
    ticket = {"ticket": plan.ticket} if plan.ticket else {}
    oracle = oracle_to_json(shipped_oracle(plan))  # of a registered workload its exit code
    if plan.is_command and (which := plan.spec.content.ranks) != ANY_RANK:
        oracle["ranks"] = which
    return {
        "schema_version": 1,
        **ticket,
        "workload": "command",
        "trials": _FLAKY_TRIALS if flaky else _CERTAIN_TRIALS,
        "workload_config": {
            "command": f"bash {script}",
            "cwd": ".",
            "oracle": naming(oracle, failure_to_json(failure)),
        },
        "confound": {"baseline_cell": "baseline"},
        "cells": [
            {"name": name, "mitigations": stack, "environment": place}
            for name, stack in stacks.items()
        ],
    }


def shipped_oracle(plan: ReducePlan) -> Oracle:
    """A workload's own result is the exit code of the script that ships: 1."""
    if not isinstance(plan.oracle, PythonOracle):
        return plan.oracle
    queried = plan.oracle.predicate is not None
    return ExitCodeOracle(codes=(int(ChildExit.FAILED),)) if queried else ExitCodeOracle()
