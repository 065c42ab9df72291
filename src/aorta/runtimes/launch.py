"""What an executor needs to know to start one trial, and to leave nothing of it behind; and the two
simplest ways to get it: on the host itself, or in a virtual environment of it. The code of
containers is loaded for containers."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aorta.core.errors import UsageError
from aorta.core.trial import STEP_TIMES_FILE, RuntimeKind, TrialSpec


@dataclass(frozen=True)
class Refusal:
    """How a starter says that an exit is its own: an exit code, and a line of stderr."""

    exit_code: int
    says: str  # a regular expression
    means: str = "the container did not start"


ANY_CODE = -1  # whatever it fails with

# The process around a registered workload says so where the workload never began, or its result is
# lost.
_OURS = (
    Refusal(126, r"^aorta: cannot (?:read the order|keep the result)", "the workload did not run"),
)


@dataclass(frozen=True)
class Launch:
    """One process to start. For a container, all of it is the engine client's."""

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)  # set on top of what is inherited
    unset: frozenset[str] = frozenset()  # inherited variables that must not get through
    # Run them however it ends; their exit code is no news.
    cleanup: tuple[tuple[str, ...], ...] = ()
    container: str | None = None
    image_digest: str | None = None
    refusals: tuple[Refusal, ...] = ()
    ran_out_of_memory: tuple[str, ...] = ()  # prints `true` if the kernel killed it for memory

    def environ(self, host: Mapping[str, str]) -> dict[str, str]:
        """The whole environment of the process, given the host's."""
        kept = {name: value for name, value in host.items() if name not in self.unset}
        return {**kept, **self.env}

    def refusal(self, exit_code: int | None, stderr_tail: str) -> str | None:
        """Why this end is not the command's own, in the words of whoever ended or never started it;
        else None.

        The code alone does not tell: the trial's command may end with the same one itself.
        """
        for known in (*self.refusals, *_OURS):
            if known.exit_code == exit_code or (known.exit_code == ANY_CODE and exit_code):
                said = re.search(rf"^.*?(?:{known.says}).*", stderr_tail, re.MULTILINE)
                if said:
                    return f"{known.means}: {said[0].strip()[:300]}"
        return None


def launch_for(trial: TrialSpec) -> Launch:
    """How to start `trial`. Its `env` must hold every layer, its devices included."""
    match trial.environment.kind:
        case RuntimeKind.HOST:
            return Launch(argv=trial.argv, cwd=trial.cwd, env=variables_of(trial))
        case RuntimeKind.VENV:
            return _venv_launch(trial)
        case RuntimeKind.DOCKER | RuntimeKind.PODMAN:
            from aorta.runtimes.containers import container_launch

            return container_launch(trial)
        case RuntimeKind.PYXIS:
            from aorta.runtimes.pyxis import pyxis_launch

            return pyxis_launch(trial)


def variables_of(trial: TrialSpec) -> dict[str, str]:
    """The trial's resolved layers, and what every trial finds: a place of its own."""
    metric, folder = metric_file_of(trial), trial.trial_dir.absolute()
    own = {} if metric is None else {"AORTA_METRIC_FILE": str(metric)}
    return {
        **trial.env,
        "AORTA_TRIAL_DIR": str(folder),
        "AORTA_STEP_TIMES": str(folder / STEP_TIMES_FILE),
        **own,
    }


def metric_file_of(trial: TrialSpec) -> Path | None:
    """Where this trial alone may leave its metric; None where no metric is asked for."""
    if trial.watch.json_file is None:
        return None
    name = Path(trial.watch.json_file)
    return trial.trial_dir.absolute() / (name.name if name.is_absolute() else name)


def _venv_launch(trial: TrialSpec) -> Launch:
    venv = _venv_of(trial)
    variables = variables_of(trial)
    search_path = variables.get("PATH", os.environ.get("PATH", os.defpath))
    activated = {"VIRTUAL_ENV": str(venv), "PATH": f"{venv / 'bin'}{os.pathsep}{search_path}"}
    unset = frozenset({"PYTHONHOME"} - variables.keys())
    return Launch(argv=trial.argv, cwd=trial.cwd, env={**variables, **activated}, unset=unset)


def _venv_of(trial: TrialSpec) -> Path:
    environment = trial.environment
    where = f"environment {environment.name}"
    if environment.venv is None:
        raise UsageError(
            "its kind is venv and it names none; add venv: PATH to its definition", where=where
        )
    # A link inside the path is kept: a virtual environment knows itself by the path it was made
    # with.
    venv = trial.cwd.absolute() / Path(environment.venv).expanduser()
    if not (venv / "bin" / "python").exists():
        raise UsageError(
            f"{venv} is not a virtual environment: it has no bin/python; "
            f"make it with: python3 -m venv {venv}",
            where=where,
        )
    return venv
