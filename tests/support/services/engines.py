"""Real container engines, private to the tests: a dockerd of our own, and podman with a store of
its own.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from aorta.core.trial import Environment, RuntimeKind
from support.services import requirements
from support.services.guarded import Guarded, private_directory
from support.services.images import Rootfs
from support.services.registry import Registry
from support.waiting import wait_until


class Engine:
    """A container engine as the tests use it; `options` and `environ` lead Aorta to the same
    one.
    """

    kind: RuntimeKind

    def __init__(
        self, argv: Sequence[str], environ: dict[str, str], options: tuple[str, ...], kept: Guarded
    ) -> None:
        self.argv = tuple(argv)
        self.environ = environ  # variables that a command line under test needs to find this engine
        self.options = options  # what `Environment.options` needs to find it and to run here
        self._kept = kept

    def __call__(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run the engine's own command."""
        done = subprocess.run(
            (*self.argv, *words),
            env={**os.environ, **self.environ},
            capture_output=True,
            text=True,
            check=False,
        )
        assert not check or done.returncode == 0, f"{words}: {done.stderr}"
        return done

    def containers(self) -> list[str]:
        """The names of all containers, running or not."""
        return self("ps", "--all", "--format={{.Names}}").stdout.split()

    def remove_containers(self) -> None:
        """All of them, also one that somebody else is removing already."""

        def are_gone() -> bool:
            there = self.containers()
            for name in there:
                self("rm", "--force", name, check=False)
            return not there

        wait_until(are_gone, "the removal of all containers")

    def import_image(self, rootfs: Rootfs, name: str, changes: Sequence[str] = ()) -> str:
        """Make an image of one layer; `changes` are lines of a Dockerfile, such as `ENV A=1`."""
        settings = [f"--change={change}" for change in changes]
        self("import", *settings, str(rootfs.tarball), name)
        return name

    def environment(
        self, image: str | None, *options: str, mounts: tuple[str, ...] = ()
    ) -> Environment:
        return Environment(
            "box", self.kind, image, mounts=mounts, options=(*self.options, *options)
        )

    @property
    def directory(self) -> Path:
        return self._kept.directory

    def stop(self) -> None:
        self._kept.stop()


class DockerEngine(Engine):
    kind = RuntimeKind.DOCKER


class PodmanEngine(Engine):
    kind = RuntimeKind.PODMAN

    def trust(self, registry: Registry) -> None:
        """Speak plain HTTP with this registry, as docker does with any on the loopback
        interface.
        """
        known = Path(self.environ["CONTAINERS_REGISTRIES_CONF"])
        entry = f'[[registry]]\nlocation = "{registry.address}"\ninsecure = true\n'
        known.write_text(known.read_text() + entry)


def start_docker() -> DockerEngine:
    """A daemon that shares nothing with one that the machine may already run, and touches no
    network setting.
    """
    directory = private_directory("docker")
    socket = f"unix://{directory}/docker.sock"
    client = ("docker", "--host", socket)
    daemon = (
        requirements.path_of("dockerd") or "dockerd",
        "--iptables=false",
        "--bridge=none",
        "--shutdown-timeout=5",
        f"--config-file={_empty_configuration(directory)}",
        f"--data-root={directory}/data",
        f"--exec-root={directory}/exec",
        f"--pidfile={directory}/docker.pid",
        f"--host={socket}",
    )
    remove_all = f"docker --host {socket} ps -aq | xargs -r docker --host {socket} rm -f"
    kept = Guarded(directory, daemon, farewells=[("sh", "-c", remove_all)])
    engine = DockerEngine(client, {"DOCKER_HOST": socket}, (), kept)
    kept.wait_until(lambda: engine("version", check=False).returncode == 0, "dockerd")
    return engine


def start_podman() -> PodmanEngine:
    """No daemon: a store of its own, and the options that podman needs where a process may not
    raise its limits.
    """
    directory = private_directory("podman")
    store = (f"--root={directory}/root", f"--runroot={directory}/run", "--runtime=runc")
    limits = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096")
    client = ("podman", *store)
    kept = Guarded(directory, farewells=[(*client, "rm", "--all", "--force", "--time", "0")])
    registries = directory / "registries.conf"
    registries.write_text("")
    environ = {"CONTAINERS_REGISTRIES_CONF": str(registries)}
    return PodmanEngine(client, environ, (*store, *limits), kept)


def _empty_configuration(directory: Path) -> Path:
    """The machine's own daemon.json must not reach a private daemon."""
    path = directory / "daemon.json"
    path.write_text("{}")
    return path
