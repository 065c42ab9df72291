"""Recipes and runs for the tests of triage: small, real, through the same doors as a user's."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aorta.executors.choosing import ExecutorChoice
from aorta.triage.matrix import MatrixReport
from aorta.triage.recipe import Recipe, load_recipe
from aorta.triage.request import TriageRequest
from aorta.triage.running import triage
from aorta.workloads.base import WorkloadResult
from aorta.workloads.results import TrialDocument

# Fails unless FIXED is set, with an error line that differs in its number from run to run.
FLAWED = 'test -n "$FIXED" || { echo "ValueError: lost bit $$" >&2; exit 1; }'


def cell(
    name: str, *mitigations: str, environment: object = "local", **keys: Any
) -> dict[str, Any]:
    chosen = list(mitigations) or ["none"]
    return {"name": name, "mitigations": chosen, "environment": environment, **keys}


BASELINE = cell("baseline-local")
FIXED = cell("fixed", extra_env={"FIXED": "1"})


def document(*cells: Mapping[str, Any], script: str = FLAWED, **keys: Any) -> dict[str, Any]:
    """A recipe of a command, with what a test wants to be different."""
    return {
        "schema_version": 1,
        "workload": "command",
        "trials": 6,
        "workload_config": {"command": script},
        "cells": [dict(each) for each in cells or (BASELINE, FIXED)],
        **keys,
    }


def written(folder: Path, content: Mapping[str, Any], name: str = "recipe.json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def loaded(folder: Path, *cells: Mapping[str, Any], **keys: Any) -> Recipe:
    return load_recipe(written(folder, document(*cells, **keys)))


def run(recipe: Recipe, output: Path, *, jobs: int = 1, **settings: Any) -> MatrixReport:
    """In this process, on the real executor."""
    chosen = ExecutorChoice(jobs=jobs)
    report = triage(TriageRequest(recipe=recipe, output_dir=output, executor=chosen, **settings))
    assert isinstance(report, MatrixReport)
    return report


def by_name(matrix: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The cells of a matrix.json by their names."""
    return {entry["name"]: entry for entry in matrix["cells"]}


def trial(
    *,
    outcome: str = "clean",
    step_times_ms: Sequence[float] = (),
    exit_status: str | None = None,
    why: str = "",
    signature: str | None = None,
    wall: float = 1.0,
    **result: Any,
) -> TrialDocument:
    """The record of a trial that never ran, for questions about what records amount to."""
    passed = outcome == "clean"
    failure: dict[str, Any] = (
        {} if passed else {"failure_count": 1, "failure_details": [{"hint": why}]}
    )
    content = WorkloadResult(
        passed=passed, step_times_ms=list(step_times_ms), **{**failure, **result}
    ).to_dict()
    usual = {"clean": "ok", "error": "infrastructure_failed"}.get(outcome, "workload_failed")
    return TrialDocument.model_validate(
        {
            "schema": "aorta.trial/1",
            "schema_version": "0.1",
            "aorta_version": "0",
            "trial_id": "w_d0_m0_t0",
            "workload": "w",
            "execution_env": {},
            "mitigations_applied": [],
            "config": {},
            "env": {},
            "result": content,
            "wall_clock_sec": wall,
            "exit_status": exit_status or usual,
            "request_fingerprint": None,
            "outcome": outcome,
            "why": why,
            "signature": signature,
            "process": {
                "exit_code": 0,
                "signal": None,
                "timed_out": False,
                "hung": False,
                "lost": None,
                "started_at": 0.0,
                "host": "",
                "image_digest": None,
                "stdout": "",
                "stderr": "",
            },
        }
    )
