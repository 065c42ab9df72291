"""What needs a cluster or a GPU to run, checked as the words that would be said to them."""

from pathlib import Path

import pytest

from aorta.core.errors import InfrastructureError, UsageError
from aorta.core.trial import Environment, RuntimeKind
from aorta.runtimes.engine import DOCKER, PODMAN, gpu_options, shown_devices, visible_devices
from aorta.runtimes.launch import launch_for, srun_options
from support.launched import make_trial

DIGEST = "sha256:" + "0" * 64


def box(image: str | None = "team/image:1", mounts: tuple[str, ...] = ()) -> Environment:
    return Environment("box", RuntimeKind.PYXIS, image, mounts=mounts, options=("--mpi=pmix",))


def test_srun_passes_variables_by_name_and_mounts_by_path(tmp_path: Path) -> None:
    trial = make_trial(tmp_path, box(mounts=("/data:/data:ro",)), "true", env={"TOKEN": "hush"})
    names = "AORTA_DOCKER_IMAGE,AORTA_STEP_TIMES,AORTA_TRIAL_DIR,TOKEN"
    assert srun_options(trial) == (
        f"--export={names}",
        "--container-image=team/image:1",
        f"--container-mounts={tmp_path}/work:{tmp_path}/work,{tmp_path}/trial:{tmp_path}/trial,/data:/data:ro",
        f"--container-env={names}",
        "--no-container-mount-home",
        f"--container-workdir={tmp_path}/work",
        "--mpi=pmix",
    )


def test_srun_is_started_with_the_variables_it_passes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    srun = tmp_path / "srun"
    srun.write_text("#!/bin/sh\n")
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    launch = launch_for(
        make_trial(tmp_path, box(f"team/image@{DIGEST}"), "true", env={"A": "1\n2"})
    )
    assert (launch.argv[0], launch.argv[-1]) == (str(srun), "true")
    assert (launch.env["A"], launch.env["AORTA_DOCKER_DIGEST"]) == ("1\n2", DIGEST)
    assert launch.image_digest == DIGEST
    said = "slurmstepd: error: pyxis: failed to import docker image"
    assert launch.refusal(1, f"{said}\nmore\n") == f"the container did not start: {said}"
    assert launch.refusal(1, "Traceback\n") is None


@pytest.mark.parametrize(
    ("image", "said"),
    [
        ("image", "image"),
        ("team/image:1", "team/image:1"),
        ("host.example:5000/team/image:1", "host.example:5000#team/image:1"),
        ("localhost/image", "localhost#image"),
        ("host.example#team/image", "host.example#team/image"),
        ("/images/a.sqsh", "/images/a.sqsh"),
        ("./a.sqsh", "./a.sqsh"),
    ],
)
def test_a_registry_is_separated_as_enroot_wants_it(tmp_path: Path, image: str, said: str) -> None:
    options = srun_options(make_trial(tmp_path, box(image), "true"))
    assert f"--container-image={said}" in options


def test_pyxis_refuses_what_it_cannot_say(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"environment box: .*names no image"):
        srun_options(make_trial(tmp_path, box(None), "true"))


def test_pyxis_without_srun_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfrastructureError, match=r"srun is not on PATH.*slurm-client"):
        launch_for(make_trial(tmp_path, box(), "true"))


def test_no_device_is_let_in_unless_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "nvidiactl").touch()
    assert gpu_options(0, DOCKER, tmp_path) == ()


def test_nvidias_devices_are_let_in_as_each_engine_wants_it(tmp_path: Path) -> None:
    (tmp_path / "nvidiactl").touch()
    assert gpu_options(2, DOCKER, tmp_path) == ("--gpus=all",)
    assert gpu_options(2, PODMAN, tmp_path) == ("--device=nvidia.com/gpu=all",)


def test_on_amd_hip_counts_anew_what_rocr_left_to_it(tmp_path: Path) -> None:
    of_nvidia = {"CUDA_VISIBLE_DEVICES": "4,5", "HIP_VISIBLE_DEVICES": "4,5"}
    assert shown_devices(["4", "5"], tmp_path) == {**of_nvidia, "ROCR_VISIBLE_DEVICES": "4,5"}
    (tmp_path / "kfd").touch()
    of_amd = {"CUDA_VISIBLE_DEVICES": "0,1", "HIP_VISIBLE_DEVICES": "0,1"}
    assert shown_devices(["4", "5"], tmp_path) == {**of_amd, "ROCR_VISIBLE_DEVICES": "4,5"}


@pytest.mark.parametrize("node", ["nvidiactl", "kfd"])
def test_a_slot_inside_a_slot_hands_out_the_devices_it_was_given(
    node: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / node).touch()
    assert visible_devices(["0", "1"], tmp_path) == ["0", "1"]
    for name, value in shown_devices(["4", "6", "7"], tmp_path).items():
        monkeypatch.setenv(name, value)
    assert visible_devices(["0", "1"], tmp_path) == ["4", "6", "7"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert visible_devices(["0", "1"], tmp_path) == []


def test_amds_devices_come_with_the_groups_that_own_them(tmp_path: Path) -> None:
    (tmp_path / "dri").mkdir()
    for node in ("kfd", "dri/renderD128", "dri/renderD129"):
        (tmp_path / node).touch()
    group = (tmp_path / "kfd").stat().st_gid
    assert gpu_options(1, DOCKER, tmp_path) == (
        f"--device={tmp_path}/kfd",
        f"--device={tmp_path}/dri",
        f"--group-add={group}",
    )


def test_a_gpu_asked_for_where_there_is_none_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="asks for 2 GPUs and this machine has neither"):
        gpu_options(2, DOCKER, tmp_path)
