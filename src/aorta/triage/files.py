"""The files of a run directory around its trials: sidecars, the resolved recipe, snapshots, the
matrix.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from aorta.core.names import slug
from aorta.core.trial import Environment
from aorta.engine.rundir import RunDir, write_atomically, write_json
from aorta.engine.snapshots import host_snapshot, is_captured, snapshot_of
from aorta.executors import Executor
from aorta.scrub.secrets import safe_value
from aorta.triage.markdown import matrix_markdown
from aorta.triage.matrix import SCHEMA, Matrix
from aorta.triage.plan import Plan, PlannedCell
from aorta.triage.recipe import InlineImage, Recipe, resolved_yaml

RESOLVED_RECIPE = "recipe.resolved.yaml"
SIDECARS = "sidecars"

SnapshotFor = Callable[[PlannedCell], dict[str, object]]


class RunFiles:
    def __init__(self, run: RunDir) -> None:
        self.run = run

    @property
    def path(self) -> Path:
        return self.run.path

    def adopt(self, recipe: Recipe) -> Recipe:
        """The recipe as it will run, resolved from copies of its sidecars."""
        copies = tuple(self._copy(sidecar) for sidecar in recipe.sidecars)
        write_atomically(self.path / RESOLVED_RECIPE, resolved_yaml(recipe))
        inline = {
            cell.environment_name: {"docker": cell.environment.docker}
            for cell in recipe.content.cells
            if isinstance(cell.environment, InlineImage)
        }
        if inline:
            document = {"version": 1, "environments": inline}
            text = json.dumps(document, indent=2) + "\n"
            write_atomically(self.path / "inline_environments.sidecar.json", text)
        return replace(recipe, sidecars=copies)

    def _copy(self, sidecar: Path) -> Path:
        """A copy that is already there belongs to the resumed run, and stays."""
        copy = self.path / SIDECARS / sidecar.name
        if not copy.exists():
            write_atomically(copy, sidecar.read_bytes())
        return copy

    def take_snapshots(self, plan: Plan, executor: Executor) -> tuple[SnapshotFor, list[str]]:
        """The host's once and each environment's once, before any trial; returns warnings."""
        host = self._once(self.path / "host_env.json", host_snapshot)
        said = {"host": _missing_in(host)}
        taken: dict[str, dict[str, Any]] = {}
        for environment in plan.environments.values():
            path = self.path / "environments" / slug(environment.name) / "env.json"
            snapshot = self._once(path, partial(self._inside, environment, executor))
            said[f"environment:{environment.name}"] = _missing_in(snapshot)
            taken[environment.name] = snapshot
        return lambda cell: _as_seen_by(cell, taken[cell.environment.name]), _by_scope(said)

    def _inside(self, environment: Environment, executor: Executor) -> dict[str, Any]:
        scratch = self.run.private / "snapshots" / slug(environment.name)
        scratch.mkdir(parents=True, exist_ok=True)
        return snapshot_of(environment, environment.env, executor, scratch, self.path.resolve())

    def _once(self, path: Path, take: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        with suppress(OSError, ValueError):
            earlier = json.loads(path.read_bytes())
            if isinstance(earlier, dict) and is_captured(earlier):
                return earlier
        snapshot = take()
        write_atomically(path, json.dumps(snapshot, indent=2, ensure_ascii=False) + "\n")
        return snapshot

    def drop_logs(self, trial_dir: str) -> None:
        shutil.rmtree(self.path / trial_dir, ignore_errors=True)

    def write_matrix(self, matrix: Matrix) -> None:
        write_json(self.path / "matrix.json", SCHEMA, matrix.to_json())
        write_atomically(self.path / "matrix.md", matrix_markdown(matrix))


def _missing_in(snapshot: Mapping[str, Any]) -> str:
    if not is_captured(snapshot):
        return f"no snapshot: {snapshot['skip_reason']}"
    reasons = snapshot.get("partial_reasons") or []
    if not snapshot.get("partial"):
        return ""
    return f"the snapshot is partial: {'; '.join(str(reason) for reason in reasons)}"


def _by_scope(said: Mapping[str, str]) -> list[str]:
    """One line for each thing that is missing, naming every scope in which it is."""
    scopes: dict[str, list[str]] = {}
    for scope, missing in said.items():
        if missing:
            scopes.setdefault(missing, []).append(scope)
    return [f"{', '.join(names)}: {missing}" for missing, names in scopes.items()]


def _as_seen_by(cell: PlannedCell, snapshot: Mapping[str, Any]) -> dict[str, object]:
    """The environment's snapshot, with the cell's variables that a snapshot records."""
    seen = dict(snapshot)
    known = snapshot.get("env_vars")
    if isinstance(known, dict):
        mine = {name: safe_value(name, value) for name, value in cell.env.items() if name in known}
        seen["env_vars"] = {**known, **mine}
    return seen
