"""In what this process runs: a container of which kind, and which kind of Python environment."""

import re
import sys

from aorta.probe.machine import JsonObject, Machine, Probed, missing_in

_CONTAINER_ID = re.compile(r"[0-9a-f]{64}")
# The engine mounts these files from a directory named after the container; other mounts may be other containers'.
_OWN_MOUNT = re.compile(r"([0-9a-f]{64})/\S* /etc/(?:hostname|hosts|resolv\.conf) ")
_CGROUP_TOKENS = (
    ("docker", "docker"),
    ("libpod", "podman"),
    ("kubepods", "kubernetes"),
    ("containerd", "containerd"),
)


def container_type(machine: Machine) -> str:
    if machine.path("/.dockerenv").exists():
        return "docker"
    if machine.path("/run/.containerenv").exists():
        return "podman"
    if machine.environ.get("SINGULARITY_NAME") or machine.environ.get("APPTAINER_NAME"):
        return "singularity"
    cgroup = machine.text("/proc/1/cgroup") or ""
    found = (kind for token, kind in _CGROUP_TOKENS if token in cgroup)
    return next(found, "baremetal")


def probe_runtime_context(machine: Machine) -> Probed:
    conda = machine.environ.get("CONDA_DEFAULT_ENV")
    in_venv = sys.prefix != sys.base_prefix
    value = {
        "type": container_type(machine),
        "python_env": "conda" if conda else "venv" if in_venv else "system",
        "venv_path": sys.prefix if in_venv else None,
        "conda_env_name": conda,
    }
    return Probed(value)


def probe_docker(machine: Machine) -> Probed:
    """A container cannot see its own image; whoever started it says so in AORTA_DOCKER_IMAGE and _DIGEST."""
    if container_type(machine) == "baremetal":
        return Probed(None)
    value: JsonObject = {
        "image": machine.environ.get("AORTA_DOCKER_IMAGE") or _podman_image(machine),
        "digest": machine.environ.get("AORTA_DOCKER_DIGEST"),
    }
    missing = missing_in("docker", value, "not told by whoever started the container")
    return Probed({**value, "container_id": _container_id(machine)}, missing)


def _podman_image(machine: Machine) -> str | None:
    found = re.search(r'^image="(.+)"$', machine.text("/run/.containerenv") or "", re.MULTILINE)
    return found[1] if found else None


def _container_id(machine: Machine) -> str | None:
    named = _CONTAINER_ID.search(machine.text("/proc/self/cgroup") or "")
    mounted = _OWN_MOUNT.search(machine.text("/proc/self/mountinfo") or "")
    return named[0] if named else mounted[1] if mounted else None
