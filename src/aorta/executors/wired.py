"""A trial and its end as JSON, for a keeper on another machine. Standard library only."""

from collections.abc import Mapping
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


def trial_to_wire(trial: TrialSpec) -> dict[str, Any]:
    return {
        **asdict(trial),
        "trial_dir": str(trial.trial_dir.absolute()),
        "cwd": str(trial.cwd.absolute()),
    }


def trial_from_wire(content: Mapping[str, Any]) -> TrialSpec:
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


def end_to_wire(end: TrialEnd) -> dict[str, Any]:
    content = asdict(end)
    for stream in ("stdout", "stderr"):
        content[stream]["path"] = str(content[stream]["path"])
    return content


def end_from_wire(content: Mapping[str, Any], trial: TrialSpec) -> TrialEnd:
    """The end as the owner sees it: its logs are where the owner's trial has its directory."""
    streams = {
        name: StreamEnd(**{**content[name], "path": trial.trial_dir / f"{name}.log"})
        for name in ("stdout", "stderr")
    }
    matches = tuple(
        Match(**{**match, "groups": tuple(match["groups"])}) for match in content["matches"]
    )
    return TrialEnd(**{**content, **streams, "matches": matches, "trial_id": trial.id})
