"""Runtimes: in what a trial runs.

A runtime turns a trial into a `Launch`: the process an executor starts, the environment it starts it with, and what must
run afterwards however the trial ends. It asks the container engine questions; it never starts the trial itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aorta.core.trial import TrialSpec


@dataclass(frozen=True)
class Launch:
    """One process to start on this host."""

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    cleanup: tuple[tuple[str, ...], ...] = ()
    image_digest: str | None = None

    def environ(self, host: Mapping[str, str]) -> dict[str, str]:
        return {**host, **self.env}

    def did_not_start(self, exit_code: int | None, stderr_tail: str) -> bool:
        return False


def launch_for(trial: TrialSpec) -> Launch:
    return Launch(trial.argv, trial.cwd, {**trial.env, "AORTA_TRIAL_DIR": str(trial.trial_dir)})
