"""The accelerators: platform, drivers, toolkits, GPUs and AMD's health check; none is no fault."""

import csv
import hashlib
import importlib.util
import io
import json
import os
import re
import tempfile
from pathlib import Path

from aorta.probe.host import probe_pytorch_build
from aorta.probe.machine import (
    GarbledError,
    JsonObject,
    Machine,
    Probed,
    ToolAnswer,
    gpu_record,
    missing_in,
    pairs_in,
    read_text,
    whole_number,
)
from aorta.registry.mitigation import Platform


def platform_here(machine: Machine | None = None) -> Platform:
    """The platform of usable devices; with both vendors torch's own. Costs no subprocess."""
    seen = machine or Machine.here()
    amd, nvidia = has_amd(seen), has_nvidia(seen)
    if amd and nvidia:
        build = probe_pytorch_build(seen).value or {}
        return "rocm" if build.get("hip") else "cuda"
    return "rocm" if amd else "cuda" if nvidia else "cpu"


def has_amd(machine: Machine) -> bool:
    """The compute driver of AMD is loaded and lets us in."""
    return machine.path("/dev/kfd").exists()


def has_nvidia(machine: Machine) -> bool:
    """A device node of NVIDIA's driver, or the bridge that WSL has in its place."""
    if machine.children("/dev", "nvidia[0-9]*"):
        return True
    return machine.path("/dev/dxg").exists() and machine.tool("nvidia-smi") is not None


# -- NVIDIA


def probe_cuda(machine: Machine) -> Probed:
    text = machine.text("/proc/driver/nvidia/version") or ""
    driver = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", text)
    toolkit = _toolkit_version(machine)
    return Probed({"driver_version": driver[1] if driver else None, "toolkit_version": toolkit})


def _toolkit_version(machine: Machine) -> str | None:
    """As the toolkit says; else from the name of its directory."""
    root = machine.environ.get("CUDA_HOME") or machine.environ.get("CUDA_PATH") or "/usr/local/cuda"
    try:
        fields = json.loads(machine.text(f"{root}/version.json") or "null")
        return str(fields["cuda"]["version"])
    except (ValueError, KeyError, TypeError):
        named = re.fullmatch(r"cuda-(\d+\.\d+)", machine.path(root).resolve().name)
        return named[1] if named else None


_QUESTIONS = {
    "index": "index",
    "name": "name",
    "uuid": "uuid",
    "pci": "pci.bus_id",
    "memory_mib": "memory.total",
    "driver": "driver_version",
    "vbios": "vbios_version",
    "arch": "compute_cap",  # last: older drivers do not know it, and refuse the whole question
}
_UNKNOWN = {"", "n/a", "[n/a]", "[not supported]", "[unknown error]", "[gpu requires reset]"}


def nvidia_gpus(machine: Machine) -> Probed:
    if machine.tool("nvidia-smi") is None:
        found = _nvidia_from_proc(machine)
        unseen = has_nvidia(machine) and not found
        return Probed(found, ("gpus: nvidia-smi is not installed",) if unseen else ())
    try:
        return Probed(_nvidia_rows(_ask_nvidia_smi(machine)))
    except GarbledError as garbled:
        return Probed(_nvidia_from_proc(machine), (f"gpus: {garbled}",))


def _ask_nvidia_smi(machine: Machine) -> ToolAnswer:
    for questions in ([*_QUESTIONS.values()], [*_QUESTIONS.values()][:-1]):
        wanted = f"--query-gpu={','.join(questions)}"
        answer = machine.ask("nvidia-smi", wanted, "--format=csv,noheader,nounits")
        if not answer.exit_code:
            break
    return answer


def _nvidia_rows(answer: ToolAnswer) -> list[JsonObject]:
    if answer.text == "No devices were found":
        return []
    if answer.problem:
        raise GarbledError(answer.problem)
    try:
        rows = [
            [cell.strip() for cell in row] for row in csv.reader(io.StringIO(answer.text)) if row
        ]
    except csv.Error:
        rows = []
    if not rows or any(len(row) < len(_QUESTIONS) - 1 or not row[0].isdecimal() for row in rows):
        raise GarbledError("nvidia-smi printed something that is not the table it was asked for")
    found = []
    for row in (dict(zip(_QUESTIONS, row, strict=False)) for row in rows):
        known: JsonObject = {key: cell for key, cell in row.items() if cell.lower() not in _UNKNOWN}
        known["index"] = int(row["index"])
        known["memory_mib"] = whole_number(row["memory_mib"])
        known["pci"] = row["pci"][-len("0000:00:00.0") :].lower()  # as the kernel writes it
        found.append(gpu_record(vendor="nvidia", source="nvidia-smi", **known))
    return found


def _nvidia_from_proc(machine: Machine) -> list[JsonObject]:
    files = machine.children("/proc/driver/nvidia/gpus", "*/information")
    return [
        gpu_record(
            vendor="nvidia",
            index=index,
            name=fields.get("Model"),
            uuid=fields.get("GPU UUID"),
            pci=file.parent.name,
            vbios=fields.get("Video BIOS"),
            source="/proc/driver/nvidia",
        )
        for index, file in enumerate(files)
        for fields in [pairs_in(read_text(file), ":")]
    ]


# -- AMD, whose GPUs sysfs shows without a tool


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
    pci = pairs_in(read_text(card / "device/uevent"), "=").get("PCI_SLOT_NAME")
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
        fields = dict(re.findall(r"^(\w+) (\d+)$", read_text(file) or "", re.MULTILINE))
        target = int(fields.get("gfx_target_version", 0))
        domain, place = int(fields.get("domain", 0)), int(fields.get("location_id", 0))
        pci = f"{domain:04x}:{place >> 8:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"
        if target:
            arches[pci] = f"gfx{target // 10000}{target // 100 % 100:x}{target % 100:x}"
    return arches


_HEALTH_TIMEOUT = 30.0
_USUAL_ROOT = "/opt/rocm"
_HIP_QUESTIONS = ("version", "platform", "compiler", "runtime", "cpp_config")


def rocm_root(machine: Machine) -> Path | None:
    """Where ROCm is installed: as the user says, in the usual place, or inside a Python wheel."""
    named = (machine.environ.get(name) for name in ("ROCM_PATH", "ROCM_HOME", "HIP_PATH"))
    places = [machine.path(place) for place in (*filter(None, named), _USUAL_ROOT)]
    wheel = importlib.util.find_spec("_rocm_sdk_core")
    places += [Path(place) for place in (wheel and wheel.submodule_search_locations) or ()]
    return next((place for place in places if place.is_dir()), None)


def rocm_expected(machine: Machine) -> bool:
    return has_amd(machine) or rocm_root(machine) is not None


def probe_rocm(machine: Machine) -> Probed:
    root = rocm_root(machine) or machine.path(_USUAL_ROOT)
    value: JsonObject = {
        "version": read_text(root / ".info/version"),
        "version_dev": read_text(root / ".info/version-dev"),
        "kmd_version": machine.text("/sys/module/amdgpu/version"),
    }
    return _expected(machine, "rocm", value)


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
    root = rocm_root(machine) or machine.path(_USUAL_ROOT)
    header = read_text(root / "include/hipblaslt/hipblaslt-version.h") or ""
    numbers = [
        _defined(f"HIPBLASLT_VERSION_{part}", header) for part in ("MAJOR", "MINOR", "PATCH")
    ]
    value: JsonObject = {
        "commit": _defined("HIPBLASLT_VERSION_TWEAK", header),
        "package_version": ".".join(filter(None, numbers)) or None,
        "lib_hash": _file_hash(root / "lib/libhipblaslt.so"),
        "tensile_yaml_revision": _names_hash(root / "lib/hipblaslt/library"),
    }
    found = _expected(machine, "hipblaslt", value)
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
        fields = json.loads(text)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        return Probed(None, ("system_health: the report of rdhc is not a JSON object",))
    return Probed(fields)


def _expected(machine: Machine, section: str, value: JsonObject) -> Probed:
    """Nulls are worth a line only where ROCm ought to be."""
    missing = missing_in(section, value, "not found in the ROCm installation")
    return Probed(value, missing if rocm_expected(machine) else ())


def _defined(name: str, header: str) -> str | None:
    found = re.search(rf"^#define\s+{name}\s+(\S+)", header, re.MULTILINE)
    return found[1] if found else None


def _file_hash(path: Path) -> str | None:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    except OSError:
        return None
    return f"sha256:{digest.hexdigest()}"


def _names_hash(folder: Path) -> str | None:
    """The kernel library is gigabytes; the names of its files change with every revision of it."""
    try:
        names = sorted(file.name for file in folder.iterdir())
    except OSError:
        return None
    return f"filenames-sha256:{hashlib.sha256(chr(10).join(names).encode()).hexdigest()}"
