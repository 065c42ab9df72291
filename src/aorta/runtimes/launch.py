"""What an executor needs to know to start one trial, and to leave nothing of it behind."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aorta.core.trial import STEP_TIMES_FILE, TrialSpec


@dataclass(frozen=True)
class Refusal:
    """How a runtime says that it could not start the command: an exit code, and a line of stderr (a regex)."""

    exit_code: int
    says: str


@dataclass(frozen=True)
class Launch:
    """One process to start. For a container, `argv`, `env` and `unset` are those of the engine's client."""

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)  # set on top of what is inherited
    unset: frozenset[str] = frozenset()  # inherited variables that must not get through
    inherits_host: bool = True
    cleanup: tuple[
        tuple[str, ...], ...
    ] = ()  # run them however it ends; their exit code is no news
    container: str | None = None
    image_digest: str | None = None
    refusals: tuple[Refusal, ...] = ()

    @property
    def could_not_start_codes(self) -> frozenset[int]:
        return frozenset(refusal.exit_code for refusal in self.refusals)

    def environ(self, host: Mapping[str, str]) -> dict[str, str]:
        """The whole environment of the process, given the host's."""
        inherited = host if self.inherits_host else {}
        kept = {name: value for name, value in inherited.items() if name not in self.unset}
        return {**kept, **self.env}

    def refusal(self, exit_code: int | None, stderr_tail: str) -> str | None:
        """The line in which the runtime says that it could not start the command; None if it did start it.

        The code alone does not tell: the trial's command may end with the same one itself.
        """
        for known in self.refusals:
            if known.exit_code == exit_code:
                said = re.search(rf"^.*?(?:{known.says}).*", stderr_tail, re.MULTILINE)
                if said:
                    return said[0].strip()[:300]
        return None


def variables_of(trial: TrialSpec) -> dict[str, str]:
    """The trial's resolved layers, and the two variables that every trial finds in whatever it runs."""
    folder = trial.trial_dir.absolute()
    return {
        **trial.env,
        "AORTA_TRIAL_DIR": str(folder),
        "AORTA_STEP_TIMES": str(folder / STEP_TIMES_FILE),
    }
