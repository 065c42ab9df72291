"""The script that prepares a fresh machine for `make test`."""

import os
import subprocess
from pathlib import Path

import pytest

from support.aorta_cli import ROOT

SCRIPT = ROOT / "tools" / "install-debian-packages.sh"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A copy of the script with a list of packages of its own, and an apt-get that notes what it is
    asked.
    """
    (tmp_path / "tools").mkdir()
    script = tmp_path / "tools" / SCRIPT.name
    script.write_bytes(SCRIPT.read_bytes())
    (tmp_path / "bin").mkdir()
    _program(tmp_path / "bin" / "apt-get", f'echo "$@" >> {tmp_path}/asked')
    _program(
        tmp_path / "bin" / "dpkg-query",
        'case "$*" in *present*) echo installed;; *removed*) echo config-files;; *) exit 1;; esac',
    )
    return tmp_path


def _program(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def prepared(
    machine: Path, packages: str, *, user: int = 0, in_ci: bool = False
) -> subprocess.CompletedProcess[str]:
    (machine / "packages.txt").write_text(packages)
    _program(machine / "bin" / "id", f"echo {user}")
    environ = {"PATH": f"{machine}/bin:{os.environ['PATH']}", **({"CI": "1"} if in_ci else {})}
    return subprocess.run(
        ("bash", str(machine / "tools" / SCRIPT.name)),
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_machine_that_has_everything_is_left_alone(machine: Path) -> None:
    done = prepared(machine, "# why\npresent-a\npresent-b  # reason\n\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (machine / "asked").exists()


def test_root_installs_exactly_what_is_missing(machine: Path) -> None:
    done = prepared(machine, "present-a\nabsent\nremoved\n", in_ci=True)
    assert done.returncode == 0, done.stderr
    update, install = (machine / "asked").read_text().splitlines()
    assert update.endswith("update")
    assert install.endswith("install --yes --no-install-recommends absent removed")


def test_a_plain_user_is_told_what_is_missing_and_goes_on(machine: Path) -> None:
    done = prepared(machine, "absent\n", user=1000)
    assert done.returncode == 0
    assert "sudo apt-get install --yes --no-install-recommends absent" in done.stderr
    assert not (machine / "asked").exists()


def test_in_ci_a_plain_user_with_something_missing_fails(machine: Path) -> None:
    done = prepared(machine, "absent\n", user=1000, in_ci=True)
    assert done.returncode == 1
    assert "CI is set, so this is a failure" in done.stderr


def test_the_list_of_this_repository_names_real_package_names() -> None:
    lines = (ROOT / "packages.txt").read_text().splitlines()
    names = [line.partition("#")[0].strip() for line in lines]
    named = [name for name in names if name]
    assert named == sorted(set(named))
    assert {"docker.io", "podman", "docker-registry", "busybox-static"} <= set(named)
