"""Bisections in containers that are killed or interrupted: they go on where they were, and leave
nothing behind.
"""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.aorta_cli import Finished, aorta, start_aorta
from support.nightly import World, day
from support.processes import wait_for_file
from support.services.engines import DockerEngine
from support.services.registry import Registry
from support.waiting import patience

pytestmark = pytest.mark.xdist_group("docker")

DAYS = [day(1), day(2)]
FIRST_BAD = day(2)

# Every trial writes down what it is a trial of; the one that is told to waits, so that it can be
# cut short.
TEST = """
echo "$(cat /etc/nightly) $(cat /opt/jax/number)" >> /log/ran
test $(wc -l < /log/ran) -ne $(cat /log/wait-at) || { touch /log/waiting; sleep 300; }
test-jax.sh
"""
_NEVER = 0


@pytest.fixture(scope="module")
def template(oci_registry: Registry, world: World) -> str:
    return world.publish(oci_registry, "nightly/cut", DAYS, first_bad=FIRST_BAD)


class CutShort:
    """One bisection that stops in chosen trials."""

    def __init__(
        self, tmp_path: Path, engine: DockerEngine, packages: list[dict[str, Any]], *where: str
    ) -> None:
        self.tmp_path, self.engine, self.out = tmp_path, engine, tmp_path / "out"
        self.log = tmp_path / "log"
        self.log.mkdir()
        spec = tmp_path / "bisect.yaml"
        spec.write_text(yaml.safe_dump({"packages": packages}))
        options = (
            f"--spec={spec}",
            "--json",
            "--no-checks",
            "-v",
            f"{self.log}:/log",
        )
        self.words = (*where, *options, "--", "sh", "-c", TEST)

    def run(self) -> Finished:
        self._wait_in(_NEVER)
        return aorta(*self._command(), cwd=self.tmp_path, env=self.engine.environ, timeout=300)

    def start(self, line: int = _NEVER) -> "subprocess.Popen[bytes]":
        """Begun, or gone on with, until the trial that writes this line of the log, or a build,
        waits.
        """
        self._wait_in(line)
        running = start_aorta(*self._command(), cwd=self.tmp_path, env=self.engine.environ)
        wait_for_file(self.log / "waiting")
        return running

    def _wait_in(self, line: int) -> None:
        (self.log / "waiting").unlink(missing_ok=True)
        (self.log / "wait-at").write_text(f"{line}\n")

    def _command(self) -> list[str | Path]:
        how = "--resume" if self.out.exists() else "--output-prefix"
        return ["bisect", how, self.out, *self.words]

    @property
    def ran(self) -> list[str]:
        return (self.log / "ran").read_text().splitlines()

    def left_behind(self) -> list[str]:
        tags = self.engine("images", "--format={{.Repository}}:{{.Tag}}").stdout.split()
        return [*self.engine.containers(), *(tag for tag in tags if "aorta-bisect" in tag)]


def dated(template: str) -> tuple[str, ...]:
    return ("--container=jax", f"--container-url-template={template}")


def interrupt(cut: CutShort, running: "subprocess.Popen[bytes]") -> None:
    """It says what it knows and how to go on, and leaves nothing behind."""
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=patience())
    assert running.returncode == 130, err
    assert json.loads(out)["status"] == "partial"
    assert json.loads((cut.out / "result.json").read_text())["status"] == "partial"
    assert b"--resume" in err
    assert cut.left_behind() == []


def kill(cut: CutShort, running: "subprocess.Popen[bytes]") -> None:
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate()


def test_killed_and_interrupted_among_containers_it_goes_on_and_runs_no_trial_twice(
    docker_engine: DockerEngine, template: str, world: World, tmp_path: Path
) -> None:
    cut = CutShort(tmp_path, docker_engine, world.few(), *dated(template))
    # The fourth trial is of a day, the eighth of a version set inside a container.
    ends = {4: interrupt, 8: kill}
    for times, (trial, end) in enumerate(ends.items()):
        end(cut, cut.start(trial + times))
        assert len(cut.ran) == trial + times
        assert cut.ran[-1].split()[1] in (("4", "5", "6") if trial > 4 else ("0", "8"))
    done = cut.run()
    result = done.json()
    assert result["status"] == "found", done.stderr
    assert result["culprits"][0]["bad"] == world.culprit
    assert result["resumed_trials"] == 7
    assert len(cut.ran) == result["tests"] + len(ends)  # those that were cut short
    assert cut.left_behind() == []
    assert cut.run().json()["culprits"] == result["culprits"]
    assert len(cut.ran) == result["tests"] + len(ends)  # a finished run runs nothing again


def test_interrupted_in_a_build_it_leaves_neither_container_nor_image(
    docker_engine: DockerEngine, template: str, world: World, tmp_path: Path
) -> None:
    passing, failing = (template.format(container="jax", date=date) for date in DAYS)
    ends = (f"--passing-container={passing}", f"--failing-container={failing}")
    cut = CutShort(tmp_path, docker_engine, world.few("touch /log/waiting; sleep 300"), *ends)
    interrupt(cut, cut.start())


def test_stopped_between_the_days_and_the_versions_it_says_which_containers_differ(
    docker_engine: DockerEngine, template: str, tmp_path: Path
) -> None:
    away = {"good": "abcdef6789012345678901234567890123456789"}
    remote = {"remote": "https://user:hunter2@127.0.0.1:1/none"}
    packages = [{"name": "jax", "path": "/opt/jax", **away, **remote}]
    known = ("--start-date", DAYS[0], "--end-date", DAYS[1], "--skip-precondition-checks")
    cut = CutShort(tmp_path, docker_engine, packages, *dated(template), *known)
    done = cut.run()
    assert done.exit_code == 5
    assert "cannot fetch the commits" in done.stderr
    assert "hunter2" not in done.stderr
    partial = json.loads((cut.out / "result.json").read_text())
    assert partial["status"] == "partial"
    assert partial["containers"]["first_bad"].endswith(FIRST_BAD)
    assert cut.left_behind() == []
