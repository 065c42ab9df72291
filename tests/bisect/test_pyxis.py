"""Containers under a real Slurm: the real srun takes the options and runs the steps, a small plugin
makes the containers.
"""

import signal
from pathlib import Path

import pytest
import yaml

from support.aorta_cli import Finished, aorta, start_aorta
from support.nightly import World, day
from support.processes import wait_for_file
from support.reproduced import assert_both_sides_show
from support.services.registry import Registry
from support.services.slurm import SlurmCluster
from support.waiting import patience

pytestmark = pytest.mark.xdist_group("slurm")

DAYS = [day(n) for n in (4, 5)]
FIRST_BAD = day(5)


def options(out: Path, template: str) -> list[str | Path]:
    return [
        "bisect",
        "--container=jax",
        "--container-runtime=pyxis",
        "--container-url-template",
        template,
        "--output-prefix",
        out,
        "--json",
    ]


def bisect(out: Path, cluster: SlurmCluster, template: str, *words: str) -> Finished:
    return aorta(*options(out, template), *words, cwd=out.parent, env=cluster.environ, timeout=300)


def left_behind(out: Path, cluster: SlurmCluster) -> list[str]:
    cluster.wait_until_idle()  # a container goes when its step ends, shortly after srun
    images = [str(path) for path in out.rglob("*.sqsh")]
    return [*images, *cluster.containers(), *cluster.queue()]


def next_job(cluster: SlurmCluster) -> int:
    """The number of a step of its own: without an allocation every srun is a job."""
    return int(cluster("srun", "--ntasks=1", "sh", "-c", "echo $SLURM_JOB_ID"))


@pytest.fixture(scope="module")
def template(oci_registry: Registry, world: World) -> str:
    return world.publish(oci_registry, "nightly/pyxis", DAYS, first_bad=FIRST_BAD)


def test_from_dated_containers_to_the_commit_through_srun(
    slurm_cluster: SlurmCluster, template: str, world: World, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    before = next_job(slurm_cluster)
    spec = tmp_path / "bisect.yaml"
    spec.write_text(yaml.safe_dump({"packages": world.few()}))
    command = ("--", "test-jax.sh", "//tests:nn_test_gpu")
    done = bisect(out, slurm_cluster, template, f"--spec={spec}", "--no-checks", *command)
    jobs = next_job(slurm_cluster) - before - 1
    result = done.json()
    assert result["status"] == "found", done.stderr
    built = done.stderr.count("Build completed in ")
    assert built == 3
    # the image is got once; one shell answers all questions to each image, and one more after the
    # search
    assert jobs <= result["tests"] + built + 5
    [culprit] = result["culprits"]
    assert (culprit["package"], culprit["bad"]) == ("jax", world.culprit)
    assert result["containers"]["last_good"].endswith(day(4))
    assert result["containers"]["first_bad"].endswith(FIRST_BAD)
    kept = {path.read_text() for path in (out / "first-known-bad").rglob("kept")}
    assert kept == {"yes\n"}
    assert left_behind(out, slurm_cluster) == []
    assert_both_sides_show(result, slurm_cluster.environ)


def test_a_command_that_the_image_does_not_have_is_said_at_once(
    slurm_cluster: SlurmCluster, template: str, tmp_path: Path
) -> None:
    done = bisect(tmp_path / "out", slurm_cluster, template, "--", "no-such-command")
    assert done.exit_code == 5
    assert "neither good nor bad" in done.stderr
    assert "no-such-command" in done.stderr
    assert left_behind(tmp_path / "out", slurm_cluster) == []


def test_an_option_that_srun_does_not_know_is_no_failure_of_the_test(
    slurm_cluster: SlurmCluster, template: str, tmp_path: Path
) -> None:
    spec = tmp_path / "bisect.yaml"
    spec.write_text("containers: {options: [--no-such-option]}\n")
    words = ("--spec", str(spec), "--", "test-jax.sh")
    done = bisect(tmp_path / "out", slurm_cluster, template, *words)
    assert done.exit_code == 5
    assert "the container did not start" in done.stderr
    assert "unrecognized option" in done.stderr


def test_interrupted_no_step_and_no_container_is_left(
    slurm_cluster: SlurmCluster, template: str, tmp_path: Path
) -> None:
    mark = tmp_path / "running"
    hang = ("-v", f"{tmp_path}:/mark", "--", "sh", "-c", "touch /mark/running; sleep 300")
    running = start_aorta(
        *options(tmp_path / "out", template), *hang, cwd=tmp_path, env=slurm_cluster.environ
    )
    wait_for_file(mark)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=patience())
    assert running.returncode == 130
    assert left_behind(tmp_path / "out", slurm_cluster) == []
