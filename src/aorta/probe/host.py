"""The host without its accelerators: kernel, C library, CPU, memory, container or not, known
variables, Python and the installed packages that matter. Nothing is imported for it.
"""

import importlib.util
import os
import platform
import re
import sys
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from aorta.probe.machine import JsonObject, Machine, Probed, missing_in, pairs_in, read_text
from aorta.registry.mitigation import BUILTIN_MITIGATIONS
from aorta.scrub.secrets import safe_value
from aorta.scrub.vocabulary import words

_NAMES: Mapping[str, str] = tomllib.loads(
    Path(__file__).with_name("names.toml").read_text(encoding="utf-8")
)
_ALSO_WATCHED = words(_NAMES["watched_variables"])
_THAT_MATTER = words(_NAMES["packages_that_matter"])

KNOWN_VARIABLES: tuple[str, ...] = tuple(
    sorted({*_ALSO_WATCHED, *(name for entry in BUILTIN_MITIGATIONS for name in entry.env)})
)


def probe_host(machine: Machine) -> Probed:
    system = os.uname()
    library, version = platform.libc_ver()
    release = pairs_in(machine.text("/etc/os-release"), "=").get("PRETTY_NAME")
    value = {
        "hostname": system.nodename,
        "system": system.sysname,
        "kernel_release": system.release,
        "kernel_version": system.version,
        "machine": system.machine,
        "libc": f"{library} {version}".strip() or None,
        "distribution": release and release.strip('"'),
    }
    return Probed(value)


def probe_cpu(machine: Machine) -> Probed:
    text = machine.text("/proc/cpuinfo") or ""
    fields = pairs_in(text.split("\n\n", 1)[0], ":")  # of the first processor
    present = (fields.get("flags") or fields.get("Features") or "").split()
    value: JsonObject = {
        "model": fields.get("model name") or fields.get("Model") or fields.get("CPU part"),
        "vendor": fields.get("vendor_id") or fields.get("CPU implementer"),
        "logical": os.cpu_count(),
        "usable": len(os.sched_getaffinity(0)),
        "sockets": len(set(re.findall(r"^physical id\s*:\s*(\d+)", text, re.MULTILINE))) or None,
        "numa_nodes": len(machine.children("/sys/devices/system/node", "node[0-9]*")) or None,
        "simd": [name for name in _SIMD if name in present],
    }
    return Probed(value)


def probe_memory(machine: Machine) -> Probed:
    """Totals alone: what is free now would make two snapshots of one machine differ."""
    kibibytes = re.search(
        r"^MemTotal:\s*(\d+) kB", machine.text("/proc/meminfo") or "", re.MULTILINE
    )
    value = {
        "total_mib": int(kibibytes[1]) // 1024 if kibibytes else None,
        "limit_mib": _cgroup_limit(machine),
        "shm_mib": _size_mib(machine, "/dev/shm"),  # noqa: S108 - its size is the question
    }
    return Probed(value)


_SIMD = ("sse4_2", "avx", "avx2", "avx512f", "avx512_bf16", "amx_tile", "asimd", "sve", "sve2")


def _cgroup_limit(machine: Machine) -> int | None:
    for place in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        text = machine.text(place)
        # Version 1 writes "no limit" as a huge number.
        if text and text.isdecimal() and int(text) < 1 << 60:
            return int(text) >> 20
    return None


def _size_mib(machine: Machine, place: str) -> int | None:
    try:
        size = os.statvfs(machine.path(place))
    except OSError:
        return None
    return size.f_blocks * size.f_frsize >> 20


_MAX_VALUE = 4096


def probe_env_vars(machine: Machine) -> Probed:
    return Probed({name: _recorded(name, machine.environ.get(name)) for name in KNOWN_VARIABLES})


def _recorded(name: str, value: str | None) -> str | None:
    if value is None:
        return None
    if len(value) > _MAX_VALUE:  # cut, half a secret could stay; and nobody reads so much
        return f"<{len(value)} characters>"
    return safe_value(name, value)


_CONTAINER_ID = re.compile(r"[0-9a-f]{64}")
# Mounted from a directory named after the container; other mounts may be other containers'.
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
    """A container cannot see its own image: AORTA_DOCKER_IMAGE and _DIGEST name it."""
    if container_type(machine) == "baremetal":
        return Probed(None)
    podmans = re.search(r'^image="(.+)"$', machine.text("/run/.containerenv") or "", re.MULTILINE)
    named = _CONTAINER_ID.search(machine.text("/proc/self/cgroup") or "")
    mounted = _OWN_MOUNT.search(machine.text("/proc/self/mountinfo") or "")
    value: JsonObject = {
        "image": machine.environ.get("AORTA_DOCKER_IMAGE") or (podmans and podmans[1]),
        "digest": machine.environ.get("AORTA_DOCKER_DIGEST"),
    }
    missing = missing_in("docker", value, "not given when the container was started")
    known = named[0] if named else mounted[1] if mounted else None
    return Probed({**value, "container_id": known}, missing)


# -- Python and its packages


def probe_python(_machine: Machine) -> Probed:
    value = {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "compiler": platform.python_compiler(),
        "executable": sys.executable,
    }
    return Probed(value)


def probe_packages(_machine: Machine) -> Probed:
    """Version by name, of those that are installed."""
    found = ((name, version_of(name)) for name in sorted(_THAT_MATTER))
    return Probed({name: version for name, version in found if version})


def probe_other_packages(_machine: Machine) -> Probed:
    """The rest of what is installed, by directory names; without what came from no index: it cannot
    be installed by its name, which may be private.
    """
    found: dict[str, str] = {}
    for place in dict.fromkeys(sys.path):
        with suppress(OSError):
            for entry in sorted(Path(place).glob("*.dist-info")):
                name, _, version = entry.name.removesuffix(".dist-info").partition("-")
                name = re.sub(r"[-_.]+", "-", name).lower()
                if (
                    version
                    and name not in _THAT_MATTER
                    and not (entry / "direct_url.json").exists()
                ):
                    found.setdefault(name, version)
    return Probed(dict(sorted(found.items())))


def probe_pytorch_version(_machine: Machine) -> Probed:
    """As torch says it: its metadata may leave out the +cu130 or +rocm7.0 of a build."""
    version = _assigned("__version__", _torch_says() or "") or version_of("torch")
    if version is None:
        return Probed(None, ("pytorch_version: torch is not installed for this Python",))
    return Probed(version)


def probe_pytorch_build(_machine: Machine) -> Probed:
    """What torch was built for."""
    text = _torch_says()
    if text is None:
        return Probed(None)
    return Probed({name: _assigned(name, text) for name in ("cuda", "hip", "git_version")})


def _torch_says() -> str | None:
    """The file in which torch describes its build; importing torch takes seconds."""
    spec = importlib.util.find_spec("torch") if version_of("torch") else None
    return read_text(Path(spec.origin).parent / "version.py") if spec and spec.origin else None


def version_of(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _assigned(name: str, text: str) -> str | None:
    found = re.search(rf"^{name}\b[^=\n]*=\s*'?([^'\n]*)'?", text, re.MULTILINE)
    return None if found is None or found[1] == "None" else found[1]
