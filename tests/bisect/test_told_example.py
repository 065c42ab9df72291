"""The example run of the documents, on a small replica of a nightly family: twenty dated
containers, sixteen commits.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.aorta_cli import ROOT, Finished, aorta
from support.nightly import World
from support.reproduced import assert_both_sides_show
from support.services.engines import DockerEngine
from support.services.registry import Registry
from support.told_example import ARGUMENTS, COMMAND, DAYS, FIRST_BAD, told_lines, untold


@dataclass(frozen=True)
class Example:
    done: Finished
    out: Path
    left_behind: tuple[str, ...]

    @property
    def result(self) -> Any:
        return json.loads((self.out / "result.json").read_text())


@pytest.fixture(scope="module")
def example(
    docker_engine: DockerEngine,
    oci_registry: Registry,
    world: World,
    tmp_path_factory: pytest.TempPathFactory,
) -> Example:
    """Without a spec: the preset knows the packages of these images."""
    place = tmp_path_factory.mktemp("told")
    template = world.publish(oci_registry, "nightly/told", DAYS, first_bad=FIRST_BAD)
    environ = {**docker_engine.environ, "AORTA_CACHE_DIR": str(place / "cache")}
    done = aorta(*ARGUMENTS, template, *COMMAND, cwd=place, env=environ)
    assert done.exit_code == 0, done.stderr
    images = docker_engine("images", "--format={{.Repository}}").stdout.split()
    left = [*docker_engine.containers(), *(name for name in images if "aorta-bisect" in name)]
    return Example(done, place / "triage", tuple(left))


@pytest.mark.xdist_group("docker")
def test_the_documents_tell_the_example_as_it_really_runs(example: Example) -> None:
    said = [*example.done.stderr.splitlines(), *example.done.stdout.splitlines()]
    tell = {path: told_lines(path) for path in (ROOT / "README.md", ROOT / "docs" / "bisect.md")}
    assert len(tell[ROOT / "docs" / "bisect.md"]) > 30
    wrong = {path.name: untold(told, said) for path, told in tell.items()}
    assert not any(wrong.values()), f"{wrong}\nit says:\n{example.done.stderr}"


@pytest.mark.xdist_group("docker")
def test_from_dated_containers_to_the_commit(
    example: Example, docker_engine: DockerEngine, world: World
) -> None:
    result = example.result
    assert result["status"] == "found", example.done.stderr
    [culprit] = result["culprits"]
    assert (culprit["package"], culprit["bad"]) == ("jax", world.culprit)
    assert culprit["title"] == "Fold the mask into softmax"
    last_good = max(day for day in DAYS if day < FIRST_BAD)
    assert result["containers"]["last_good"].endswith(last_good)
    assert result["containers"]["first_bad"].endswith(FIRST_BAD)
    kept = next((example.out / "first-known-bad").rglob("kept"))
    assert kept.read_text().strip() == "yes"
    assert example.left_behind == ()
    assert_both_sides_show(result, docker_engine.environ)


def test_a_line_that_was_not_said_is_found() -> None:
    said = ["[  1.0s] trial 1: clean in 0.4s (a): ok", "two", "three", "four"]
    assert untold(["[ 12s] trial 1: clean in 9.9s (a): ok", "...", "four"], said) == []
    assert untold(["[ 12s] trial 2: clean in 9.9s (a): ok", "..."], said) != []
    assert untold(["[ 12s] trial 1: clean in 9.9s (a): ok", "three"], said) == ["three"]
    assert untold(["...", "four", "...", "two"], said) == ["two"]
