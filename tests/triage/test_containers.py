"""Cells in containers, on a real engine: they run inside, and their snapshot is taken inside."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.aorta_cli import aorta
from support.services.engines import DockerEngine
from support.services.images import Rootfs
from support.triage_runs import BASELINE, by_name, cell, document, written

IMAGE = "aorta-test/python:triage"
BARE = "aorta-test/busybox:triage"

pytestmark = pytest.mark.xdist_group("docker")


@pytest.fixture
def engine(
    docker_engine: DockerEngine, busybox: Rootfs, busybox_python: Rootfs
) -> Iterator[DockerEngine]:
    for image, rootfs in ((IMAGE, busybox_python), (BARE, busybox)):
        if docker_engine("image", "inspect", image, check=False).returncode != 0:
            docker_engine.import_image(rootfs, image, ["ENV BUILT_IN=yes"])
    yield docker_engine
    assert docker_engine.containers() == []


def test_a_host_cell_and_container_cells_in_one_matrix(
    tmp_path: Path, engine: DockerEngine
) -> None:
    sidecar = written(
        tmp_path,
        {
            "version": 1,
            "environments": {"box": {"docker": IMAGE, "env": {"FROM_BOX": "1"}}},
            "mitigations": {"mend": {"FIXED": "1"}},
        },
        "boxes.json",
    )
    script = ["sh", "-c", 'test "$BUILT_IN" = yes -a "$FIXED" = 1 || exit 1']
    cells = [
        BASELINE,
        cell("host-mended", "mend"),
        cell("box", environment="box"),
        cell("box-mended", "mend", environment="box"),
        cell("inline-mended", "mend", environment={"docker": BARE}),
    ]
    path = written(tmp_path, document(*cells, workload_config={"command": script}, trials=5))
    done = aorta(
        "triage", "run", "--recipe", path, "--mitigations-file", sidecar, "--jobs", "2", "--json", "-q",
        cwd=tmp_path, env=engine.environ,
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    matrix = done.json()
    found = by_name(matrix)
    assert {name: entry["failure_rate"] for name, entry in found.items()} == {
        "baseline-local": 1,
        "host-mended": 1,
        "box": 1,
        "box-mended": 0,
        "inline-mended": 0,
    }
    assert found["box-mended"]["call"] == "works"
    assert found["inline-mended"]["resolved_environment"]["inline"] is True
    run_dir = tmp_path / matrix["run_dir"]
    inside = json.loads((run_dir / "environments/box/env.json").read_text())
    assert inside["runtime_context"]["type"] == "docker"
    assert inside["docker"]["image"] == IMAGE
    assert inside["packages"] != json.loads((run_dir / "host_env.json").read_text())["packages"]
    record = json.loads((run_dir / found["box"]["trial_paths"][0]).read_text())
    assert record["process"]["image_digest"].startswith("sha256:")
    # Without a Python inside there is no snapshot, and it says so instead of showing the host's.
    (bare,) = (run_dir / "environments").glob("_inline_*/env.json")
    placeholder = json.loads(bare.read_text())
    assert placeholder["snapshot_captured"] is False
    assert placeholder["descriptor"]["docker"] == BARE
    assert any("environment:_inline_" in warning for warning in matrix["warnings"])


def test_a_registered_workload_runs_in_an_image_that_has_no_aorta(
    tmp_path: Path, engine: DockerEngine
) -> None:
    done = aorta(
        "triage", "run", "--workload", "half_nan", "--mitigation-axis", "none",
        "--environment-axis", f"local,image:{IMAGE}", "--trials", "1", "--steps", "200",
        "--json", "-q", cwd=tmp_path, env=engine.environ,
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    cells = done.json()["cells"]
    assert [entry["failed_count"] for entry in cells] == [1, 1]
    assert {entry["step_time_source"] for entry in cells} == {"per_step"}
    assert {entry["failure_hints"][0][0] for entry in cells} == {"NaN detected at step <*>"}
