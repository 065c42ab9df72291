"""What `aorta run` shows on a terminal, and in a container."""

import json
from pathlib import Path

import pytest

from support.aorta_cli import aorta
from support.services.engines import DockerEngine
from support.services.images import Rootfs
from support.terminals import on_terminal


@pytest.mark.parametrize("columns", [20, 80, 300])
def test_the_live_view_shows_the_running_trial_and_leaves_the_answer(
    columns: int, tmp_path: Path
) -> None:
    words = ["run", "--trials", "2", "--", "bash", "-c", "sleep 0.6; exit 1"]
    shown, code = on_terminal(words, tmp_path, columns)
    assert code == 1
    assert "Traceback" not in shown
    assert "running" in shown
    assert "2 of 2 trials reproduced the failure" in shown.replace("\r\n", "\n")


@pytest.mark.xdist_group("docker")
def test_trials_run_in_an_image_and_their_snapshot_is_the_image_s_own(
    tmp_path: Path, docker_engine: DockerEngine, busybox_python: Rootfs
) -> None:
    image = docker_engine.import_image(busybox_python, "aorta-test/run:1")
    done = aorta(
        "run", "--environment", f"image:{image}", "--trials", "2", "--json", "-q",
        "--extra-env", "FLAG=in side", "--", "sh", "-c", 'test "$FLAG" = "in side" && test -z '
                                                         '"$HOST_ONLY"',
        cwd=tmp_path, env={**docker_engine.environ, "HOST_ONLY": "1"},
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    report = done.json()
    record = json.loads((tmp_path / report["trials"][0]["path"]).read_text())
    assert record["process"]["image_digest"]
    assert record["env"]["runtime_context"]["type"] == "docker"
    assert record["env"]["docker"]["image"] == image


@pytest.mark.xdist_group("docker")
def test_without_an_engine_it_is_exit_5_and_one_line(tmp_path: Path) -> None:
    done = aorta(
        "run", "--environment", "image:nowhere/nothing:1", "-q", "--", "true",
        cwd=tmp_path, env={"DOCKER_HOST": f"unix://{tmp_path}/none.sock"},
    )  # fmt: skip
    assert done.exit_code == 5
    assert done.stderr.count("\n") == 1
    assert "docker" in done.stderr
