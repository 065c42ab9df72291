"""What a supervisor is told of a trial, and what its facts amount to: the same wherever the trial runs.

Standard library only, because it also runs beside a supervisor on another machine.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aorta.core.trial import (
    Environment,
    Match,
    Resources,
    RuntimeKind,
    StreamEnd,
    TrialEnd,
    TrialSpec,
    Watch,
    WatchedPattern,
)
from aorta.runtimes import Launch

GRACE_SECONDS = 5.0
MAX_LOG_BYTES = 256 * 1024 * 1024


def order_for(
    trial: TrialSpec, launch: Launch, *, grace: float, max_log_bytes: int
) -> dict[str, Any]:
    """The order to run `launch` on this machine."""
    watch = trial.watch
    return {
        "op": "run",
        "trial_id": trial.id,
        "argv": list(launch.argv),
        "cwd": str(launch.cwd),
        "env": launch.environ(os.environ),
        "cleanup": [list(argv) for argv in launch.cleanup],
        "trial_dir": str(trial.trial_dir),
        "patterns": [vars(pattern) for pattern in watch.patterns],
        "timeout": trial.timeout,
        "silent_for": watch.silent_for,
        "longer_than": watch.longer_than,
        "grace": grace,
        "max_log_bytes": max_log_bytes,
    }


def trial_end(trial: TrialSpec, launch: Launch, facts: Mapping[str, Any], host: str) -> TrialEnd:
    """The supervisor's facts as a `TrialEnd`, with what the trial left in its files."""
    exit_code = facts.get("exit_code")
    lost = facts.get("lost")
    if lost is None and (refusal := launch.refusal(exit_code, facts["stderr"]["tail"])):
        lost = f"the container did not start: {refusal}"
    return TrialEnd(
        trial_id=trial.id,
        stdout=_stream_end(trial, facts, "stdout"),
        stderr=_stream_end(trial, facts, "stderr"),
        exit_code=exit_code,
        signal=facts.get("signal"),
        timed_out=facts.get("timed_out", False),
        hung=facts.get("hung", False),
        cancelled=facts.get("cancelled", False),
        lost=lost,
        matches=tuple(
            Match(m["pattern"], m["stream"], m["line"], m["at"], tuple(m["groups"]))
            for m in facts.get("matches", ())
        ),
        started_at=facts["started_at"],
        duration=facts.get("duration", 0.0),
        host=host,
        image_digest=launch.image_digest,
        result=_left_behind(trial, facts["started_at"]),
        # Nothing outlives the first process of a container: what is left is the engine's own, still tidying up.
        leftovers=0 if launch.container else facts.get("leftovers", 0),
    )


def _stream_end(trial: TrialSpec, facts: Mapping[str, Any], name: str) -> StreamEnd:
    seen = facts.get(name, {})
    return StreamEnd(
        path=trial.trial_dir / f"{name}.log",
        bytes_seen=seen.get("bytes_seen", 0),
        bytes_kept=seen.get("bytes_kept", 0),
        first_at=seen.get("first_at"),
        last_at=seen.get("last_at"),
        tail=seen.get("tail", ""),
        problem=seen.get("problem"),
    )


def _left_behind(trial: TrialSpec, started_at: float) -> dict[str, Any] | None:
    """result.json of a workload, and the file of a metric oracle. An unreadable one counts as none."""
    result = _json_object(trial.trial_dir / "result.json")
    if trial.watch.json_file is not None:
        for path in (trial.trial_dir / trial.watch.json_file, trial.cwd / trial.watch.json_file):
            # One left by an earlier trial in a shared directory says nothing about this one.
            with suppress(OSError):
                if path.stat().st_mtime >= started_at - 1:
                    return {**(result or {}), "metrics_file": _json_object(path)}
    return result


def _json_object(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def trial_to_json(trial: TrialSpec) -> dict[str, Any]:
    return {
        **asdict(trial),
        "trial_dir": str(trial.trial_dir.absolute()),
        "cwd": str(trial.cwd.absolute()),
    }


def trial_from_json(content: Mapping[str, Any]) -> TrialSpec:
    environment, watch = content["environment"], content["watch"]
    return TrialSpec(
        argv=tuple(content["argv"]),
        trial_dir=Path(content["trial_dir"]),
        cwd=Path(content["cwd"]),
        id=content["id"],
        env=content["env"],
        environment=Environment(
            **{
                **environment,
                "kind": RuntimeKind(environment["kind"]),
                "mounts": tuple(environment["mounts"]),
                "options": tuple(environment["options"]),
            }
        ),
        watch=Watch(
            **{**watch, "patterns": tuple(WatchedPattern(**one) for one in watch["patterns"])}
        ),
        timeout=content["timeout"],
        resources=Resources(**content["resources"]),
    )


def end_to_json(end: TrialEnd) -> dict[str, Any]:
    content = asdict(end)
    for stream in ("stdout", "stderr"):
        content[stream]["path"] = str(content[stream]["path"])
    return content


def end_from_json(content: Mapping[str, Any], trial: TrialSpec) -> TrialEnd:
    """The end as the owner sees it: its logs are where the owner's trial has its directory."""
    streams = {
        name: StreamEnd(**{**content[name], "path": trial.trial_dir / f"{name}.log"})
        for name in ("stdout", "stderr")
    }
    matches = tuple(
        Match(**{**match, "groups": tuple(match["groups"])}) for match in content["matches"]
    )
    return TrialEnd(**{**content, **streams, "matches": matches, "trial_id": trial.id})
