"""The same stories where trials run on a real cluster: one flag more, the same answer."""

from pathlib import Path

import pytest
from benchmarks import solve_stories
from benchmarks.solve_stories import parts_right

from support.aorta_cli import aorta
from support.services.ray_cluster import RayCluster
from support.services.slurm import SlurmCluster


@pytest.mark.xdist_group("slurm")
def test_a_nan_is_reduced_to_its_rows_layers_and_steps_on_slurm(
    slurm_cluster: SlurmCluster, tmp_path: Path
) -> None:
    story = solve_stories.nan_of_three_rows(tmp_path, rows_apart=100)
    done = aorta(
        *("solve", "--json", "-q", "--skip", "triage", "--executor", "slurm", "--jobs", "4"),
        *("--", *story.command),
        cwd=tmp_path, env=slurm_cluster.environ, timeout=400,
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    parts = parts_right("nan_of_three_rows", done.json())
    assert parts == dict.fromkeys(parts, True)


@pytest.mark.xdist_group("ray")
def test_a_race_is_cured_by_one_thread_on_ray(ray_cluster: RayCluster, tmp_path: Path) -> None:
    place = tmp_path / "story"
    place.mkdir()
    story = solve_stories.race_of_threads(place, rate=1.0, useless=1)
    done = aorta(
        *("solve", "--json", "-q", "--executor", "ray", "--ray-address", ray_cluster.address),
        *("--jobs", "2", "--cpus-per-task", "2", *story.options, "--", *story.command),
        cwd=place, env=ray_cluster.environ, timeout=400,
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    parts = parts_right("race_of_threads", done.json())
    assert parts == dict.fromkeys(parts, True)
