"""A command that fails in a container of today's, and did not in one of last week's."""

import json
from pathlib import Path

import pytest

from support.aorta_cli import aorta
from support.nightly import day, layer
from support.services.engines import DockerEngine
from support.services.images import Rootfs, bash_layer
from support.services.registry import Registry

TRAIN = """\
if grep -q yes /installed && [ "$2" -ge 3 ]; then
    echo "Error: softmax does not add up" >&2
    exit 1
fi
"""
FIRST_BAD = 3


@pytest.mark.xdist_group("docker")
def test_the_day_that_brought_it_is_named_from_a_container_that_worked(
    docker_engine: DockerEngine, oci_registry: Registry, busybox: Rootfs, tmp_path: Path
) -> None:
    days = [day(number) for number in range(1, 4)]
    bash = bash_layer(tmp_path)
    for date in days:
        broken = "yes" if date >= day(FIRST_BAD) else "no"
        top = layer(tmp_path / f"{date}.tar", {"installed": broken, "etc/day": date})
        oci_registry.push("solve/days", f"nightly-{date}", [busybox.tarball, bash, top])
    failing = f"{oci_registry.address}/solve/days:nightly-{days[-1]}"
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.sh").write_text(TRAIN)
    done = aorta(
        *("solve", "--json", "-q", "--skip", "triage", "--environment", f"image:{failing}"),
        *("--good", failing.replace(days[-1], days[0]), "--", "sh", "train.sh", "--steps", "4"),
        cwd=work, env={**docker_engine.environ, "AORTA_CACHE_DIR": str(tmp_path / "cache")},
        timeout=400,
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    document = done.json()
    assert [axis["final"] for axis in document["reproducer"]["axes"]] == [3]
    (culprit,) = document["culprits"]
    assert culprit["package"] == "container"
    assert (culprit["good"], culprit["bad"]) == (day(FIRST_BAD - 1), day(FIRST_BAD))
    (bisect,) = [row for row in document["stages"] if row["name"] == "bisect"]
    assert bisect["why"] is None  # the original says the same in both containers
    (check,) = (work / document["run_dir"]).glob("4-bisect-original/result.json")
    assert json.loads(check.read_text())["status"] == "found"


@pytest.mark.xdist_group("docker")
def test_an_image_that_worked_and_is_nowhere_is_said_before_anything_runs(
    docker_engine: DockerEngine, oci_registry: Registry, busybox: Rootfs, tmp_path: Path
) -> None:
    oci_registry.push("solve/typo", "bad", [busybox.tarball])
    failing, good = (f"{oci_registry.address}/solve/typo:{tag}" for tag in ("bad", "godo"))
    done = aorta(
        *("solve", "-q", "--environment", f"image:{failing}", "--good", good, "--", "false"),
        cwd=tmp_path, env=docker_engine.environ,
    )  # fmt: skip
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert f"--good: found {good!r}, which docker does not have" in line
    assert not (tmp_path / "solve").exists()
