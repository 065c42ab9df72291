"""On the host itself, with the caller's environment below the trial's layers; or in a virtual environment of it, entered
as its `activate` script does."""

import os
from pathlib import Path

from aorta.core.errors import UsageError
from aorta.core.trial import TrialSpec
from aorta.runtimes.launch import Launch, variables_of


def host_launch(trial: TrialSpec) -> Launch:
    return Launch(argv=trial.argv, cwd=trial.cwd, env=variables_of(trial))


def venv_launch(trial: TrialSpec) -> Launch:
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
    # A link inside the path is kept: a virtual environment knows itself by the path it was made with.
    venv = trial.cwd.absolute() / Path(environment.venv).expanduser()
    if not (venv / "bin" / "python").exists():
        raise UsageError(
            f"{venv} is not a virtual environment: it has no bin/python; "
            f"make it with: python3 -m venv {venv}",
            where=where,
        )
    return venv
