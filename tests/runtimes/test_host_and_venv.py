"""Trials on the host: the caller's environment, the trial's layers on top, a virtual environment
entered.
"""

import os
import sys
import venv
from pathlib import Path

import pytest

from aorta.core.errors import UsageError
from aorta.core.trial import LOCAL, Environment, RuntimeKind
from aorta.runtimes.launch import launch_for
from support.launched import finished, make_trial


def test_the_host_gives_its_own_environment_and_the_layers_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_HOST", "host")
    monkeypatch.setenv("SHARED", "host")
    script = 'echo "$OF_HOST $SHARED $AORTA_TRIAL_DIR"; pwd'
    trial = make_trial(tmp_path, LOCAL, "sh", "-c", script, env={"SHARED": "layer"})
    done = finished(trial)
    assert done.stdout == f"host layer {trial.trial_dir}\n{trial.cwd}\n"
    assert launch_for(trial).cleanup == ()


def test_no_exit_code_of_the_host_means_that_nothing_was_started(tmp_path: Path) -> None:
    launch = launch_for(make_trial(tmp_path, LOCAL, "sh", "-c", "exit 125"))
    assert launch.refusal(125, "docker: anything") is None


@pytest.fixture
def made_venv(tmp_path: Path) -> Path:
    path = tmp_path / "work" / "env"
    venv.create(path, with_pip=False, symlinks=True)
    return path


@pytest.mark.parametrize("spelling", ["env", "absolute"])
def test_a_venv_is_entered_as_its_activate_script_does(
    tmp_path: Path, made_venv: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    monkeypatch.setenv("VIRTUAL_ENV", "/another")
    path = spelling if spelling == "env" else str(made_venv)
    show = (
        "import sys, os; print(sys.prefix, os.environ['VIRTUAL_ENV'], 'PYTHONHOME' in os.environ)"
    )
    environment = Environment("old", RuntimeKind.VENV, venv=path)
    done = finished(make_trial(tmp_path, environment, "python", "-c", show))
    assert done.stdout.split() == [str(made_venv), str(made_venv), "False"], done.stderr


def test_a_venv_stands_before_a_path_that_a_layer_sets(tmp_path: Path, made_venv: Path) -> None:
    environment = Environment("old", RuntimeKind.VENV, venv=str(made_venv))
    launch = launch_for(make_trial(tmp_path, environment, "true", env={"PATH": "/layer/bin"}))
    assert launch.environ(os.environ)["PATH"] == f"{made_venv}/bin:/layer/bin"


def test_a_missing_venv_is_refused_with_the_command_that_makes_it(tmp_path: Path) -> None:
    environment = Environment("old", RuntimeKind.VENV, venv="gone")
    with pytest.raises(UsageError, match=r"environment old: .*/gone is not a virtual environment"):
        launch_for(make_trial(tmp_path, environment, sys.executable))


def test_a_venv_environment_without_a_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="environment old: its kind is venv and it names none"):
        launch_for(make_trial(tmp_path, Environment("old", RuntimeKind.VENV), "true"))
