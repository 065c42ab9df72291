"""The example run of the documents, on a small replica of a nightly family: twenty dated containers, sixteen commits."""

from pathlib import Path

import pytest

from support.aorta_cli import ROOT, aorta
from support.nightly import World
from support.services.engines import DockerEngine
from support.services.registry import Registry
from support.told_example import ARGUMENTS, COMMAND, DAYS, FIRST_BAD, told_lines, untold


@pytest.mark.xdist_group("docker")
def test_the_documents_tell_the_example_as_it_really_runs(
    docker_engine: DockerEngine, oci_registry: Registry, world: World, tmp_path: Path
) -> None:
    template = world.publish(oci_registry, "nightly/told", DAYS, first_bad=FIRST_BAD)
    done = aorta(
        *ARGUMENTS,
        template,
        *COMMAND,
        cwd=tmp_path,
        env={**docker_engine.environ, "AORTA_CACHE_DIR": str(tmp_path / "cache")},
    )
    assert done.exit_code == 0, done.stderr
    said = done.stderr.splitlines()
    tell = {path: told_lines(path) for path in (ROOT / "README.md", ROOT / "docs" / "bisect.md")}
    assert len(tell[ROOT / "docs" / "bisect.md"]) > 30
    wrong = {path.name: untold(told, said) for path, told in tell.items()}
    assert not any(wrong.values()), f"{wrong}\nit says:\n{done.stderr}"


def test_a_line_that_was_not_said_is_found() -> None:
    said = ["[  1.0s] trial 1: clean in 0.4s (a): ok", "two", "three", "four"]
    assert untold(["[ 12s] trial 1: clean in 9.9s (a): ok", "...", "four"], said) == []
    assert untold(["[ 12s] trial 2: clean in 9.9s (a): ok", "..."], said) != []
    assert untold(["[ 12s] trial 1: clean in 9.9s (a): ok", "three"], said) == ["three"]
    assert untold(["...", "four", "...", "two"], said) == ["two"]
