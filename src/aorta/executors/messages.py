"""The request for a trial that a supervisor gets, and its response: the same wherever it runs.

Standard library only, because it also runs beside a supervisor on another machine.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from aorta.core.trial import (
    Match,
    Resources,
    RuntimeKind,
    Start,
    StreamEnd,
    TrialEnd,
    TrialSpec,
)
from aorta.executors.evidence import SHARED, json_object
from aorta.executors.supervisor import RESULT_FILE
from aorta.runtimes.launch import Launch, metric_file_of

GRACE_SECONDS = 5.0
MAX_LOG_BYTES = 256 * 1024 * 1024


def request_for(
    trial: TrialSpec, launch: Launch, *, grace: float, max_log_bytes: int
) -> dict[str, Any]:
    """The request to run `launch` on this machine."""
    watch = trial.watch
    return {
        "op": "run",
        "argv": list(launch.argv),
        "cwd": str(launch.cwd),
        "env": launch.environ(os.environ),
        "cleanup": [list(argv) for argv in launch.cleanup],
        "ran_out_of_memory": list(launch.ran_out_of_memory),
        "trial_dir": str(trial.trial_dir),
        "metric": _metric_places(trial),
        "patterns": [vars(pattern) for pattern in watch.patterns],
        "timeout": trial.timeout,
        "silent_for": watch.silent_for,
        "longer_than": watch.longer_than,
        "grace": grace,
        "max_log_bytes": max_log_bytes,
    }


def _metric_places(trial: TrialSpec) -> list[str] | None:
    """The trial's own, and the one that it may share with others."""
    own = metric_file_of(trial)
    if own is None or trial.watch.json_file is None:
        return None
    return [str(own), str(trial.cwd / trial.watch.json_file)]


def trial_end(trial: TrialSpec, launch: Launch, response: Mapping[str, Any], host: str) -> TrialEnd:
    """The supervisor's response as a `TrialEnd`, with what the trial left in its files."""
    exit_code = response.get("exit_code")
    lost = response.get("lost")
    if lost is None and (refusal := launch.refusal(exit_code, response["stderr"]["tail"])):
        lost = refusal
    return TrialEnd(
        trial_id=trial.id,
        stdout=_stream_end(trial, response, "stdout"),
        stderr=_stream_end(trial, response, "stderr"),
        exit_code=exit_code,
        signal=response.get("signal"),
        timed_out=response.get("timed_out", False),
        hung=response.get("hung", False),
        cancelled=response.get("cancelled", False),
        lost=lost,
        matches=tuple(map(Match.from_json, response.get("matches", ()))),
        started_at=response["started_at"],
        duration=response.get("duration", 0.0),
        host=host,
        image_digest=launch.image_digest,
        result=_left_behind(trial, response),
        out_of_memory=response.get("out_of_memory", False),
        saved=response.get("saved", 0.0),
        server=response.get("server", ""),
    )


def _stream_end(trial: TrialSpec, response: Mapping[str, Any], name: str) -> StreamEnd:
    seen = response.get(name, {})
    return StreamEnd(
        path=trial.trial_dir / f"{name}.log",
        bytes_seen=seen.get("bytes_seen", 0),
        last_at=seen.get("last_at"),
        tail=seen.get("tail", ""),
        problem=seen.get("problem"),
    )


def _left_behind(trial: TrialSpec, response: Mapping[str, Any]) -> dict[str, Any] | None:
    """result.json of a workload, and the metric's file. An unreadable one counts as none."""
    place = trial.trial_dir / RESULT_FILE
    result = json_object(place) if place.is_file() else None
    metric = response.get("metric")
    return {**(result or {}), **metric} if metric else result


def prepared(trial: TrialSpec, resources: Resources) -> TrialSpec:
    """The trial as another machine can run it, its directory made. One that does not say what it
    needs gets what the user asked for."""
    trial_dir = trial.trial_dir.absolute()
    trial_dir.mkdir(parents=True, exist_ok=True)
    needs = resources if trial.resources == Resources() else trial.resources
    return replace(trial, resources=needs, trial_dir=trial_dir, cwd=trial.cwd.absolute())


def unreported(trial: TrialSpec, *, host: str = "", lost: str | None = None) -> TrialEnd:
    """The end of a trial whose worker did not report any."""
    out, err = (StreamEnd(trial.trial_dir / f"{name}.log") for name in ("stdout", "stderr"))
    return TrialEnd(trial.id, out, err, started_at=time.time(), host=host, lost=lost)


def trial_to_json(trial: TrialSpec) -> dict[str, Any]:
    return {
        **asdict(trial),
        "varied": sorted(trial.varied),
        "trial_dir": str(trial.trial_dir),
        "cwd": str(trial.cwd),
    }


def trial_from_json(content: Mapping[str, Any]) -> TrialSpec:
    trial: TrialSpec = _built(TrialSpec, content)
    return trial


def end_to_json(end: TrialEnd) -> dict[str, Any]:
    streams = {name: {**vars(getattr(end, name)), "path": ""} for name in ("stdout", "stderr")}
    return {**asdict(end), **streams}


def end_from_json(content: Mapping[str, Any], trial: TrialSpec) -> TrialEnd:
    """The end as the owner sees it: its logs are where the owner's trial has its directory."""
    streams = {
        name: {**content[name], "path": trial.trial_dir / f"{name}.log"}
        for name in ("stdout", "stderr")
    }
    end: TrialEnd = _built(TrialEnd, {**content, **streams, "trial_id": trial.id})
    return end


def _built(kind: Any, content: Any) -> Any:
    """A value of this type from what JSON made of it."""
    if is_dataclass(kind):
        types = get_type_hints(kind, {"Path": Path, "Mapping": Mapping, "Any": Any})
        make: Any = kind
        return make(**{name: _built(types[name], value) for name, value in content.items()})
    if get_origin(kind) is tuple:
        return tuple(_built(get_args(kind)[0], each) for each in content)
    if get_origin(kind) is frozenset:
        return frozenset(content)
    return kind(content) if kind in {Path, RuntimeKind, Start} else content


class SharedMetrics:
    """Which of the trials that run side by side could have written each other's metric file."""

    def __init__(self) -> None:
        self._running: dict[str, Path] = {}
        self._mixed: set[str] = set()

    def started(self, trial: TrialSpec) -> None:
        if trial.watch.json_file is None:
            return
        place = trial.cwd / trial.watch.json_file
        beside = [one for one, other in self._running.items() if other == place]
        if beside:
            self._mixed.update([trial.id, *beside])
        self._running[trial.id] = place

    def ended(self, end: TrialEnd) -> TrialEnd:
        """The end with the number taken away if it may be another trial's."""
        self._running.pop(end.trial_id, None)
        mixed = end.trial_id in self._mixed
        self._mixed.discard(end.trial_id)
        place = (end.result or {}).get(SHARED)
        if place is None:
            return end
        result = without_place(end.result)
        if mixed:
            result = {
                **{key: value for key, value in result.items() if key != "metrics_file"},
                "metrics_problem": f"trials side by side write their metric to {place}; let the "
                "command write it to $AORTA_METRIC_FILE, or use --jobs 1",
            }
        return replace(end, result=result)


def without_place(result: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (result or {}).items() if key != SHARED}
