"""What a trial in a container sees: exactly its variables, its directories, its network."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from aorta.core.errors import UsageError
from aorta.core.trial import RuntimeKind
from aorta.runtimes.launch import launch_for
from support.launched import finished, make_trial, started
from support.services.engines import Engine
from support.services.images import Rootfs
from support.waiting import eventually, patience

IMAGE = "aorta-test/busybox:1"
SHOW_ENVIRONMENT = ("/bin/cat", "/proc/self/environ")
FROM_ENGINE = {
    RuntimeKind.DOCKER: {"PATH", "HOME", "HOSTNAME"},
    RuntimeKind.PODMAN: {"PATH", "HOME", "HOSTNAME", "TERM", "container"},
}
FROM_AORTA = {
    "AORTA_TRIAL_DIR",
    "AORTA_STEP_TIMES",
    "AORTA_DOCKER_IMAGE",
    "AORTA_DOCKER_DIGEST",
}


def seen(stdout: str) -> dict[str, str]:
    return dict(item.split("=", 1) for item in stdout.rstrip("\0").split("\0"))


def test_a_container_gets_its_layers_and_nothing_of_the_host(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOST_SECRET", "HTTP_PROXY", "no_proxy", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "of the host")
    layers = {
        "PLAIN": "1",
        "EMPTY": "",
        "LINES": "one\ntwo\r\n\nend ",
        "QUOTED": "'a' \"b\" $HOME `c` \\ # {x}",
        "UNICODE": "größer",
        "SPACES": "  both sides  ",
        "PATH": "/bin:/opt/some where/bin",
        "LD_LIBRARY_PATH": "/nowhere/'quoted' \"so\" # on",
        "HOME": "/tmp",
        "DOCKER_HOST": "unix:///nowhere.sock",
        "CONTAINER_HOST": "unix:///nowhere.sock",
    }
    done = finished(make_trial(tmp_path, engine.environment(IMAGE), *SHOW_ENVIRONMENT, env=layers))
    assert done.returncode == 0, done.stderr
    inside = seen(done.stdout)
    assert {name: inside.get(name) for name in layers} == layers
    assert inside.keys() == layers.keys() | FROM_AORTA | FROM_ENGINE[engine.kind]


def test_a_container_without_layers_has_only_the_documented_variables_and_no_proxy_of_the_client(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxies = {"default": {"httpProxy": "http://proxy.invalid:1", "noProxy": "a"}}
    (tmp_path / "config.json").write_text(json.dumps({"proxies": proxies}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    trial = make_trial(tmp_path, engine.environment(IMAGE), *SHOW_ENVIRONMENT)
    done = finished(trial)
    assert done.returncode == 0, done.stderr
    inside = seen(done.stdout)
    assert inside.keys() == FROM_AORTA | FROM_ENGINE[engine.kind]
    assert inside["AORTA_TRIAL_DIR"] == str(trial.trial_dir)
    assert inside["AORTA_DOCKER_IMAGE"] == IMAGE
    assert inside["AORTA_DOCKER_DIGEST"] == launch_for(trial).image_digest


def test_layers_win_over_the_images_own_variables(
    engine: Engine, tmp_path: Path, busybox: Rootfs
) -> None:
    image = engine.import_image(busybox, "aorta-test/env:1", ["ENV OWN=image", "ENV SHARED=image"])
    environment = engine.environment(image)
    trial = make_trial(tmp_path, environment, *SHOW_ENVIRONMENT, env={"SHARED": "layer"})
    inside = seen(finished(trial).stdout)
    assert (inside["OWN"], inside["SHARED"]) == ("image", "layer")


def test_no_value_ever_stands_in_a_process_list(engine: Engine, tmp_path: Path) -> None:
    secrets = {"TOKEN": "hush-by-name-7391", "LD_PRELOAD_NOTE": "hush-by-file-7391"}
    trial = make_trial(tmp_path, engine.environment(IMAGE), "sleep", "60", env=secrets)
    launch = launch_for(trial)
    with started(launch):
        assert eventually(lambda: engine.containers() == [launch.container], every=0.1)
        command_lines = subprocess.run(("ps", "axww", "-o", "args="), capture_output=True).stdout
    assert launch.container is not None
    assert launch.container.encode() in command_lines
    assert b"hush-" not in command_lines


def test_the_file_of_variables_is_private_and_goes_with_the_trial(
    engine: Engine, tmp_path: Path
) -> None:
    trial = make_trial(
        tmp_path, engine.environment(IMAGE), "/bin/true", env={"LD_LIBRARY_PATH": "x"}
    )
    launch = launch_for(trial)
    files = [path for path in trial.trial_dir.rglob("*") if path.is_file()]
    assert [path.stat().st_mode & 0o777 for path in files] == [0o600]
    with started(launch) as process:
        assert process.wait(patience()) == 0
    assert not any(path.is_file() for path in trial.trial_dir.rglob("*"))


def test_a_line_break_in_a_variable_the_client_obeys_is_refused_without_its_value(
    engine: Engine, tmp_path: Path
) -> None:
    environment = engine.environment(IMAGE)
    trial = make_trial(tmp_path, environment, "true", env={"LD_PRELOAD": "hush\nhush"})
    with pytest.raises(UsageError, match="LD_PRELOAD holds a line break") as refused:
        launch_for(trial)
    assert "hush" not in str(refused.value)


def test_the_working_directory_and_the_trials_own_are_the_hosts(
    engine: Engine, tmp_path: Path
) -> None:
    place = tmp_path / 'comma, "quote" and space'
    place.mkdir()
    script = 'pwd; cat input; echo made > here; echo made > "$AORTA_TRIAL_DIR/there"'
    trial = make_trial(place, engine.environment(IMAGE), "sh", "-c", script)
    (trial.cwd / "input").write_text("from the host\n")
    done = finished(trial)
    assert done.stdout == f"{trial.cwd}\nfrom the host\n", done.stderr
    assert (trial.cwd / "here").read_text() == "made\n"
    assert (trial.trial_dir / "there").stat().st_uid == os.geteuid()


def test_further_mounts_are_read_only_where_they_say_so(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "work" / "data").mkdir(parents=True)
    (tmp_path / "work" / "data" / "shard").write_text("bytes\n")
    mounts = ("data:/data:ro", f"{tmp_path}/work/data:/again")
    mounted = engine.environment(IMAGE, mounts=mounts)
    script = "cat /data/shard; echo new > /again/added; echo new > /data/refused"
    done = finished(make_trial(tmp_path, mounted, "sh", "-c", script))
    assert done.stdout == "bytes\n"
    assert "Read-only file system" in done.stderr
    assert (tmp_path / "work" / "data" / "added").exists()
    assert not (tmp_path / "work" / "data" / "refused").exists()


@pytest.mark.parametrize("mount", ["data", "data:relative", ":/data", "a:/b:rx", "a:/b:ro:z"])
def test_a_mount_that_cannot_be_read_is_refused_with_what_was_expected(
    engine: Engine, tmp_path: Path, mount: str
) -> None:
    environment = engine.environment("no-such-image", mounts=(mount,))
    with pytest.raises(
        UsageError, match=r"environment box: found mount .* expected SOURCE:DESTINATION"
    ):
        launch_for(make_trial(tmp_path, environment, "true"))


@pytest.mark.parametrize(
    ("options", "interfaces"),
    [((), "those of the host"), (("--network=none",), "lo"), (("--net", "none"), "lo")],
)
def test_the_hosts_network_is_used_unless_an_option_says_otherwise(
    engine: Engine, tmp_path: Path, options: tuple[str, ...], interfaces: str
) -> None:
    show = ("awk", "NR>2 {sub(/:.*/, \"\"); print $1}", "/proc/net/dev")  # fmt: skip
    done = finished(make_trial(tmp_path, engine.environment(IMAGE, *options), *show))
    of_host = subprocess.run(show, capture_output=True, text=True, check=True).stdout.split()
    assert done.stdout.split() == (of_host if interfaces != "lo" else ["lo"]), done.stderr
