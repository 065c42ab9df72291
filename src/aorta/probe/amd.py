"""AMD's GPUs, from sysfs, which needs no tool. And ROCm: its release, HIP, hipBLASLt and AMD's own
health check. On a machine without ROCm all of it is null, and no fault.
"""

import hashlib
import importlib.util
import json
import os
import re
import tempfile
from pathlib import Path

from aorta.probe.machine import (
    JsonObject,
    Machine,
    Probed,
    gpu_record,
    missing_in,
    read_text,
    whole_number,
)
from aorta.probe.platform import has_amd


def amd_gpus(machine: Machine) -> Probed:
    """In the order of their PCI addresses."""
    cards = [
        card
        for card in machine.children("/sys/class/drm", "card[0-9]*")
        if card.name[4:].isdigit() and read_text(card / "device/vendor") == "0x1002"
    ]
    if has_amd(machine) and not cards:
        return Probed([], ("gpus: the compute driver of AMD is loaded, but shows no GPU",))
    arches = _kfd_arches(machine)
    driver = machine.text("/sys/module/amdgpu/version")
    found = sorted((_amd_gpu(card, arches, driver) for card in cards), key=lambda g: str(g["pci"]))
    return Probed([{**gpu, "index": index} for index, gpu in enumerate(found)])


def _amd_gpu(card: Path, arches: dict[str, str], driver: str | None) -> JsonObject:
    said = dict(
        line.split("=", 1)
        for line in (read_text(card / "device/uevent") or "").splitlines()
        if "=" in line
    )
    pci = said.get("PCI_SLOT_NAME")
    unique = read_text(card / "device/unique_id")
    memory = whole_number(read_text(card / "device/mem_info_vram_total"))
    return gpu_record(
        vendor="amd",
        name=read_text(card / "device/product_name") or None,
        uuid=f"GPU-{unique}" if unique else None,
        pci=pci,
        memory_mib=memory >> 20 if memory is not None else None,
        arch=arches.get(pci or ""),
        driver=driver,
        vbios=read_text(card / "device/vbios_version") or None,
        source="sysfs",
    )


def _kfd_arches(machine: Machine) -> dict[str, str]:
    """gfx target by PCI address, as the compute driver has them: 90402 is gfx942."""
    arches: dict[str, str] = {}
    for file in machine.children("/sys/class/kfd/kfd/topology/nodes", "*/properties"):
        said = dict(re.findall(r"^(\w+) (\d+)$", read_text(file) or "", re.MULTILINE))
        target, location = int(said.get("gfx_target_version", 0)), int(said.get("location_id", 0))
        if target:
            arches[_pci_address(int(said.get("domain", 0)), location)] = _gfx_name(target)
    return arches


def _pci_address(domain: int, location: int) -> str:
    return f"{domain:04x}:{location >> 8:02x}:{location >> 3 & 0x1F:02x}.{location & 7}"


def _gfx_name(target: int) -> str:
    major, minor, step = target // 10000, target // 100 % 100, target % 100
    return f"gfx{major}{minor:x}{step:x}"


_HEALTH_TIMEOUT = 30.0
_HIP_QUESTIONS = ("version", "platform", "compiler", "runtime", "cpp_config")


def rocm_root(machine: Machine) -> Path | None:
    """Where ROCm is installed: as the user says, in the usual place, or inside a Python wheel."""
    named = (machine.environ.get(name) for name in ("ROCM_PATH", "ROCM_HOME", "HIP_PATH"))
    places = [machine.path(place) for place in (*filter(None, named), "/opt/rocm")]
    wheel = importlib.util.find_spec("_rocm_sdk_core")
    places += [Path(place) for place in (wheel and wheel.submodule_search_locations) or ()]
    return next((place for place in places if place.is_dir()), None)


def rocm_expected(machine: Machine) -> bool:
    return has_amd(machine) or rocm_root(machine) is not None


def probe_rocm(machine: Machine) -> Probed:
    root = rocm_root(machine)
    value: JsonObject = {
        "version": _info(root, "version"),
        "version_dev": _info(root, "version-dev"),
        "kmd_version": machine.text("/sys/module/amdgpu/version"),
    }
    return _expected(machine, "rocm", value, "not found in the ROCm installation")


def probe_hip(machine: Machine) -> Probed:
    empty: JsonObject = dict.fromkeys(_HIP_QUESTIONS)
    if not rocm_expected(machine) and machine.tool("hipconfig") is None:
        return Probed(empty)
    value, missing = {**empty}, []
    problem: str | None = None
    for question in _HIP_QUESTIONS:
        if problem is None:  # a tool that hung once is not waited for five times
            answer = machine.ask("hipconfig", f"--{question}")
            problem = answer.problem
            value[question] = None if problem else answer.text or None
        if value[question] is None:
            missing.append(f"hip.{question}: {problem or 'hipconfig printed nothing'}")
    return Probed(value, tuple(missing))


def probe_hipblaslt(machine: Machine) -> Probed:
    root = rocm_root(machine)
    header = _text(root, "include/hipblaslt/hipblaslt-version.h") or ""
    numbers = [
        _defined(f"HIPBLASLT_VERSION_{part}", header) for part in ("MAJOR", "MINOR", "PATCH")
    ]
    value: JsonObject = {
        "commit": _defined("HIPBLASLT_VERSION_TWEAK", header),
        "package_version": ".".join(filter(None, numbers)) or None,
        "lib_hash": _file_hash(root, "lib/libhipblaslt.so"),
        "tensile_yaml_revision": _names_hash(root, "lib/hipblaslt/library"),
    }
    found = _expected(machine, "hipblaslt", value, "not found in the ROCm installation")
    return Probed({**value, "applied_prs": {}}, found.missing)


def probe_system_health(machine: Machine) -> Probed:
    """What `rdhc` says, word for word. It needs root, which we do not take for ourselves."""
    if not rocm_expected(machine):
        return Probed(None)
    with tempfile.TemporaryDirectory(prefix="aorta-health-") as scratch:
        report = Path(scratch, "health.json")
        command = ["rdhc", "--quick", "--json", str(report)]
        if os.geteuid() != 0 and machine.tool("rdhc"):
            return Probed(None, ("system_health: rdhc needs root; run: sudo aorta env probe",))
        answer = machine.ask(*command, timeout=_HEALTH_TIMEOUT)
        text = read_text(report)
    if answer.problem or text is None:
        return Probed(None, (f"system_health: {answer.problem or 'rdhc wrote no report'}",))
    try:
        said = json.loads(text)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        return Probed(None, ("system_health: the report of rdhc is not a JSON object",))
    return Probed(said)


def _expected(machine: Machine, section: str, value: JsonObject, cause: str) -> Probed:
    """Nulls are worth a line only where ROCm ought to be."""
    return Probed(value, missing_in(section, value, cause) if rocm_expected(machine) else ())


def _text(root: Path | None, name: str) -> str | None:
    return read_text(root / name) if root else None


def _info(root: Path | None, name: str) -> str | None:
    return _text(root, f".info/{name}")


def _defined(name: str, header: str) -> str | None:
    found = re.search(rf"^#define\s+{name}\s+(\S+)", header, re.MULTILINE)
    return found[1] if found else None


def _file_hash(root: Path | None, name: str) -> str | None:
    if root is None:
        return None
    digest = hashlib.sha256()
    try:
        with (root / name).open("rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    except OSError:
        return None
    return f"sha256:{digest.hexdigest()}"


def _names_hash(root: Path | None, name: str) -> str | None:
    """The kernel library is gigabytes; the names of its files change with every revision of it."""
    if root is None:
        return None
    try:
        names = sorted(file.name for file in (root / name).iterdir())
    except OSError:
        return None
    return f"filenames-sha256:{hashlib.sha256(chr(10).join(names).encode()).hexdigest()}"
