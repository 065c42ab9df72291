"""Registries that lie, forget, refuse or go away in the middle of a run."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.aorta_cli import Finished, aorta, start_aorta
from support.nightly import World, day
from support.processes import wait_for_file
from support.services import requirements
from support.services.engines import DockerEngine
from support.services.registry import Registry, start_registry
from support.waiting import patience

pytestmark = pytest.mark.xdist_group("docker")

DAYS = [day(n) for n in range(6)]
FIRST_BAD = day(3)


@pytest.fixture
def frail_registry() -> Iterator[Registry]:
    """One that a test may stop."""
    requirements.demand(requirements.REGISTRY)
    registry = start_registry()
    yield registry
    registry.stop()


def options(tmp_path: Path, template: str) -> list[str | Path]:
    where = ("--container=jax", f"--container-url-template={template}")
    return [*where, "--json", "--output-prefix", tmp_path / "out"]


def started(tmp_path: Path, engine: DockerEngine, template: str) -> "subprocess.Popen[bytes]":
    """A bisection that has run its first trial; a trial takes long enough for trouble to come
    before the next.
    """
    log = tmp_path / "log"
    log.mkdir()
    script = "touch /log/ran; sleep 0.5; test-jax.sh"
    spec = tmp_path / "bisect.yaml"
    spec.write_text("packages: [{name: library, versions: ['1', '2'], env: LIBRARY_VERSION}]\n")
    words = (
        *options(tmp_path, template),
        "--no-checks",
        "--spec",
        spec,
        "-v",
        f"{log}:/log",
        "--",
        "sh",
        "-c",
        script,
    )
    running = start_aorta("bisect", *words, cwd=tmp_path, env=engine.environ)
    wait_for_file(log / "ran")
    return running


def plan(tmp_path: Path, template: str) -> Finished:
    return aorta("bisect", *options(tmp_path, template), "--dry-run", "--", "true")


def test_tags_that_are_no_days_are_passed_over(
    oci_registry: Registry, world: World, tmp_path: Path
) -> None:
    template = world.publish(oci_registry, "nightly/garbage", DAYS, first_bad=FIRST_BAD)
    layers = [world.rootfs["good"].tarball]
    garbage = ("latest", "jax-", "jax-2024-13-45", "jax-2024-09-0", "xjax-2024-09-02")
    for tag in (*garbage, "jax-2024-09-02-arm", "jax-2024-09-001"):
        oci_registry.push("nightly/garbage", tag, layers)
    assert plan(tmp_path, template).json()["containers"]["days"] == DAYS


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{address}/nowhere:{{container}}-{{date}}", "there is no such repository"),
        ("127.0.0.1:1/x:{{container}}-{{date}}", "it does not answer"),
        ("{address}/x:{{container}}", "holds no {date}"),
        ("{address}/x-{{container}}-{{date}}", "names no tag"),
    ],
)
def test_a_registry_that_cannot_be_asked_is_one_line(
    oci_registry: Registry, tmp_path: Path, template: str, words: str
) -> None:
    done = plan(tmp_path, template.format(address=oci_registry.address))
    assert done.exit_code in {2, 5}
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_registry_that_goes_away_stops_the_run_and_says_so(
    docker_engine: DockerEngine, frail_registry: Registry, world: World, tmp_path: Path
) -> None:
    template = world.publish(frail_registry, "nightly/frail", DAYS, first_bad=FIRST_BAD)
    running = started(tmp_path, docker_engine, template)
    frail_registry.stop()
    _, err = running.communicate(timeout=patience())
    assert running.returncode == 5
    assert b"cannot pull it" in err.splitlines()[-1]
    assert b"Traceback" not in err
    assert docker_engine.containers() == []
    assert (tmp_path / "out" / "result.json").exists()
