"""From one site to another: what was packed here runs there, where nothing of the original is left."""

import shutil
import subprocess
from pathlib import Path

import yaml

from aorta.workloads.command import command_trial
from support.aorta_cli import aorta
from support.run_dirs import reduce_dir


def shipped(run: Path, there: Path) -> Path:
    """Bundle `run`, destroy it, unpack the bundle at another place."""
    bundle = aorta("bundle", run, "--output", there / "inbox", "--json").json()["path"]
    shutil.rmtree(run)
    unpacked = aorta("bundle", "unpack", bundle, there / "work", "--json")
    assert unpacked.exit_code == 0, unpacked.stderr
    return Path(unpacked.json()["directory"])


def test_a_shipped_recipe_runs_unedited_where_the_original_is_gone(tmp_path: Path) -> None:
    folder = shipped(reduce_dir(tmp_path / "here"), tmp_path / "there")
    recipe = folder / "shrunken" / "recipe.resolved.yaml"
    config = yaml.safe_load(recipe.read_text("utf-8"))["workload_config"]
    trial = command_trial(config, base=recipe.parent, file=str(recipe))
    done = subprocess.run(trial.argv, cwd=trial.cwd, capture_output=True, text=True)
    assert done.stdout == "loss=nan\n"


def test_a_shipped_script_runs_unedited_where_the_original_is_gone(tmp_path: Path) -> None:
    folder = shipped(reduce_dir(tmp_path / "here"), tmp_path / "there")
    done = subprocess.run(
        ["./run_repro.sh"], cwd=folder / "shrunken", capture_output=True, text=True
    )
    assert done.stdout == "loss=nan\n"
