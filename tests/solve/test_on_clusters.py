"""The same stories where trials run on a real cluster: one flag more, the same answer."""

from pathlib import Path

import pytest
from benchmarks import solve_stories
from benchmarks.solve_stories import parts_right

from support.aorta_cli import aorta
from support.services.ray_cluster import RayCluster
from support.services.slurm import SlurmCluster

NAN = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--data")
parser.add_argument("--steps", type=int)
given = parser.parse_args()
if {"row_1", "row_4"} <= set(open(given.data).read().split()) and given.steps >= 3:
    raise FloatingPointError("loss is nan at step 3")
"""


@pytest.mark.xdist_group("slurm")
def test_a_nan_is_reduced_to_its_rows_and_steps_on_slurm_and_ships(
    slurm_cluster: SlurmCluster, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(NAN)
    (tmp_path / "rows.txt").write_text("".join(f"row_{number}\n" for number in range(5)))
    done = aorta(
        *("solve", "--json", "-q", "--skip", "triage", "--executor", "slurm", "--jobs", "2"),
        *("--", "python", "train.py", "--data", "rows.txt", "--steps", "4"),
        cwd=tmp_path, env=slurm_cluster.environ, timeout=400,
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    document = done.json()
    assert document["failure"]["class"] == "nan"
    axes = {axis["name"]: axis for axis in document["reproducer"]["axes"]}
    assert axes["DATA"]["final_items"] == ["row_1", "row_4"]
    assert axes["STEPS"]["final"] == 3
    assert document["reproducer"]["elsewhere"] == {"reproduced": 1, "of": 1}


@pytest.mark.xdist_group("slurm")
def test_the_node_that_fails_is_named_before_anything_is_reduced(
    slurm_cluster: SlurmCluster, tmp_path: Path
) -> None:
    bad = min(slurm_cluster.nodes)
    job = f'[ "$SLURMD_NODENAME" != {bad} ] || {{ echo "fell off the bus" >&2; exit 7; }}'
    done = aorta(
        *("solve", "--json", "-q", "--executor", "slurm", "--nodes", "2"),
        *("--", "bash", "-c", job),
        cwd=tmp_path, env=slurm_cluster.environ, timeout=400,
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    document = done.json()
    assert document["status"] == "solved"
    guilty = [(one["kind"], one["name"]) for one in document["isolation"]["guilty"]]
    assert guilty == [("node", bad)]
    assert document["next"][0].startswith(f"scontrol update NodeName={bad} State=DRAIN")
    for place in document["isolation"]["placements"]:
        assert len(place["nodes"]) == 2
        assert (place["outcome"] == "reproduced") == (bad in place["nodes"])
    stages = {stage["name"]: stage["status"] for stage in document["stages"]}
    assert (stages["isolate"], stages["reduce"]) == ("done", "skipped")
    page = Path(document["run_dir"], "report.html").read_text(encoding="utf-8")
    assert f"Node {bad}" in page


@pytest.mark.xdist_group("ray")
def test_a_race_is_cured_by_one_thread_on_ray_whose_driver_is_started_once(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    ray_cluster.with_nodes(1)
    drivers = drivers_of(ray_cluster)
    place = tmp_path / "story"
    place.mkdir()
    story = solve_stories.race_of_threads(place, rate=1.0, useless=1, rounds=12)
    done = aorta(
        *("solve", "--json", "-q", "--executor", "ray", "--ray-address", ray_cluster.address),
        *("--jobs", "2", "--cpus-per-task", "2", *story.options, "--", *story.command),
        cwd=place, env=ray_cluster.environ, timeout=400,
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    parts = parts_right("race_of_threads", done.json())
    assert parts == dict.fromkeys(parts, True)
    assert len(drivers_of(ray_cluster) - drivers) == 1


def drivers_of(cluster: RayCluster) -> set[str]:
    """Each has written a log."""
    return {
        path.name for path in cluster.directory.glob("session_2*/logs/python-core-driver-*.log")
    }
