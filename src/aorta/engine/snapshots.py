"""env.json of what a trial sees: the host's with the trial's variables, or one taken in the
container as a trial. Where that fails it is a placeholder with the reason, never the host's.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from aorta.core.errors import InfrastructureError
from aorta.core.trial import Environment, RuntimeKind, TrialEnd, TrialSpec
from aorta.engine.atomic import write_whole
from aorta.executors import Executor
from aorta.executors.evidence import json_object
from aorta.probe import collect_env
from aorta.probe.machine import Machine
from aorta.probe.snapshot import SCHEMA, EnvSnapshot, probe_argv, probe_mount
from aorta.version import __version__

SNAPSHOT_ID = "snapshot"
SNAPSHOT_SECONDS = 60.0
_CONTAINERS = frozenset({RuntimeKind.DOCKER, RuntimeKind.PODMAN, RuntimeKind.PYXIS})


def host_snapshot(env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What `aorta env probe` says here with these variables set."""
    machine = Machine.here()
    seen = replace(machine, environ={**os.environ, **(env or {})})
    return collect_env(seen).to_dict()


def snapshot_of(
    environment: Environment, env: Mapping[str, str], executor: Executor, scratch: Path, cwd: Path
) -> dict[str, Any]:
    """The snapshot inside `environment`; the executor must be idle."""
    if not environment.isolated:
        return host_snapshot(env)
    place, is_mounted = environment, environment.kind in _CONTAINERS
    if is_mounted:
        place = replace(environment, mounts=(*environment.mounts, probe_mount()))
    trial = TrialSpec(
        argv=probe_argv(mounted=is_mounted),
        trial_dir=scratch,
        cwd=cwd,
        id=SNAPSHOT_ID,
        is_step=True,
        env=env,
        environment=place,
        timeout=SNAPSHOT_SECONDS,
    )
    try:
        executor.start(trial)
        end = next(iter(executor.wait(SNAPSHOT_SECONDS * 2)), None)
    except InfrastructureError as wrong:
        return placeholder(environment, str(wrong))
    if end is None:
        executor.cancel(trial.id)
        return placeholder(environment, "the snapshot did not end")
    content = (json_object(end.stdout.path) or {}) if end.exit_code == 0 else {}
    if content.get("schema_version"):
        return content
    return placeholder(environment, _reason(end))


def placeholder(environment: Environment, reason: str) -> dict[str, Any]:
    """Says that there is no snapshot, and why; never to be mistaken for one."""
    return {
        "schema": SCHEMA,
        "aorta_version": __version__,
        "name": environment.name,
        "snapshot_captured": False,
        "skip_reason": reason,
        "descriptor": {
            "kind": environment.kind.value,
            "docker": environment.image,
            "venv": environment.venv,
            "source_package": environment.source,
        },
    }


def is_captured(snapshot: Mapping[str, Any]) -> bool:
    return bool(snapshot.get("snapshot_captured", True))


def _reason(end: TrialEnd) -> str:
    if end.lost:
        return end.lost
    if end.timed_out:
        return "taking the snapshot ran out of time"
    lines = [line for line in end.stderr.tail.splitlines() if line.strip()]
    words = f": {lines[-1].strip()[:200]}" if lines else ""
    return f"taking the snapshot inside it ended with exit {end.exit_code}{words}"


def write_snapshot(snapshot: EnvSnapshot, path: Path) -> None:
    """Write env.json whole or not at all, making its directory; `-` is stdout. Raises OSError."""
    if str(path) == "-":
        sys.stdout.write(snapshot.to_json())
        sys.stdout.flush()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_file():  # a device or a pipe is written to, not replaced
        path.write_text(snapshot.to_json(), encoding="utf-8")
        return
    write_whole(path, snapshot.to_json())
