"""Small failing workloads in bash, whose true minimum is known, and the specs that reduce them."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aorta.core.documents import dump_yaml
from support.aorta_cli import Finished, aorta

SURE = {"trials_per_candidate": 1, "k_of_n_to_count_as_reproducing": 1}
BOOM: Mapping[str, Any] = {"kind": "regex", "pattern": "BOOM", "stream": "stdout"}


def numeric(name: str, initial: int, floor: int, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "kind": "env",
        "type": "int",
        "initial": initial,
        "floor": floor,
        "strategy": "binary",
        **more,
    }


def write_spec(folder: Path, script: str, axes: list[dict[str, Any]], **keys: Any) -> Path:
    """`fails.sh` and an `aorta.yaml` that runs it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "fails.sh").write_text(script, encoding="utf-8")
    spec = folder / "aorta.yaml"
    document = {
        "workload": {"command": "bash fails.sh", "cwd": "./"},
        "oracle": dict(BOOM),
        "budget": dict(SURE),
        "axes": axes,
        **keys,
    }
    spec.write_text(dump_yaml(document), encoding="utf-8")
    return spec


def reduce_spec(spec: Path, *arguments: str | Path, **how: Any) -> Finished:
    return aorta(
        "reduce", "--spec", spec, "--output", spec.parent / "out", "--json", "-q", *arguments,
        cwd=spec.parent, **how,
    )  # fmt: skip


def finals(report: Mapping[str, Any]) -> dict[str, Any]:
    return {axis["name"]: axis["final"] for axis in report["axes"]}


def run_dir_of(report: Mapping[str, Any], cwd: Path) -> Path:
    return cwd / str(report["run_dir"])


def trace_of(run_dir: Path) -> list[dict[str, Any]]:
    lines = (run_dir / "reduction_trace.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def with_trials(recipe: Path, trials: int) -> None:
    """The recipe with so many trials a cell: those that ship take as many as tell a cure."""
    recipe.write_text(re.sub(r"(?m)^trials: \d+$", f"trials: {trials}", recipe.read_text()))
