"""A container from its start to its removal, however its trial ends."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aorta.core.errors import InfrastructureError, UsageError
from aorta.core.trial import Environment, RuntimeKind
from aorta.runtimes.engine import ENGINES, client_of, image_named, present_image
from aorta.runtimes.launch import launch_for
from support.launched import clean_up, finished, make_trial, started
from support.processes import catches
from support.services.engines import DockerEngine, Engine, PodmanEngine
from support.services.images import Rootfs
from support.services.registry import Registry
from support.waiting import eventually, patience, wait_until

IMAGE = "aorta-test/busybox:1"


def inspected(engine: Engine, container: str | None) -> dict[str, object]:
    assert container is not None
    answer = engine("inspect", "--format={{json .Config.Labels}}", container)
    labels: dict[str, object] = json.loads(answer.stdout)
    return labels


def runs(engine: Engine, container: str | None) -> bool:
    return container in engine("ps", "--format={{.Names}}").stdout.split()


@pytest.mark.parametrize("exit_code", [0, 125])
def test_the_exit_code_is_the_commands_own_and_the_container_is_gone(
    engine: Engine, tmp_path: Path, exit_code: int
) -> None:
    trial = make_trial(
        tmp_path, engine.environment(IMAGE), "sh", "-c", f"echo out; exit {exit_code}"
    )
    done = finished(trial)
    assert (done.returncode, done.stdout, done.stderr) == (exit_code, "out\n", "")
    assert launch_for(trial).refusal(done.returncode, done.stderr) is None
    assert engine.containers() == []


def test_a_container_that_cannot_start_is_told_apart_from_a_command_that_fails(
    engine: Engine, tmp_path: Path
) -> None:
    trial = make_trial(tmp_path, engine.environment(IMAGE, "--no-such-option"), "true")
    done = finished(trial)
    assert done.returncode == 125
    assert "--no-such-option" in (launch_for(trial).refusal(done.returncode, done.stderr) or "")
    assert engine.containers() == []


def test_a_command_that_is_not_in_the_image_is_never_a_plain_failure(
    engine: Engine, tmp_path: Path
) -> None:
    trial = make_trial(tmp_path, engine.environment(IMAGE), "no-such-command")
    done = finished(trial)
    assert done.returncode == 127 or launch_for(trial).refusal(done.returncode, done.stderr)


def test_the_name_and_the_labels_say_whose_container_it_is(engine: Engine, tmp_path: Path) -> None:
    launch = launch_for(make_trial(tmp_path, engine.environment(IMAGE), "sleep", "60"))
    assert launch.container is not None
    assert launch.container.startswith("aorta-")
    assert f"-{os.getpid()}-t1-" in launch.container
    with started(launch):
        assert eventually(lambda: runs(engine, launch.container), every=0.1)
        labels = inspected(engine, launch.container)
    assert labels["aorta.pid"] == str(os.getpid())
    assert labels["aorta.trial"] == "t1"
    assert labels["aorta.image"] == IMAGE


def test_cleanup_removes_a_container_whose_client_was_killed(
    engine: Engine, tmp_path: Path
) -> None:
    launch = launch_for(make_trial(tmp_path, engine.environment(IMAGE), "sleep", "600"))
    with started(launch) as process:
        assert eventually(lambda: runs(engine, launch.container), every=0.1)
        process.kill()
        process.wait(patience())
        assert runs(engine, launch.container)  # nobody but the cleanup ends it
    assert engine.containers() == []


@pytest.mark.parametrize(
    ("number", "delay"),
    [
        *((signal.SIGKILL, delay) for delay in (0.0, 0.004, 0.012)),
        *((signal.SIGTERM, delay) for delay in (0.0, 0.03)),
    ],
)
def test_cleanup_removes_a_container_that_is_only_being_made_when_its_client_is_killed(
    engine: Engine, tmp_path: Path, number: signal.Signals, delay: float
) -> None:
    launch = launch_for(make_trial(tmp_path, engine.environment(IMAGE), "sleep", "600"))
    option = next(word for word in launch.argv if word.startswith("--cidfile="))
    id_file = Path(option.partition("=")[2])
    with started(launch) as process:
        assert eventually(id_file.exists, every=0.0005)
        time.sleep(delay)
        process.send_signal(number)
        # a client that is told to end before its container runs may pass that on to nobody: a
        # trial's second signal is one that cannot be passed on
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
        process.kill()
        process.wait(patience())
    assert engine.containers() == []
    assert not id_file.exists()


def test_a_terminated_client_lets_the_command_end_in_its_own_way(
    engine: Engine, tmp_path: Path
) -> None:
    script = "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.1; done"
    launch = launch_for(make_trial(tmp_path, engine.environment(IMAGE), "sh", "-c", script))
    with started(launch) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        # podman passes signals on only from a moment after the start, and this one it catches for
        # that alone
        wait_until(lambda: catches(process.pid, signal.SIGCONT), "signals that are passed on")
        process.send_signal(signal.SIGTERM)
        stdout, _ = process.communicate(timeout=patience())
    assert (process.returncode, stdout) == (7, b"bye\n")
    assert eventually(lambda: engine.containers() == [], every=0.1)


def test_cleanup_of_a_trial_that_never_started_is_harmless(engine: Engine, tmp_path: Path) -> None:
    clean_up(launch_for(make_trial(tmp_path, engine.environment(IMAGE), "true")))
    assert engine.containers() == []


def test_the_digest_is_the_registrys_and_a_missing_image_is_pulled(
    engine: Engine, oci_registry: Registry, busybox: Rootfs, tmp_path: Path
) -> None:
    reference = f"{oci_registry.address}/team/{engine.kind}:latest"
    if isinstance(engine, PodmanEngine):
        engine.trust(oci_registry)
    engine.import_image(busybox, reference, ["LABEL only=here"])
    engine("push", reference)
    engine("rmi", reference)
    trial = make_trial(tmp_path, engine.environment(reference), "echo", "pulled")
    done = finished(trial)
    assert (done.returncode, done.stdout) == (0, "pulled\n"), done.stderr
    of_registry = oci_registry.digest(f"team/{engine.kind}", "latest")
    assert launch_for(trial).image_digest == of_registry


def test_a_tag_that_moves_does_not_change_what_runs(
    engine: Engine, busybox: Rootfs, tmp_path: Path
) -> None:
    reference = engine.import_image(busybox, "aorta-test/moving:1", ["ENV WHICH=first"])
    trial = make_trial(tmp_path, engine.environment(reference), "sh", "-c", "echo $WHICH")
    before = launch_for(trial).image_digest
    engine.import_image(busybox, reference, ["ENV WHICH=second"])
    assert finished(trial).stdout == "first\n"
    assert launch_for(trial).image_digest == before


def test_an_image_that_was_found_is_not_asked_for_again(engine: Engine, busybox: Rootfs) -> None:
    reference = engine.import_image(busybox, "aorta-test/found:1", ["ENV FOUND=1"])
    client, _ = client_of(ENGINES[engine.kind], engine.options)
    found = present_image(client, reference)
    assert found is not None
    engine("rmi", reference)
    assert present_image(client, reference) == image_named(client, reference) == found


def test_an_image_that_nobody_has_is_one_clear_line(
    engine: Engine, oci_registry: Registry, tmp_path: Path
) -> None:
    reference = f"{oci_registry.address}/team/absent:1"
    if isinstance(engine, PodmanEngine):
        engine.trust(oci_registry)
    with pytest.raises(InfrastructureError) as missing:
        launch_for(make_trial(tmp_path, engine.environment(reference), "true"))
    assert f"has no image {reference!r} and cannot pull it" in str(missing.value)
    assert str(missing.value).endswith(f"get it with: {engine.kind} pull {reference}")
    assert "\n" not in str(missing.value)


@pytest.mark.parametrize("kind", [RuntimeKind.DOCKER, RuntimeKind.PODMAN])
def test_an_engine_that_is_not_installed_is_one_clear_line(
    kind: RuntimeKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfrastructureError, match=f"{kind} is not installed.*apt-get install"):
        launch_for(make_trial(tmp_path, Environment("box", kind, "any:1"), "true"))


@pytest.mark.xdist_group("docker")
def test_an_engine_that_does_not_answer_is_one_clear_line(
    docker_engine: DockerEngine, tmp_path: Path
) -> None:
    nowhere = docker_engine.environment(IMAGE, f"--host=unix://{tmp_path}/none.sock")
    with pytest.raises(
        InfrastructureError, match=r"docker engine does not answer: .*systemctl start docker"
    ):
        launch_for(make_trial(tmp_path, nowhere, "true"))


def test_an_environment_without_an_image_is_the_users_error(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"environment box: .*names no image"):
        launch_for(make_trial(tmp_path, engine.environment(None), "true"))


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """One that a plain user can reach; pytest's own are root's alone."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        yield directory


@pytest.mark.xdist_group("docker")
def test_files_made_in_a_container_belong_to_a_plain_user_who_started_it(
    docker_engine: DockerEngine, busybox: Rootfs, open_directory: Path
) -> None:
    docker_engine.import_image(busybox, IMAGE)
    environment = docker_engine.environment(IMAGE, *docker_engine.argv[1:])
    trial = make_trial(open_directory, environment, "touch", f"{open_directory}/trial/made")
    trial.trial_dir.chmod(0o777)
    docker_engine.directory.chmod(0o711)
    (docker_engine.directory / "docker.sock").chmod(0o666)
    user, group = 4321, 5432
    os.setegid(group)
    os.seteuid(user)
    try:
        launch = launch_for(trial)
    finally:
        os.seteuid(0)
        os.setegid(0)
    with started(launch) as process:
        assert process.wait(patience()) == 0
    made = (trial.trial_dir / "made").stat()
    assert (made.st_uid, made.st_gid) == (user, group)
