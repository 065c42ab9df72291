"""The host without its accelerators: kernel, C library, processor, memory. Only what stays the same while it runs."""

import os
import platform
import re

from aorta.probe.machine import JsonObject, Machine, Probed
from aorta.registry.variables import KNOWN_VARIABLES
from aorta.scrub.secrets import safe_value


def probe_host(machine: Machine) -> Probed:
    system = os.uname()
    library, version = platform.libc_ver()
    value = {
        "hostname": system.nodename,
        "system": system.sysname,
        "kernel_release": system.release,
        "kernel_version": system.version,
        "machine": system.machine,
        "libc": f"{library} {version}".strip() or None,
        "distribution": _os_release(machine).get("PRETTY_NAME"),
    }
    return Probed(value)


def probe_cpu(machine: Machine) -> Probed:
    text = machine.text("/proc/cpuinfo") or ""
    fields = dict(_cpu_fields(text))
    value: JsonObject = {
        "model": fields.get("model name") or fields.get("Model") or fields.get("CPU part"),
        "vendor": fields.get("vendor_id") or fields.get("CPU implementer"),
        "logical": os.cpu_count(),
        "usable": len(os.sched_getaffinity(0)),
        "sockets": len(set(re.findall(r"^physical id\s*:\s*(\d+)", text, re.MULTILINE))) or None,
        "numa_nodes": len(machine.children("/sys/devices/system/node", "node[0-9]*")) or None,
        "simd": _simd(fields.get("flags") or fields.get("Features") or ""),
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


def _os_release(machine: Machine) -> dict[str, str]:
    lines = (machine.text("/etc/os-release") or "").splitlines()
    pairs = (line.split("=", 1) for line in lines if "=" in line)
    return {key: value.strip('"') for key, value in pairs}


def _cpu_fields(text: str) -> list[tuple[str, str]]:
    """The fields of the first processor, in the spelling of the kernel."""
    first = text.split("\n\n", 1)[0]
    pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    return [(key.strip(), value.strip()) for key, value in pairs]


_SIMD = ("sse4_2", "avx", "avx2", "avx512f", "avx512_bf16", "amx_tile", "asimd", "sve", "sve2")


def _simd(flags: str) -> list[str]:
    present = set(flags.split())
    return [name for name in _SIMD if name in present]


def _cgroup_limit(machine: Machine) -> int | None:
    for place in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        text = machine.text(place)
        if (
            text and text.isdecimal() and int(text) < 1 << 60
        ):  # version 1 writes "no limit" as a huge number
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
