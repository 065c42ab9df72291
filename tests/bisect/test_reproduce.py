"""`reproduce.good` and `reproduce.bad` are run for every kind of answer: here those of the host,
and what of containers the other files do not run anyway.
"""

import json
from pathlib import Path

import pytest
import yaml

from support.aorta_cli import Finished, aorta
from support.git_repositories import Repository, numbered
from support.nightly import TEST, World, day
from support.planted_index import PlantedIndex, frozen
from support.reproduced import assert_both_sides_show, pasted
from support.services.engines import DockerEngine
from support.services.registry import Registry

# It fails as it should only with the variable; what it writes goes where trials may write.
VARIABLE = "NEEDED=it's here"
TEST_OF_NUMBER = (
    '[ "$NEEDED" = "it\'s here" ] || exit 0; echo seen > "$AORTA_TRIAL_DIR/seen"; '
    "test $(cat number) -lt 4 || exit 9"
)


def bisect(cwd: Path, *words: str | Path) -> Finished:
    out = ("--json", "--no-checks", "--output-prefix", cwd.parent / "out")
    return aorta("bisect", *out, *words, cwd=cwd)


def test_a_commit_with_the_variables_of_the_test_and_none_of_what_it_makes_left(
    tmp_path: Path,
) -> None:
    repository, shas = numbered(tmp_path / "repo", 8)
    words = ("--good", shas[0], "--extra-env", VARIABLE, "--", "bash", "-c", TEST_OF_NUMBER)
    result = bisect(repository.path, *words).json()
    assert result["culprits"][0]["commit"] == shas[4]
    assert_both_sides_show(result, bad=9)


def test_a_build_and_submodules_of_the_commit(tmp_path: Path) -> None:
    library, _ = numbered(tmp_path / "library", 2, name="library")
    repository = Repository.create(tmp_path / "repo")
    allow = ("-c", "protocol.file.allow=always")
    repository.git(*allow, "submodule", "--quiet", "add", str(library.path), "library")
    shas = [repository.commit(f"commit {i}", {"number": f"{i}\n"}) for i in range(6)]
    package = {"name": "repo", "path": ".", "good": shas[0], "bad": shas[-1]}
    spec = repository.path / "bisect.yaml"
    spec.write_text(yaml.safe_dump({"packages": [{**package, "build": "cp number built"}]}))
    test = "test -e library/library || exit 125; test $(cat built) -lt 3"
    result = bisect(repository.path, "--spec", spec, "--", "sh", "-c", test).json()
    assert result["culprits"][0]["commit"] == shas[3]
    assert_both_sides_show(result)


def test_a_secret_is_asked_for_by_its_name_and_its_value_is_nowhere(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 8)
    secret = {"API_TOKEN": "hunter2-hunter2"}
    given = ("--extra-env", "API_TOKEN=hunter2-hunter2", "--extra-env", "PLAIN=1")
    test = 'test -n "$API_TOKEN" && test $(cat number) -lt 4'
    done = bisect(repository.path, "--good", shas[0], *given, "--", "sh", "-c", test)
    result = done.json()
    report = (tmp_path / "out" / "report.md").read_text()
    assert "hunter2" not in done.stdout + done.stderr + report
    assert_both_sides_show(result, secret)
    assert "API_TOKEN" in result["reproduce"]["good"]
    assert pasted(result["reproduce"]["good"]) != 0  # it says which variable to export


def test_two_environments_with_the_variables_of_the_test(tmp_path: Path) -> None:
    index = PlantedIndex(tmp_path / "wheels")
    index.releases("culprit", ("1.0", "1.1", "1.2"), broken_from="1.1")
    place = tmp_path / "work"
    place.mkdir()
    for name, version in (("good.txt", "1.0"), ("bad.txt", "1.2")):
        frozen(place / name, {"culprit": version})
    code = "import os, culprit; assert not (os.environ['NEEDED'] and culprit.broken)"
    ends = ("--good-env", "good.txt", "--bad-env", "bad.txt")
    index_words = ("--no-index", "--find-links", index.directory)
    words = (*ends, *index_words, "--extra-env", VARIABLE, "--", "python", "-c", code)
    result = bisect(place, *words).json()
    assert result["culprits"][0]["bad"] == "1.1"
    assert_both_sides_show(result)


def test_repositories_that_are_moved_where_they_are_are_built_there(tmp_path: Path) -> None:
    """As with `--container-runtime local`: the build knows its repository by its whole path."""
    jax, shas = numbered(tmp_path / "jax", 8)
    build = f"cat {jax.path}/number > {tmp_path}/installed"
    package = {"name": "jax", "path": str(jax.path), "good": shas[0], "bad": shas[-1]}
    spec = tmp_path / "bisect.yaml"
    spec.write_text(yaml.safe_dump({"in_place": True, "packages": [{**package, "build": build}]}))
    test = '[ "$NEEDED" ] || exit 0; test $(cat installed) -lt 5'
    words = ("--spec", spec, "--extra-env", VARIABLE, "--", "sh", "-c", test)
    out = ("--json", "--no-checks", "--output-prefix", tmp_path / "out")
    result = aorta("bisect", *out, *words, cwd=tmp_path).json()
    assert result["culprits"][0]["commit"] == shas[5]
    assert_both_sides_show(result)


@pytest.mark.parametrize("test", ["exit 1", "exit 0"])
def test_no_side_is_said_to_pass_or_to_fail_that_did_not(tmp_path: Path, test: str) -> None:
    repository, shas = numbered(tmp_path / "repo", 4)
    done = bisect(repository.path, "--good", shas[0], "--", "sh", "-c", test)
    assert done.exit_code == 3
    result = done.json()
    report = (tmp_path / "out" / "report.md").read_text()
    assert "This passes" not in report
    assert "This fails" not in report
    good, bad = result["seen"]["good"], result["seen"]["bad"]
    if test == "exit 1":
        assert (good["failed"], bad["failed"]) == (good["of"], bad["of"])
        assert f"which failed in {good['of']} of {good['of']} trials" in report
        assert result["rates"] == {"good": 1.0, "bad": 1.0}
        assert pasted(result["reproduce"]["good"]) == pasted(result["reproduce"]["bad"]) == 1
    else:
        assert (good["of"], bad["failed"]) == (0, 0)
        assert bad["of"] == result["tests"]
        assert result["rates"] == {"good": None, "bad": 0.0}
        assert pasted(result["reproduce"]["bad"]) == 0


def test_a_number_is_printed_by_both_sides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository, shas = numbered(tmp_path / "repo", 8)
    script = 'echo "{\\"ms\\": $(( $(cat number) < 5 ? 10 : 20 ))}" > "$AORTA_METRIC_FILE"'
    words = ("--good", shas[0], "--metric-name", "ms", "--", "sh", "-c", script)
    result = bisect(repository.path, *words).json()
    assert result["culprits"][0]["commit"] == shas[5]
    for side, value in (("good", 10), ("bad", 20)):
        assert pasted(result["reproduce"][side]) == 0
        assert json.loads(capsys.readouterr().out.splitlines()[0]) == {"ms": value}


@pytest.mark.xdist_group("docker")
@pytest.mark.parametrize("plugin", [False, True])
def test_a_container_with_what_its_test_needs(
    docker_engine: DockerEngine,
    oci_registry: Registry,
    world: World,
    tmp_path: Path,
    *,
    plugin: bool,
) -> None:
    """No package differs. The test needs a variable and writes into its output directory."""
    days = [day(1), day(2)]
    template = world.publish(oci_registry, "nightly/alone", days, first_bad=day(2))
    script = tmp_path / "test.sh"
    inside = f'set -e; [ "$NEEDED" ] || exit 0; {TEST}'
    if plugin:
        run = f"docker run --rm --network=none -e NEEDED -v $4:/triage-tool-output $2 sh -c '{inside}'"
        script.write_text(f"#!/bin/sh\n{run}\n")
        script.chmod(0o755)
    containers = {"family": "jax", "url_template": template, "plugin": plugin}
    library = {"name": "library", "versions": ["1", "2"], "env": "LIBRARY_VERSION"}
    spec = tmp_path / "bisect.yaml"
    spec.write_text(yaml.safe_dump({"packages": [library], "containers": containers}))
    test = [str(script)] if plugin else ["sh", "-c", inside]
    out = ("--json", "--no-checks", "--output-prefix", str(tmp_path / "out"))
    words = [*out, "--spec", str(spec), "--extra-env", VARIABLE, "--", *test]
    done = aorta("bisect", *words, cwd=tmp_path, env=docker_engine.environ)
    result = done.json()
    assert result["culprits"][0]["bad"] == day(2), done.stderr
    assert result["seen"]["bad"]["failed"] == result["seen"]["bad"]["of"] > 0
    assert result["rates"] == {"good": 0.0, "bad": 1.0}
    assert_both_sides_show(result, docker_engine.environ)
    assert docker_engine.containers() == []
