"""NVIDIA: driver, toolkit and GPUs. On a machine without them all of it is null or empty, and no
fault.
"""

import csv
import io
import json
import re
from pathlib import Path

from aorta.probe.machine import (
    GarbledError,
    JsonObject,
    Machine,
    Probed,
    ToolAnswer,
    gpu_record,
    read_text,
    whole_number,
)
from aorta.probe.platform import has_nvidia


def probe_cuda(machine: Machine) -> Probed:
    value: JsonObject = {
        "driver_version": _driver_version(machine),
        "toolkit_version": _toolkit_version(machine),
    }
    return Probed(value)


def _driver_version(machine: Machine) -> str | None:
    text = machine.text("/proc/driver/nvidia/version") or ""
    found = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", text)
    return found[1] if found else None


def _toolkit_version(machine: Machine) -> str | None:
    """As the toolkit says; else from the name of its directory."""
    root = machine.environ.get("CUDA_HOME") or machine.environ.get("CUDA_PATH") or "/usr/local/cuda"
    try:
        said = json.loads(machine.text(f"{root}/version.json") or "null")
        return str(said["cuda"]["version"])
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
    "arch": "compute_cap",  # older drivers do not know it, and refuse the whole question
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
    answer = _query(machine, [*_QUESTIONS.values()])
    if answer.exit_code:
        return _query(machine, [asked for asked in _QUESTIONS.values() if asked != "compute_cap"])
    return answer


def _query(machine: Machine, questions: list[str]) -> ToolAnswer:
    wanted = f"--query-gpu={','.join(questions)}"
    return machine.ask("nvidia-smi", wanted, "--format=csv,noheader,nounits")


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
    return [_nvidia_gpu(dict(zip(_QUESTIONS, row, strict=False))) for row in rows]


def _nvidia_gpu(row: dict[str, str]) -> JsonObject:
    known: JsonObject = {key: cell for key, cell in row.items() if cell.lower() not in _UNKNOWN}
    known["index"] = int(row["index"])
    known["memory_mib"] = whole_number(row["memory_mib"])
    known["pci"] = row["pci"][-len("0000:00:00.0") :].lower()  # as the kernel writes it
    return gpu_record(vendor="nvidia", source="nvidia-smi", **known)


def _nvidia_from_proc(machine: Machine) -> list[JsonObject]:
    files = machine.children("/proc/driver/nvidia/gpus", "*/information")
    return [_nvidia_from_information(index, file) for index, file in enumerate(files)]


def _nvidia_from_information(index: int, file: Path) -> JsonObject:
    pairs = (line.split(":", 1) for line in (read_text(file) or "").splitlines() if ":" in line)
    said = {key.strip(): value.strip() for key, value in pairs}
    return gpu_record(
        vendor="nvidia",
        index=index,
        name=said.get("Model"),
        uuid=said.get("GPU UUID"),
        pci=file.parent.name,
        vbios=said.get("Video BIOS"),
        source="/proc/driver/nvidia",
    )
