"""As the users of JAX-Toolbox' triage tool type it: its name, its arguments, an ordinary account in
the docker group.
"""

import getpass
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.aorta_cli import ROOT, Finished, aorta, environ, start_aorta
from support.git_repositories import Repository
from support.nightly import CULPRIT, World, day
from support.services.engines import DockerEngine
from support.services.registry import Registry
from support.waiting import patience, wait_until

USER, GROUP = 4242, 4343  # nobody on this machine; the group is the one that may use the engine
DAYS = [day(2), day(3)]
FIRST_BAD = day(3)

# An account that may read this Python, wherever it is installed, and nothing more than any other.
AS_USER = (
    "setpriv",
    f"--reuid={USER}",
    f"--regid={USER}",
    f"--groups={GROUP}",
    "--inh-caps=+dac_read_search",
    "--ambient-caps=+dac_read_search",
)


def triage(*words: str | Path, cwd: Path, env: dict[str, str], user: bool = False) -> Finished:
    """`jax-toolbox-triage WORDS...`, by the entry point that is installed under this name."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts["jax-toolbox-triage"].partition(":")
    code = (
        f"import sys; sys.argv[0] = 'jax-toolbox-triage'; from {module} import {function} as "
        "run; run()"
    )
    arguments = tuple(str(word) for word in words)
    done = subprocess.run(
        (*(AS_USER if user else ()), sys.executable, "-c", code, *arguments),
        cwd=cwd,
        env=environ(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=patience(),
        check=False,
    )
    return Finished(arguments, done.returncode, done.stdout, done.stderr)


@pytest.fixture
def engine_of_a_group(docker_engine: DockerEngine) -> Iterator[DockerEngine]:
    """As an administrator sets it up: whoever is in the group may use it."""
    socket = docker_engine.directory / "docker.sock"
    before = socket.stat()
    docker_engine.directory.chmod(0o711)
    os.chown(socket, 0, GROUP)
    socket.chmod(0o660)
    yield docker_engine
    os.chown(socket, before.st_uid, before.st_gid)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory of the account's own, which it can reach."""
    place = tmp_path / "home"
    place.mkdir()
    os.chown(place, USER, USER)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_mode & 0o001 == 0:
            folder.chmod(folder.stat().st_mode | 0o001)
    return place


@pytest.mark.xdist_group("docker")
def test_an_ordinary_user_may_write_where_the_image_may_and_owns_what_comes_out(
    engine_of_a_group: DockerEngine,
    oci_registry: Registry,
    world: World,
    home: Path,
) -> None:
    template = world.publish(oci_registry, "nightly/user", DAYS, first_bad=FIRST_BAD)
    test = (
        "set -e; touch /opt/jax/written; mkdir -p /triage-tool-output/dump/deep; "
        "id -u > /triage-tool-output/dump/deep/who; test-jax.sh"
    )
    spec = home / "bisect.yaml"
    build = "touch ${BAZEL_CACHE_OPTION#--bazel-cache=}/used; cp /opt/jax/broken /installed"
    spec.write_text(yaml.safe_dump({"packages": world.few(build)}))
    done = triage(
        *("--container", "jax", "--container-url-template", template, "--spec", spec),
        *("--start-date", DAYS[0], "--end-date", DAYS[1], "--skip-precondition-checks"),
        *("--no-checks", "--output-prefix", home / "out", "--json", "--no-cache"),
        *("sh", "-c", test),
        cwd=home,
        env={**engine_of_a_group.environ, "HOME": str(home), "TMPDIR": str(home)},
        user=True,
    )
    assert done.exit_code == 0, done.stderr
    assert list(home.glob("*-bazel-triage-cache/used"))  # made on its first use, as none is named
    result = done.json()
    assert result["status"] == "found", done.stderr
    assert result["culprits"][0]["bad"] == world.culprit
    assert result["containers"]["first_bad"].endswith(FIRST_BAD)
    who = next((home / "out" / "first-known-bad").rglob("who"))
    assert who.read_text() == "0\n"  # as the image says, not as the caller
    owners = {path.lstat().st_uid for path in (home / "out").rglob("*")}
    assert owners == {USER}
    assert engine_of_a_group.containers() == []


@pytest.mark.xdist_group("docker")
def test_an_image_with_a_user_of_its_own_may_write_its_output(
    engine_of_a_group: DockerEngine, world: World, home: Path
) -> None:
    changes = ["USER 1234:1234"]
    image = engine_of_a_group.import_image(world.rootfs["bad"], "own-user:1", changes)
    spec = home / "bisect.yaml"
    library = "{name: library, versions: ['1', '2'], env: LIBRARY_VERSION, good: '1', bad: '2'}"
    spec.write_text(f"packages: [{library}]\n")
    test = (
        "set -e; id -u > /triage-tool-output/who; "
        "df /dev/shm | grep -q 65536; test $LIBRARY_VERSION = 1"
    )
    done = triage(
        *("--failing-container", image),
        *("--spec", spec, "--output-prefix", home / "out", "--json", "--no-cache", "--no-checks"),
        *("--shm-size", "64m", "sh", "-c", test),
        cwd=home,
        env={**engine_of_a_group.environ, "HOME": str(home)},
        user=True,
    )
    assert done.exit_code == 0, done.stderr
    assert done.json()["status"] == "found"
    who = [path.read_text() for path in (home / "out").rglob("who")]
    assert set(who) == {"1234\n"}, done.stderr
    assert {path.lstat().st_uid for path in (home / "out").rglob("*")} == {USER}


def test_options_of_the_command_are_its_own_with_and_without_two_dashes(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "repository")
    shas = [repository.commit(f"number {n}", {"state": f"{n}\n"}) for n in range(2)]
    # `grep -v 1` finds a line as long as the file does not say 1
    command = ("grep", "-v", "1", "state")
    ours = ("--good", shas[0], "--json", "--no-checks")
    verbose = ("-v", *command)  # the first -v is ours
    found = [
        aorta("bisect", *ours, *words, cwd=repository.path)
        for words in (command, ("--", *command), verbose)
    ]
    for done in (*found, triage(*ours, *verbose, cwd=repository.path, env={})):
        assert done.exit_code == 0, done.stderr
        assert done.json()["culprits"][0]["commit"] == shas[1]


@dataclass(frozen=True)
class Built:
    """A bisection whose first build waited until it was seen, and its `status.json` of that
    moment.
    """

    out: Path
    cache: Path
    said: str
    status: dict[str, Any]
    left_behind: str

    @property
    def result(self) -> Any:
        return json.loads((self.out / "result.json").read_text())


@pytest.fixture(scope="module")
def built(
    docker_engine: DockerEngine, world: World, tmp_path_factory: pytest.TempPathFactory
) -> Built:
    place = tmp_path_factory.mktemp("built")
    good, bad = (docker_engine.import_image(r, f"slow-{s}:1") for s, r in world.rootfs.items())
    spec, gate = place / "bisect.yaml", place / "gate"
    gate.mkdir()
    build = (
        "echo '[3 of 9] compiling the mask'; until [ -e /gate/open ]; do sleep 0.1; done; "
        "place=${BAZEL_CACHE_OPTION#--bazel-cache=}; [ -e $place/warm ] || echo full >> "
        "$place/log; "
        "touch $place/warm; cat /opt/jax/number >> $place/log; cp /opt/jax/broken /installed"
    )
    xla = {"name": "xla", "path": "/opt/xla", "good": world.xla[4], "bad": world.xla[6]}
    spec.write_text(yaml.safe_dump({"packages": [*world.few(build), xla]}))
    out, cache = place / "out", place / "deep" / "cache"
    running = start_aorta(
        *("bisect", "--passing-container", good, "--failing-container", bad, "--spec", spec),
        *("--output-prefix", out, "--no-cache", "--no-checks", "-v", f"{gate}:/gate"),
        *("--bazel-cache", cache, "sh", "-c", "seq 3000; test-jax.sh"),
        cwd=place,
        env=docker_engine.environ,
    )
    info = out / "info.log"

    def says(words: str) -> bool:
        return info.exists() and words in info.read_text()

    wait_until(lambda: says(": [3 of 9] compiling the mask"), "word of a build that goes on")
    status = json.loads((out / "status.json").read_text())
    (gate / "open").touch()
    _, stderr = running.communicate(timeout=patience())
    assert running.returncode == 0, stderr
    return Built(out, cache, stderr.decode(), status, docker_engine("images").stdout)


@pytest.mark.xdist_group("docker")
def test_builds_share_a_cache_and_what_was_built_of_the_same_packages_before(
    built: Built, world: World
) -> None:
    """A cache that is named is made on its first use. The packages behind a build do not build it
    again.
    """
    result = built.result
    assert result["status"] == "found", built.said
    assert result["culprits"][0]["bad"] == world.culprit
    log = (built.cache / "log").read_text().split()
    assert log.count("full") == 1
    numbers = [word for word in log if word != "full"]
    assert len(numbers) == len(set(numbers)) < result["builds"]  # once a version of jax
    assert "aorta-bisect" not in built.left_behind


@pytest.mark.xdist_group("docker")
def test_while_it_builds_it_says_what_for_how_long_and_the_last_line(
    built: Built, world: World
) -> None:
    said, out, status = built.said, built.out, built.status
    assert status["schema"] == "aorta.bisect.status/1"
    assert (status["status"], status["stage"]) == ("running", "versions")
    [building] = status["building"]
    versions = {"jax": world.jax[CULPRIT + 1], "xla": world.xla[6]}
    assert set(building["what"].split()) == {f"{name}@{v[:10]}" for name, v in versions.items()}
    assert building["seconds"] >= 5
    assert building["last_line"] == "[3 of 9] compiling the mask"
    assert f"building {building['what']}\n" in said
    assert f"building {building['what']} for " in said
    assert "Build completed in " in said
    assert str(out / "debug.log") in said
    assert json.loads((out / "status.json").read_text())["status"] == "found"
    debug = (out / "debug.log").read_text()
    assert "build.log | [3 of 9] compiling the mask\n" in debug
    assert all(f"stdout.log | {n}\n" in debug for n in (1, 1500, 3000))  # whole, not its end
    # the first estimate knows how long a build takes: the first one waited for seconds
    left = re.search(r"about (\d+) more trials, ([\d.]+)s", said)
    assert left is not None
    assert float(left[2]) > 2 * int(left[1])


@pytest.mark.xdist_group("docker")
def test_a_default_cache_of_somebody_else_is_refused_before_anything_runs(
    docker_engine: DockerEngine, tmp_path: Path
) -> None:
    place = tmp_path / f"{getpass.getuser()}-bazel-triage-cache"
    place.mkdir()
    os.chown(place, USER, USER)
    done = aorta(
        *("bisect", "--passing-container", "none:1", "--failing-container", "none:2", "true"),
        cwd=tmp_path,
        env={**docker_engine.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.exit_code == 2
    assert "somebody else" in done.stderr
