"""The request for a trial that a supervisor gets, and its response: the same wherever it runs.

Standard library only, because it also runs beside a supervisor on another machine.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from aorta.core.trial import Match, Resources, StreamEnd, TrialEnd, TrialSpec
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
    """The supervisor's response as a `TrialEnd`."""
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
        result=response.get("result"),
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
    )


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
