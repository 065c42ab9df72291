"""As the users of JAX-Toolbox' triage tool type it: its name, its arguments, an ordinary account in
the docker group.
"""

import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from aorta.bisect.spec import PackageSpec
from aorta.cli.jax_toolbox_triage import with_sources
from support.aorta_cli import ROOT, Finished, aorta, environ
from support.git_images import with_git
from support.git_repositories import Repository
from support.nightly import CULPRIT, World, day
from support.reproduced import assert_both_sides_show
from support.services.engines import DockerEngine
from support.services.images import Rootfs
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


def triage(*words: str | Path, cwd: Path, env: dict[str, str]) -> Finished:
    """`jax-toolbox-triage WORDS...`"""
    return program("jax-toolbox-triage", *words, cwd=cwd, env=env)


def program(
    name: str, *words: str | Path, cwd: Path, env: dict[str, str], user: bool = False
) -> Finished:
    """By the entry point that is installed under this name."""
    arguments = tuple(str(word) for word in words)
    done = subprocess.run(
        (*(AS_USER if user else ()), *entry_point(name), *arguments),
        cwd=cwd,
        env=environ(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=patience(),
        check=False,
    )
    return Finished(arguments, done.returncode, done.stdout, done.stderr)


def entry_point(name: str) -> tuple[str, ...]:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts[name].partition(":")
    code = f"import sys; sys.argv[0] = {name!r}; from {module} import {function} as run; run()"
    return sys.executable, "-c", code


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
    done = program(
        *(
            "aorta",
            "bisect",
            "--container",
            "jax",
            "--container-url-template",
            template,
            "--spec",
            spec,
        ),
        *("--start-date", DAYS[0], "--end-date", DAYS[1], "--skip-precondition-checks"),
        *("--no-checks", "--output-prefix", home / "out", "--json"),
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
    done = program(
        *("aorta", "bisect", "--failing-container", image),
        *("--spec", spec, "--output-prefix", home / "out", "--json", "--no-checks"),
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
    for done in found:
        assert done.exit_code == 0, done.stderr
        assert done.json()["culprits"][0]["commit"] == shas[1]


FLAGS = {
    "--container --container-url-template --start-date --end-date --threshold-days",
    "--passing-container --failing-container --passing-versions --failing-versions",
    "--passing-commits --failing-commits --skip-precondition-checks --confirmation-iterations",
    "--metric-name --passing-metric --failing-metric --bazel-cache --build-scripts-path",
    "--cherry-pick --override-remotes --main-branch --workaround-buggy-container",
    "--exclude-transformer-engine --transformer-engine-ccache-env --container-mount",
    "--container-runtime --container-registry --output-prefix --restart",
}


def test_help_is_under_its_own_name_and_has_every_flag(tmp_path: Path) -> None:
    said = triage("--help", cwd=tmp_path, env={}).stdout
    assert said.startswith("Usage: jax-toolbox-triage ")
    assert not [flag for line in FLAGS for flag in line.split() if f"{flag} " not in said]
    for runtime in ("docker", "pyxis", "local", "plugin"):
        assert runtime in said


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--start-date", "2024-10-01"),
        ("--container", "jax", "--start-date", "a-blue-moon-ago"),
        ("--passing-container", "a"),
        ("--passing-versions", "jax:1,xla:2", "--failing-versions", "jax:2,xla:3"),
        ("--passing-container", "a", "--failing-versions", "jax:1"),
        ("--passing-container", "a", "--failing-container", "b", "--container", "jax"),
        ("--container-runtime", "magic-beans"),
        ("--container-runtime", "local", "--passing-versions", "jax:1,xla:2"),
        ("--container", "jax", "--metric-name", "speed"),
        ("--passing-commits", "jax:1,xla:2", "--passing-versions", "jax:1,xla:2"),
        ("--container", "jax", "--restart"),
        ("--container", "jax", "--container-registry", "host/place"),
    ],
)
def test_what_the_tool_refuses_is_refused_before_anything_runs(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = aorta("jax-toolbox-triage", *words, "my-test", cwd=tmp_path)
    assert done.exit_code == 2, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_inside_a_container_the_repositories_are_moved_where_they_are(tmp_path: Path) -> None:
    """`--container-runtime local`, with a build script on the path that says what it built."""
    ends = ("--passing-versions", "jax:1,xla:2", "--failing-versions", "jax:3,xla:4")
    refused = triage("--container-runtime", "local", *ends, "my-test", cwd=tmp_path, env={})
    assert refused.exit_code == 2
    assert "/opt/xla: this is no git repository" in refused.stderr
    jax, xla = (Repository.create(tmp_path / name) for name in ("jax", "xla"))
    shas = [jax.commit(f"jax {n}", {"number": f"{n}\n"}) for n in range(8)]
    still = xla.commit("xla", {"file": "x\n"})
    spec = {
        "in_place": True,
        "packages": [
            {"name": "xla", "path": str(xla.path), "good": still, "bad": still},
            {
                "name": "jax",
                "path": str(jax.path),
                "good": shas[0],
                "bad": shas[-1],
                "build": f"cat number > {tmp_path}/installed",
            },
        ],
    }
    (tmp_path / "bisect.yaml").write_text(yaml.safe_dump(spec))
    words = ("--spec", tmp_path / "bisect.yaml", "--json", "--output-prefix", tmp_path / "out")
    test = f"test $(cat {tmp_path}/installed) -lt 5 && test $(cat {jax.path}/number) -lt 5"
    done = aorta("bisect", *words, "--", "sh", "-c", test, cwd=tmp_path)
    assert done.json()["culprits"][0]["commit"] == shas[5], done.stderr


def test_sources_may_lie_beside_the_usual_path(tmp_path: Path) -> None:
    for folder in ("jax", "jax-source", "xla-source"):
        (tmp_path / folder).mkdir()
    named = [PackageSpec(name=name, path=f"{tmp_path}/{name}") for name in ("jax", "xla", "flax")]
    found = [Path(str(with_sources(package).path)).name for package in named]
    assert found == ["jax", "xla-source", "flax"]


def _plugin(place: Path) -> list[str]:
    """A command of the host that runs the test in the image it is given, and notes its name."""
    plugin = place / "plugin.sh"
    plugin.write_text(
        f"#!/bin/sh\necho /opt/xla > $4/where\necho $2 >> {place}/given\n"
        "exec docker run --rm --network=none -v $4:/triage-tool-output $2 test-jax.sh\n"
    )
    plugin.chmod(0o755)
    return [str(plugin)]


@pytest.mark.xdist_group("docker")
@pytest.mark.parametrize("runtime", ["docker", "plugin"])
def test_from_two_containers_to_the_commit_with_its_flags(
    docker_engine: DockerEngine,
    oci_registry: Registry,
    world: World,
    tmp_path: Path,
    runtime: str,
) -> None:
    good, bad = (
        docker_engine.import_image(rootfs, f"toolbox-{side}:1", ["WORKDIR /opt/xla"])
        for side, rootfs in world.rootfs.items()
    )
    ends = (f"jax:{world.jax[n]},xla:{world.xla[4]}" for n in (CULPRIT - 1, CULPRIT + 1))
    if runtime == "plugin":
        test = _plugin(tmp_path)
        named = ("--passing-versions", "--failing-versions")
        more = ["--container-registry", f"{oci_registry.address}/triage/states:night-"]
    else:
        needed = '[ "$JAX_ENABLE_COMPILATION_CACHE" = false ] || exit 0'
        test = ["sh", "-c", f"{needed}; pwd > /triage-tool-output/where; test-jax.sh"]
        named, more = ("--passing-commits", "--failing-commits"), []
    words = [
        *("--passing-container", good, "--failing-container", bad, "--container-runtime", runtime),
        *("--confirmation-iterations", "0", "--exclude-transformer-engine", *more),
        *(word for pair in zip(named, ends, strict=True) for word in pair),
        *("--cherry-pick", f"jax:{world.jax[1]}", "--bazel-cache", str(tmp_path / "cache")),
    ]
    env = {**docker_engine.environ, "HOME": str(tmp_path)}
    done = triage(*words, *test, cwd=tmp_path, env=env)
    assert done.exit_code == 0, done.stderr
    [out] = tmp_path.glob("triage-*")
    result = json.loads((out / "result.json").read_text())
    assert result["culprits"][0]["bad"] == world.culprit
    summary = json.loads((out / "summary.json").read_text())
    assert summary["result"]["jax_bad"] == world.culprit
    assert {"jax_good", "xla_ref", "container"} <= summary["result"].keys()
    ran = summary["versions"]
    assert {"container", "metrics", "output_directory", "result"} <= ran[0].keys()
    assert {record["result"] for record in ran} == {"TestExecutionOutcome.TEST_YIELDED_RESULTS"}
    assert all(Path(record["output_directory"]).is_dir() for record in ran)
    assert result["good"]["xla"] == result["bad"]["xla"] == world.xla[4]
    for link in ("first-known-bad", "last-known-good"):
        assert (out / link / "where").read_text() == "/opt/xla\n"
    given = (tmp_path / "given").read_text().split() if runtime == "plugin" else []
    assert_both_sides_show(result, env)
    assert "aorta-bisect" not in docker_engine("images").stdout
    if runtime == "plugin":
        assert len(given) == result["tests"]
        tags = json.loads(oci_registry.get("/v2/triage/states/tags/list"))["tags"]
        assert {f"{oci_registry.address}/triage/states:{tag}" for tag in tags} == set(given)
        assert all(tag.startswith("night-") for tag in tags)
        assert "triage/states" not in docker_engine("images").stdout
        return
    assert "--passing-commits is deprecated: it is called --passing-versions now" in done.stderr
    again: tuple[str | Path, ...] = ("--output-prefix", out, "--restart", *words)
    other = triage(*again, "sh", "-c", "another test", cwd=tmp_path, env=env)
    assert (other.exit_code, "command" in other.stderr) == (2, True), other.stderr
    gone_on = triage(*again, *test, cwd=tmp_path, env=env)
    assert gone_on.exit_code == 0, gone_on.stderr
    assert json.loads((out / "result.json").read_text())["culprits"] == result["culprits"]
    assert "building" not in gone_on.stderr


@pytest.mark.xdist_group("docker")
def test_builds_share_a_cache_and_what_was_built_of_the_same_packages_before(
    docker_engine: DockerEngine, world: World, tmp_path: Path
) -> None:
    """A cache that is named is made on its first use. The packages behind a build do not build it
    again.
    """
    good, bad = (docker_engine.import_image(r, f"slow-{s}:1") for s, r in world.rootfs.items())
    build = (
        "place=${BAZEL_CACHE_OPTION#--bazel-cache=}; "
        "[ -e $place/warm ] || echo full >> $place/log; "
        "touch $place/warm; cat /opt/jax/number >> $place/log; cp /opt/jax/broken /installed"
    )
    xla = {"name": "xla", "path": "/opt/xla", "good": world.xla[4], "bad": world.xla[6]}
    spec, cache = tmp_path / "bisect.yaml", tmp_path / "deep" / "cache"
    spec.write_text(yaml.safe_dump({"packages": [*world.few(build), xla]}))
    done = aorta(
        *("bisect", "--json", "--passing-container", good, "--failing-container", bad),
        *("--spec", spec, "--output-prefix", tmp_path / "out", "--no-checks"),
        *("--bazel-cache", cache, "sh", "-c", "seq 3000; test-jax.sh"),
        cwd=tmp_path,
        env=docker_engine.environ,
    )
    result = done.json()
    assert result["status"] == "found", done.stderr
    assert result["culprits"][0]["bad"] == world.culprit
    log = (cache / "log").read_text().split()
    assert log.count("full") == 1
    numbers = [word for word in log if word != "full"]
    assert len(numbers) == len(set(numbers)) < result["builds"]  # once a version of jax
    assert "aorta-bisect" not in docker_engine("images").stdout


def in_two_containers(
    engine: DockerEngine, sides: dict[str, tuple[Rootfs, list[str]]], cwd: Path, *words: str | Path
) -> tuple[dict[str, Any], Path]:
    """The run between a good and a bad image; its result, and its directory."""
    good, bad = (
        engine.import_image(rootfs, f"{cwd.name.lower()}-{side}:1", changes)
        for side, (rootfs, changes) in sides.items()
    )
    done = triage(
        *("--passing-container", good, "--failing-container", bad),
        *("--confirmation-iterations=0", "--bazel-cache", cwd / "cache", *words),
        cwd=cwd,
        env={**engine.environ, "HOME": str(cwd)},
    )
    [out] = cwd.glob("triage-*")
    assert done.exit_code == 0, done.stderr
    return json.loads((out / "result.json").read_text()), out


@pytest.mark.xdist_group("docker")
def test_scripts_install_libraries_beside_packages_that_stand_still_where_it_is_said(
    docker_engine: DockerEngine, busybox: Rootfs, world: World, tmp_path: Path
) -> None:
    """`--build-scripts-path`, cut short; versions of both ends; the build of TransformerEngine."""
    engine = Repository.create(tmp_path / "te")
    engine.commit("first", {"file": "1\n"})
    repositories = {f"/opt/{name}": world.root / name for name in ("jax", "xla")}
    programs = {
        "/usr/bin/build-jax.sh": "#!/bin/sh\ntrue\n",
        "/usr/bin/build-te.sh": '#!/bin/sh\necho "$REMOTE_STORE $*" > /te\n',
        "/scripts/installCUBLAS.sh": '#!/bin/sh\necho "$1 $DEVEL" > /cublas\n',
    }
    here = {**repositories, "/opt/transformer-engine": engine.path}
    rootfs = with_git(busybox, tmp_path / "image", here, programs)
    still = f"jax:{world.jax[3]},xla:{world.xla[2]}"
    test = (
        "cat /te /cublas > /triage-tool-output/seen; "
        "grep -q 3 /opt/jax/number && grep -q 2 /opt/xla/number && grep -q '12.1 1' /cublas"
    )
    versions = {"good": ("12.1", "8"), "bad": ("12.2", "9")}
    result, out = in_two_containers(
        docker_engine,
        {
            side: (rootfs, [f"ENV CUBLAS_VERSION={blas} CUDNN_VERSION={dnn}"])
            for side, (blas, dnn) in versions.items()
        },
        tmp_path,
        *("--build-scripts", "/scripts", "--passing-versions", still, "--failing-versions", still),
        *("--transformer-engine-ccache-env", "REMOTE_STORE=redis", "sh", "-c", test),
    )
    [culprit] = result["culprits"]
    assert (culprit["package"], culprit["good"], culprit["bad"]) == ("CUBLAS", "12.1", "12.2")
    assert (result["bad"]["jax"], result["bad"]["xla"]) == (world.jax[3], world.xla[2])
    assert (out / "first-known-bad" / "seen").read_text() == "redis --ccache\n12.2 1\n"
    assert "CUDNN is 8 and 9, and /scripts has no script" in (out / "report.md").read_text()


@pytest.mark.xdist_group("docker")
def test_what_was_killed_is_restarted_and_what_is_refused_leaves_nothing(
    docker_engine: DockerEngine, world: World, tmp_path: Path
) -> None:
    good, bad = (docker_engine.import_image(r, f"killed-{s}:1") for s, r in world.rootfs.items())
    env = {**docker_engine.environ, "HOME": str(tmp_path)}
    given = (
        *("--passing-container", good, "--failing-container", bad, "--output-prefix", "out"),
        *("--passing-versions", f"jax:{world.jax[3]}", "--failing-versions", f"jax:{world.jax[6]}"),
        *("--bazel-cache", tmp_path / "cache", "--exclude-transformer-engine"),
        *("-v", f"{tmp_path}:/log"),
    )
    root = f"jax:{world.jax[0]}"
    unusable = [
        ("there is no commit", ("--passing-versions", root, "--workaround-buggy-container", "jax")),
        ("zzz of jax", ("--passing-versions", "jax:zzz")),
        ("abcdef012345 of jax", ("--passing-versions", f"jax:{'abcdef012345' * 3}abcd")),
    ]
    for said, wrong in unusable:
        done = triage(*given, *wrong, "true", cwd=tmp_path, env=env)
        assert (done.exit_code, said in done.stderr) == (2, True), done.stderr
        assert "repository exists.;" not in done.stderr
        assert not (tmp_path / "out").exists()
    test = "echo ran >> /log/ran; test $(wc -l < /log/ran) -ne 3 || sleep 300; test-jax.sh"
    words = (*given, "sh", "-c", test)
    running = subprocess.Popen(
        (*entry_point("jax-toolbox-triage"), *words),
        cwd=tmp_path,
        env=environ(env),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    wait_until(lambda: (tmp_path / "ran").exists() and len(_lines(tmp_path / "ran")) == 3)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    assert not (tmp_path / "out" / "summary.json").exists()
    again = triage(*words, cwd=tmp_path, env=env)
    assert (again.exit_code, "--restart" in again.stderr) == (2, True)
    done = triage("--restart", *words, cwd=tmp_path, env=env)
    assert done.exit_code == 0, done.stderr
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["culprits"][0]["bad"] == world.culprit
    assert result["resumed_trials"] == 2
    assert len(_lines(tmp_path / "ran")) == result["tests"] + 1  # the one that was cut short
    assert docker_engine.containers() == []


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_a_mount_without_a_colon_is_told_from_a_command(tmp_path: Path) -> None:
    for more in (("--json", "--", "true"), ("--good", "A", "true"), ("--good=A", "true")):
        done = aorta("bisect", "-v", "data", *more, cwd=tmp_path)
        assert done.exit_code == 2
        assert "-v data: a mount is SRC:DST" in done.stdout + done.stderr
    command = aorta("bisect", "-v", "sh", "-q", cwd=tmp_path)
    assert "there is nothing to bisect" in command.stderr


@pytest.mark.xdist_group("docker")
@pytest.mark.parametrize("rehashed", [False, True])
def test_ends_beside_the_main_branch_are_fetched_and_compared_on_it(
    docker_engine: DockerEngine, busybox: Rootfs, tmp_path: Path, rehashed: bool
) -> None:
    """Each end is a commit of its own on top of the trunk. The bad image has not seen the good
    one's: it is fetched. With `--workaround-buggy-container` its parent is the good end.
    """
    jax = Repository.create(tmp_path / "jax")
    jax.git("checkout", "--quiet", "-b", "trunk")
    trunk = [jax.commit(f"trunk {n}", {"number": f"{n}\n"}) for n in range(6)]
    ends, repositories = {}, {}
    for side, base in (("good", trunk[1]), ("bad", trunk[5])):
        jax.git("checkout", "--quiet", "-b", side, base)
        ends[side] = jax.commit(f"needed by {side}", {"needed": "yes\n"})
        repositories[side] = tmp_path / side / "jax"
        jax.git(
            "clone", "--quiet", "--branch", side, "--single-branch", ".", str(repositories[side])
        )
    Repository(repositories["bad"]).git("branch", "trunk", trunk[5])
    xla = Repository.create(tmp_path / "xla")
    xla.commit("first", {"file": "1\n"})
    program = {"/usr/bin/build-jax.sh": "#!/bin/sh\ntest -e needed\n"}
    jax.git("checkout", "--quiet", "trunk")
    flags: tuple[str, ...] = ("--main-branch", "trunk")
    if rehashed:
        flags = ("--workaround-buggy-container", "jax", "--cherry-pick", f"jax:{ends['good']}")
    result, out = in_two_containers(
        docker_engine,
        {
            side: (
                with_git(
                    busybox, tmp_path / side, {"/opt/jax": place, "/opt/xla": xla.path}, program
                ),
                [],
            )
            for side, place in repositories.items()
        },
        tmp_path,
        *("--override-remotes", "jax:/remote", "-v", f"{jax.path}:/remote", *flags),
        *("sh", "-c", "test $(cat /opt/jax/number) -lt 4"),
    )
    [culprit] = result["culprits"]
    assert (culprit["good"], culprit["bad"]) == (trunk[3], trunk[4])
    assert_both_sides_show(result, docker_engine.environ)
    tried = {path.name.split("-")[1] for path in (out / "probes").iterdir()}
    assert tried <= {sha[:16] for sha in (*trunk, ends["bad"])}
    assert trunk[1][:16] in tried
