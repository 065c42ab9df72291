"""Which directories of the host a trial sees inside its container, and where."""

from dataclasses import dataclass
from pathlib import Path

from aorta.core.errors import UsageError
from aorta.core.trial import TrialSpec


@dataclass(frozen=True)
class Mount:
    source: Path
    target: str
    read_only: bool = False


def mounts_of(trial: TrialSpec) -> tuple[Mount, ...]:
    """The working directory, the trial's own directory, and what the environment names, which wins over both."""
    paths = (trial.cwd.absolute(), trial.trial_dir.absolute())
    here = [Mount(path, str(path)) for path in paths if path != Path("/")]
    named = [_parsed(text, trial) for text in trial.environment.mounts]
    by_target = {mount.target: mount for mount in (*here, *named)}
    return tuple(by_target.values())


def _parsed(text: str, trial: TrialSpec) -> Mount:
    source, *rest = text.split(":")
    target = rest[0] if rest else ""
    mode = rest[1:]
    if not source or not target.startswith("/") or mode not in ([], ["ro"], ["rw"]):
        raise UsageError(
            f"found mount {text!r}, expected SOURCE:DESTINATION or SOURCE:DESTINATION:ro "
            "with an absolute DESTINATION",
            where=f"environment {trial.environment.name}",
        )
    return Mount(trial.cwd.absolute() / Path(source).expanduser(), target, read_only=mode == ["ro"])
