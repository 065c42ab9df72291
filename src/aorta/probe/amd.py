"""AMD's GPUs: from sysfs, which needs no tool, filled up from amd-smi or rocm-smi where one is installed."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aorta.probe.machine import (
    GarbledError,
    JsonObject,
    Machine,
    Probed,
    gpu_record,
    read_text,
    whole_number,
)
from aorta.probe.platform import has_amd


def amd_gpus(machine: Machine) -> Probed:
    from_kernel = _from_sysfs(machine)
    try:
        devices = _merged(from_kernel, _from_tool(machine))
    except GarbledError as garbled:
        return Probed(_merged(from_kernel, []), (f"gpus: {garbled}",))
    if has_amd(machine) and not devices:
        return Probed([], ("gpus: the compute driver of AMD is loaded, but shows no GPU",))
    return Probed(devices)


def _merged(from_kernel: list[JsonObject], from_tool: list[JsonObject]) -> list[JsonObject]:
    """One record a PCI address, in that order; the kernel's word before the tool's."""
    by_address: dict[str, JsonObject] = {}
    for device in (*from_kernel, *from_tool):
        known = by_address.setdefault(str(device["pci"]).lower(), device)
        for key, value in device.items():
            known[key] = value if known[key] is None else known[key]
    ordered = sorted(by_address.items())
    return [{**device, "index": index} for index, (_, device) in enumerate(ordered)]


def _from_sysfs(machine: Machine) -> list[JsonObject]:
    cards = [
        card
        for card in machine.children("/sys/class/drm", "card[0-9]*")
        if card.name[4:].isdigit() and read_text(card / "device/vendor") == "0x1002"
    ]
    arches = _kfd_arches(machine)
    driver = machine.text("/sys/module/amdgpu/version")
    return [_amd_gpu(card, arches, driver) for card in cards]


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


def _from_tool(machine: Machine) -> list[JsonObject]:
    """What the first installed tool says; that neither is installed is no fault, that one fails is."""
    for tool, (arguments, read) in _TOOLS.items():
        if machine.tool(tool):
            answer = machine.ask(tool, *arguments)
            if answer.problem:
                raise GarbledError(answer.problem)
            try:
                return read(json.loads(answer.text))
            except (ValueError, TypeError):
                raise GarbledError(
                    f"{tool} printed something that is not the JSON it was asked for"
                ) from None
    return []


def _amd_smi_gpus(said: object) -> list[JsonObject]:
    rows = said.get("gpu_data") if isinstance(said, dict) else said
    if not isinstance(rows, list):
        raise TypeError
    return [
        gpu_record(
            vendor="amd",
            name=_text_at(row, "asic", "market_name"),
            pci=_text_at(row, "bus", "bdf"),
            memory_mib=whole_number(_text_at(row, "vram", "size", "value")),
            arch=_text_at(row, "asic", "target_graphics_version"),
            driver=_text_at(row, "driver", "version"),
            vbios=_text_at(row, "vbios", "version"),
            source="amd-smi",
        )
        for row in rows
    ]


def _rocm_smi_gpus(said: object) -> list[JsonObject]:
    if not isinstance(said, dict):
        raise TypeError
    cards = [card for name, card in sorted(said.items()) if name.startswith("card")]
    return [_rocm_smi_gpu(card) for card in cards]


def _rocm_smi_gpu(card: object) -> JsonObject:
    memory = whole_number(_text_at(card, "VRAM Total Memory (B)"))
    return gpu_record(
        vendor="amd",
        name=_text_at(card, "Card Series") or _text_at(card, "Card series"),
        pci=_text_at(card, "PCI Bus"),
        memory_mib=None if memory is None else memory >> 20,
        arch=_text_at(card, "GFX Version"),
        source="rocm-smi",
    )


_TOOLS: Mapping[str, tuple[tuple[str, ...], Callable[[object], list[JsonObject]]]] = {
    "amd-smi": (("static", "--json"), _amd_smi_gpus),
    "rocm-smi": (
        ("--showproductname", "--showbus", "--showmeminfo", "vram", "--json"),
        _rocm_smi_gpus,
    ),
}


def _text_at(row: Any, *keys: str) -> str | None:
    """The text or number behind the keys; the tools leave out, or mark N/A, what they do not know."""
    for key in keys:
        row = row.get(key) if isinstance(row, dict) else None
    return None if row in (None, "", "N/A") or isinstance(row, (dict, list)) else str(row)
