"""The one rule for what the tests need of a machine.

A missing component fails the run and says which command installs it. Only a plain user outside CI,
who could not install it, gets a skip with the reason instead; `make test` as root, or with CI set,
never skips.
"""

import os
import shutil
from dataclasses import dataclass

import pytest

from support.services.postgres import program


@dataclass(frozen=True)
class Component:
    """Something real from Debian's packages that tests run against."""

    name: str
    commands: tuple[str, ...]
    packages: tuple[str, ...]
    needs_root: bool = False


DOCKER = Component(
    "a docker engine", ("docker", "dockerd", "runc"), ("docker.io", "runc"), needs_root=True
)
PODMAN = Component("podman", ("podman", "runc"), ("podman", "catatonit", "runc"), needs_root=True)
REGISTRY = Component("an OCI registry", ("docker-registry",), ("docker-registry",))
POSTGRES = Component("PostgreSQL", (program("postgres"),), ("postgresql",))
BUSYBOX = Component("a static busybox", ("busybox",), ("busybox-static",))
SLURM = Component(
    "Slurm",
    ("slurmctld", "slurmd", "sbatch", "munged", "gcc", "mksquashfs"),
    (
        "gcc",
        "libc6-dev",
        "libslurm-dev",
        "munge",
        "slurm-client",
        "slurmctld",
        "slurmd",
        "squashfs-tools",
    ),
    needs_root=True,
)
SLURM_ACCOUNTING = Component(
    "Slurm's accounting",
    ("slurmdbd", "mariadbd", "mariadb-install-db", "my_print_defaults"),
    ("mariadb-client-core", "mariadb-server-core", "slurmdbd"),
    needs_root=True,
)
CHROMIUM = Component("a browser", ("chromium",), ("chromium",))
MOUNTS = Component("a file system of its own", ("mount",), ("mount",), needs_root=True)
CONTROL_GROUPS = Component("a control group of its own", (), (), needs_root=True)
PYTHON = Component("Debian's python3", ("/usr/bin/python3",), ("python3",))


def demand(*components: Component) -> None:
    """Return if every component can be used here; otherwise end the test as the rule says."""
    reasons = [reason for component in components if (reason := why_not(component))]
    if reasons:
        end_without("; ".join(reasons))


def end_without(reason: str) -> None:
    """End the test for what this machine lacks: a failure, or a skip where nobody could have mended
    it.
    """
    if os.geteuid() == 0 or os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def why_not(component: Component) -> str | None:
    """What stands between this machine and the component, and the command that mends it."""
    lacking = [command for command in component.commands if path_of(command) is None]
    if lacking:
        install = f"apt-get install --yes --no-install-recommends {' '.join(component.packages)}"
        return f"{component.name} is missing ({', '.join(lacking)}); install it with: {install}"
    if component.needs_root and os.geteuid() != 0:
        return f"{component.name} needs root here; run with: sudo make test"
    return None


def path_of(command: str) -> str | None:
    """Where a command is, also where only root's shell looks for it."""
    places = (os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin")
    return shutil.which(command, path=os.pathsep.join(places))
