"""Containers: days listed by a real registry, versions built by real engines, and pyxis through a
stand-in srun.
"""

import itertools
import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from aorta.bisect.containers.image import environment_of
from aorta.bisect.spec import ContainersSpec
from support.aorta_cli import Finished, aorta
from support.git_images import with_git
from support.nightly import BUILD, TEST, World, day, layer
from support.reproduced import assert_both_sides_show, pasted
from support.services.engines import DockerEngine, Engine, PodmanEngine
from support.services.images import Rootfs
from support.services.registry import Registry

PACKAGES = [
    {"name": "xla", "path": "/opt/xla"},
    {"name": "jax", "path": "/opt/jax", "build": BUILD},
]
DAYS = [day(1), day(2)]

# One that these images do not have: the containers themselves are then the answer.
NO_PACKAGE = [{"name": "library", "versions": ["1", "2"], "env": "LIBRARY_VERSION"}]


def bisect(
    tmp_path: Path,
    spec: dict[str, Any],
    engine: Engine | None,
    *more: str,
) -> Finished:
    file = tmp_path / "bisect.yaml"
    file.write_text(yaml.safe_dump({"packages": PACKAGES, **spec}))
    environ = engine.environ if engine else {}
    return aorta(
        "bisect",
        "--spec",
        file,
        "--output-prefix",
        tmp_path / "out",
        "--json",
        *more,
        "--",
        "sh",
        "-c",
        TEST,
        cwd=tmp_path,
        env=environ,
    )


@pytest.mark.xdist_group("docker")
def test_containers_that_differ_in_no_listed_package_are_themselves_the_answer(
    docker_engine: DockerEngine, oci_registry: Registry, world: World, tmp_path: Path
) -> None:
    template = world.publish(oci_registry, "nightly/bare", DAYS, first_bad=day(2))
    words = ("--container=jax", f"--container-url-template={template}")
    result = bisect(tmp_path, {"packages": NO_PACKAGE}, docker_engine, *words).json()
    assert result["status"] == "found"
    [culprit] = result["culprits"]
    assert (culprit["package"], culprit["good"], culprit["bad"]) == ("container", *DAYS)
    kept = {p.read_text() for p in (tmp_path / "out" / "first-known-bad").rglob("kept")}
    assert kept == {"yes\n"}
    assert (tmp_path / "out" / "last-known-good").exists()


@pytest.mark.xdist_group("docker")
def test_a_series_that_never_passes_says_so(
    docker_engine: DockerEngine, oci_registry: Registry, world: World, tmp_path: Path
) -> None:
    template = world.publish(oci_registry, "nightly/never", [day(3), day(9)], first_bad=day(0))
    arguments = ("--container", "jax", "--container-url-template", template)
    planned = bisect(tmp_path, {}, docker_engine, *arguments, "--dry-run")
    assert planned.json()["containers"]["days"] == [day(3), day(9)]
    done = bisect(tmp_path, {}, docker_engine, *arguments)
    assert done.exit_code == 3
    result = done.json()
    assert result["status"] == "never_good"
    assert f"each of the 2 containers fails: {day(3)}, {day(9)}" in result["warnings"]
    assert docker_engine.containers() == []
    assert result["seen"]["bad"]["failed"] == result["tests"] == result["seen"]["bad"]["of"]
    assert (result["rates"]["bad"], result["reproduce"]["good"]) == (1.0, None)
    assert pasted(result["reproduce"]["bad"], docker_engine.environ) == 1


@pytest.mark.xdist_group("docker")
def test_of_a_series_with_few_that_pass_it_says_which_were_not_tried(
    docker_engine: DockerEngine, oci_registry: Registry, world: World, tmp_path: Path
) -> None:
    days, passing = [day(n) for n in range(20)], [day(6), day(14)]
    failing = [one for one in days if one not in passing]
    world.publish(oci_registry, "nightly/few", passing, first_bad=day(99))
    template = world.publish(oci_registry, "nightly/few", failing, first_bad=day(0))
    where = ("--container=jax", f"--container-url-template={template}", "--no-checks")
    done = bisect(tmp_path, {"packages": NO_PACKAGE}, docker_engine, *where)
    assert done.exit_code == 3
    assert "every container" not in done.stderr
    tried = {path.name[10:20] for path in (tmp_path / "out" / "probes").iterdir()}
    assert not tried & set(passing)
    [said] = [words for words in done.json()["warnings"] if "seen to fail" in words]
    assert set(re.findall(r"\d{4}-\d\d-\d\d", said)) == tried
    assert said.startswith("of 20 containers these were seen to fail: ")
    again = bisect(
        tmp_path, {"packages": NO_PACKAGE}, docker_engine, *where, "--start-date", day(14)
    )
    assert again.exit_code == 2  # the directory of the first run is there
    other = ("--output-prefix", str(tmp_path / "two"), "--start-date", day(14))
    assert "--start-date" in said
    found = bisect(tmp_path, {"packages": NO_PACKAGE}, docker_engine, *where, *other)
    assert found.json()["containers"]["last_good"].endswith(day(14)), found.stderr


@pytest.mark.xdist_group("docker")
def test_a_difference_that_no_version_explains_is_said_to_be_one(
    docker_engine: DockerEngine, oci_registry: Registry, world: World, tmp_path: Path
) -> None:
    hidden = layer(tmp_path / "hidden.tar", {"hidden": ""})
    layers = {"good": [], "bad": [hidden]}
    passing, failing = (
        oci_registry.push("nightly/hidden", side, [world.rootfs[side].tarball, *more])
        for side, more in layers.items()
    )
    file = tmp_path / "bisect.yaml"
    containers = {"passing": passing, "failing": failing}
    file.write_text(yaml.safe_dump({"packages": PACKAGES, "containers": containers}))
    done = aorta(
        *("bisect", "--spec", file, "--output-prefix", tmp_path / "out", "--json"),
        *("--", "sh", "-c", "! test -e /hidden"),
        env=docker_engine.environ,
    )
    result = done.json()
    assert done.exit_code == 3
    assert result["status"] == "inconsistent", done.stderr
    assert result["culprits"] == []
    [said] = [words for words in result["warnings"] if "no listed version explains" in words]
    probe, bisect = re.findall(r"`aorta ([^`]*)`", said)
    for words in (probe, bisect):  # what is advised exists
        help_ = aorta(*itertools.takewhile(str.isalpha, words.split()), "--help").stdout
        named = re.findall(r"-[-\w]+", words)
        assert named
        assert [option for option in named if not re.search(rf"{option}\b", help_)] == []


@pytest.mark.xdist_group("podman")
def test_podman_finds_the_commit_between_two_named_containers(
    podman_engine: PodmanEngine, world: World, tmp_path: Path
) -> None:
    passing, failing = (
        podman_engine.import_image(rootfs, f"localhost/nightly-{side}:1")
        for side, rootfs in world.rootfs.items()
    )
    options = list(podman_engine.options)
    containers = {"runtime": "podman", "passing": passing, "failing": failing, "options": options}
    spec = {"containers": containers, "packages": world.few()}
    done = bisect(tmp_path, spec, podman_engine, "--no-checks", "--extra-env", "NEEDED=1")
    result = done.json()
    assert result["status"] == "found", done.stderr
    assert result["culprits"][0]["bad"] == world.culprit
    assert_both_sides_show(result, podman_engine.environ)
    assert podman_engine.containers() == []


@pytest.mark.xdist_group("docker")
def test_another_failure_after_the_rebuild_is_not_bisected_in_place_of_the_first(
    docker_engine: DockerEngine, oci_registry: Registry, world: World, tmp_path: Path
) -> None:
    template = world.publish(oci_registry, "nightly/other", DAYS, first_bad=day(2))
    script = (
        "if grep -q rebuilt /installed; then "
        "test $(cat /opt/jax/number) -lt 5 || { echo Error: cannot import; exit 2; }; "
        "else grep -q no /installed || { echo Error: nn_test; exit 1; }; fi"
    )
    file = tmp_path / "bisect.yaml"
    file.write_text(yaml.safe_dump({"packages": world.few("echo rebuilt > /installed")}))
    where = ("--container=jax", f"--container-url-template={template}")
    words = ("--spec", file, *where, "--same-failure", "--no-checks", "--json")
    done = aorta(
        "bisect", *words, "--", "sh", "-c", script, cwd=tmp_path, env=docker_engine.environ
    )
    assert done.exit_code == 3, done.stderr
    result = done.json()
    assert result["culprits"] == []
    assert {skip["why"] for skip in result["skipped"]} == {
        "another failure: exit 2 | Error: cannot import"
    }


@pytest.mark.xdist_group("docker")
def test_containers_as_near_as_the_threshold_are_near_enough(
    docker_engine: DockerEngine, oci_registry: Registry, world: World, tmp_path: Path
) -> None:
    days = [day(n) for n in (1, *range(7, 14))]
    template = world.publish(oci_registry, "nightly/near", days, first_bad=day(13))
    where = ("--container=jax", f"--container-url-template={template}", "--start-date", day(7))
    spec = {"packages": NO_PACKAGE}
    done = bisect(tmp_path, spec, docker_engine, *where, "--threshold-days", "20", "--no-checks")
    result = done.json()
    assert result["containers"]["last_good"].endswith(day(7)), done.stderr
    assert result["containers"]["first_bad"].endswith(day(13))
    tried = {
        path.name[: len("container-2024-09-01")] for path in (tmp_path / "out" / "probes").iterdir()
    }
    assert tried == {f"container-{day(7)}", f"container-{day(13)}"}


@pytest.mark.xdist_group("docker")
@pytest.mark.parametrize("dated", [True, False])
def test_a_container_that_cannot_start_is_trouble_of_the_machine_and_says_why(
    docker_engine: DockerEngine,
    oci_registry: Registry,
    world: World,
    tmp_path: Path,
    *,
    dated: bool,
) -> None:
    template = world.publish(oci_registry, "nightly/stuck", [day(1), day(2)], first_bad=day(2))
    passing, failing = (template.format(container="jax", date=day(n)) for n in (1, 2))
    where = {"family": "jax", "url_template": template}
    named = {"passing": passing, "failing": failing}
    options = {"options": ["--device=/dev/no-such"], **(where if dated else named)}
    done = bisect(tmp_path, {"containers": options}, docker_engine)
    assert done.exit_code == 5
    assert "the container did not start" in done.stderr
    assert "/dev/no-such" in done.stderr
    assert "did not appear" not in done.stderr
    assert docker_engine.containers() == []


@pytest.mark.xdist_group("docker")
@pytest.mark.parametrize("dated", [True, False])
def test_a_command_that_the_image_lacks_is_said_first(
    docker_engine: DockerEngine,
    oci_registry: Registry,
    world: World,
    tmp_path: Path,
    *,
    dated: bool,
) -> None:
    template = world.publish(oci_registry, "nightly/lacks", DAYS, first_bad=day(2))
    passing, failing = (template.format(container="jax", date=date) for date in DAYS)
    where = ["--container=jax", f"--container-url-template={template}"]
    if not dated:
        where = ["--passing-container", passing, "--failing-container", failing]
    out = ["--output-prefix", str(tmp_path / "out")]
    words = [*out, *where, "--", "no-such-command", "--flag"]
    done = aorta("bisect", *words, cwd=tmp_path, env=docker_engine.environ)
    assert done.exit_code == 5
    assert "no-such-command" in done.stdout.splitlines()[0]
    assert "did not appear" not in done.stdout + done.stderr
    report = (tmp_path / "out" / "report.md").read_text()
    assert "no-such-command" in report.splitlines()[0]


@pytest.mark.xdist_group("docker")
def test_dates_that_do_not_fit_are_refused_before_anything_runs(
    docker_engine: DockerEngine, oci_registry: Registry, world: World, tmp_path: Path
) -> None:
    days = [day(1), day(3), day(8)]
    template = world.publish(oci_registry, "nightly/dates", days, first_bad=day(3))
    where = ("--container=jax", f"--container-url-template={template}")
    spec = {"packages": NO_PACKAGE}
    refused = bisect(tmp_path, spec, docker_engine, *where, "--end-date", day(5))
    assert refused.exit_code == 2
    assert f"no container of {day(5)}; the nearest are {day(3)} and {day(8)}" in refused.stderr
    swapped = ("--start-date", day(8), "--end-date", day(3))
    refused = bisect(tmp_path, spec, docker_engine, *where, *swapped)
    assert refused.exit_code == 2
    assert "start date" in refused.stderr
    assert not (tmp_path / "out").exists()
    between = ("--start-date", day(2), "--end-date", day(3), "--no-checks")
    done = bisect(tmp_path, spec, docker_engine, *where, *between)
    assert done.json()["containers"]["last_good"].endswith(day(1))


@pytest.mark.xdist_group("docker")
def test_a_thousand_commits_inside_a_container_are_searched_like_a_few(
    docker_engine: DockerEngine, busybox: Rootfs, tmp_path: Path
) -> None:
    many, culprit = 1200, 745
    stream = []
    for n in range(many):
        title, content = f"commit {n}", f"{n}\n"
        stream += [f"commit refs/heads/{'main' if n == 0 else 'side'}", f"mark :{n + 1}"]
        stream += [f"committer Ann <ann@example.com> {1_700_000_000 + n} +0000"]
        stream += [f"data {len(title)}", title, f"from :{n}" if n else "M 644 inline number"]
        stream += ["M 644 inline number"] * bool(n) + [f"data {len(content)}", content]
    stream += ["commit refs/heads/main", "committer Ann <ann@example.com> 1700009000 +0000"]
    stream += ["data 5", "merge", "from :1", f"merge :{many}"]
    stream += ["M 644 inline number", "data 5", f"{many}\n"]
    path = tmp_path / "many"
    git = ("git", "-C", str(path))
    subprocess.run(("git", "init", "--quiet", "-b", "main", str(path)), check=True)
    subprocess.run((*git, "fast-import", "--quiet"), input="\n".join(stream), text=True, check=True)
    subprocess.run((*git, "checkout", "--quiet", "--force", "main"), check=True)
    shas = subprocess.run((*git, "rev-list", "--reverse", "main"), capture_output=True, text=True)
    good, *_, bad = shas.stdout.split()
    image = docker_engine.import_image(
        with_git(busybox, tmp_path / "image", {"/opt/many": path}), "many:1"
    )
    packages = [{"name": "many", "path": "/opt/many", "good": good, "bad": bad}]
    file = tmp_path / "bisect.yaml"
    file.write_text(yaml.safe_dump({"packages": packages, "containers": {"failing": image}}))
    done = aorta(
        *("bisect", "--spec", file, "--output-prefix", tmp_path / "out", "--json"),
        *(
            "--no-checks",
            "--max-trials=4",
            "sh",
            "-c",
            f"test $(cat /opt/many/number) -lt {culprit}",
        ),
        cwd=tmp_path,
        env=docker_engine.environ,
    )
    assert done.exit_code == 4, done.stderr
    result = done.json()
    assert result["tests"] <= 4
    left = [said["title"] for said in result["culprits"]]
    assert f"commit {culprit}" in left
    assert len(left) <= many // 2


def test_the_gpus_of_the_machine_are_let_in_unless_the_spec_says_otherwise(tmp_path: Path) -> None:
    (tmp_path / "nvidiactl").touch()
    assert "--gpus=all" in environment_of(ContainersSpec(), tmp_path).options
    unasked = environment_of(ContainersSpec(gpus=False), tmp_path).options
    assert unasked == ("--user=", "--shm-size=1g")
    chosen = ContainersSpec(options=("--gpus=device=1",))
    assert environment_of(chosen, tmp_path).options == (*unasked, "--gpus=device=1")
    assert environment_of(ContainersSpec(), tmp_path / "none").options == unasked
    assert "--gpus=all" not in environment_of(ContainersSpec(runtime="pyxis"), tmp_path).options


SRUN = """#!/usr/bin/env python3
import json, os, subprocess, sys
words = sys.argv[1:]
options = {}
while words and words[0].startswith("-"):
    name, _, value = words.pop(0).partition("=")
    options[name] = value
with open(os.environ["SRUN_LOG"], "a") as log:
    log.write(json.dumps([options, words]) + "\\n")
image = options["--container-image"]
root = image + ".root" if image.endswith(".sqsh") else os.environ["SRUN_" + image.upper()]
scratch = None
if "--container-save" in options:
    scratch = options["--container-save"].replace("/saving/", "/") + ".root"
    subprocess.run(["cp", "-a", root + "/.", scratch], check=True)
    root = scratch
for mount in filter(None, options.get("--container-mounts", "").split(",")):
    source, target = mount.split(":")[:2]
    os.makedirs(root + target, exist_ok=True)
    if os.path.isdir(source) and target == "/triage-tool-output":
        os.rmdir(root + target) if not os.listdir(root + target) else None
code = subprocess.run(["chroot", root, *words]).returncode
if code == 0 and scratch:
    with open(options["--container-save"], "wb") as saved:
        saved.write(b"hsqs" + bytes(92))
sys.exit(code)
"""


def test_pyxis_is_asked_through_srun_for_images_builds_and_tests(
    world: World, tmp_path: Path
) -> None:
    environ = {"SRUN_LOG": str(tmp_path / "srun.log")}
    for side, rootfs in world.rootfs.items():
        root = tmp_path / side
        root.mkdir()
        os.system(f"tar -xf {shlex.quote(str(rootfs.tarball))} -C {shlex.quote(str(root))}")
        broken = "no" if side == "good" else "yes"
        (root / "installed").write_text(f"{broken}\n")
        (root / "dev").mkdir(exist_ok=True)
        (root / "dev" / "null").touch(mode=0o666)
        environ[f"SRUN_{side.upper()}"] = str(root)
    (tmp_path / "bin").mkdir()
    srun = tmp_path / "bin" / "srun"
    srun.write_text(SRUN)
    srun.chmod(0o755)
    environ["PATH"] = f"{srun.parent}:{os.environ['PATH']}"
    spec = {
        "packages": world.few(),
        "containers": {"runtime": "pyxis", "passing": "good", "failing": "bad"},
    }
    file = tmp_path / "bisect.yaml"
    file.write_text(yaml.safe_dump(spec))
    script = "[ $NEEDED ] || exit 0; grep -q no /installed || { echo Error: nn_test; exit 1; }"
    done = aorta(
        "bisect",
        "--spec",
        file,
        "--output-prefix",
        tmp_path / "out",
        "--json",
        "--no-checks",
        "--extra-env=NEEDED=1",
        "--",
        "sh",
        "-c",
        script,
        env=environ,
    )
    result = done.json()
    assert result["status"] == "found", done.stderr
    assert result["culprits"][0]["bad"] == world.culprit
    calls = [json.loads(line) for line in (tmp_path / "srun.log").read_text().splitlines()]
    saves = [options["--container-save"] for options, _ in calls if "--container-save" in options]
    assert (
        len(saves) == len(set(saves)) == result["builds"] + 1
    )  # and the container itself, got once
    shells = [options["--container-image"] for options, words in calls if words == ["sh"]]
    assert len(shells) <= 4  # for all questions to both images, before the search and after it
    tests = [options for options, words in calls if words == ["sh", "-c", script]]
    outputs = [
        mount
        for o in tests
        for mount in o["--container-mounts"].split(",")
        if "triage-tool-output" in mount
    ]
    assert len(outputs) == len(set(outputs)) == len(tests)
    assert_both_sides_show(result, environ)
