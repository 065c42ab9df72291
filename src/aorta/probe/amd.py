"""AMD's GPUs: from sysfs, which needs no tool, with market names from amd-smi or rocm-smi where one is installed."""

import json
import re
from pathlib import Path

from aorta.probe.finding import Finding, JsonObject
from aorta.probe.gpu import gpu_record, whole_number
from aorta.probe.machine import Machine, read_text
from aorta.probe.platform import has_amd


def amd_gpus(machine: Machine) -> Finding:
    devices = _amd_from_sysfs(machine)
    if not devices and not has_amd(machine):
        return Finding([])
    names, missing = _amd_names(machine)
    for device in devices:
        device["name"] = device["name"] or names.get(str(device["pci"]).lower())
    if not devices:
        missing += ("gpus: the compute driver of AMD is loaded, but sysfs shows no GPU of it",)
    return Finding(devices, missing)


def _amd_from_sysfs(machine: Machine) -> list[JsonObject]:
    cards = [
        card
        for card in machine.children("/sys/class/drm", "card[0-9]*")
        if card.name[4:].isdigit() and read_text(card / "device/vendor") == "0x1002"
    ]
    arches = _kfd_arches(machine)
    driver = machine.text("/sys/module/amdgpu/version")
    devices = [_amd_gpu(card, arches, driver) for card in cards]
    devices.sort(key=lambda device: str(device["pci"]))
    return [{**device, "index": index} for index, device in enumerate(devices)]


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


def _amd_names(machine: Machine) -> tuple[dict[str, str], tuple[str, ...]]:
    """Market names by PCI address; neither tool being installed is no fault, one that fails is."""
    for tool, arguments, read in (
        ("amd-smi", ("static", "--asic", "--bus", "--json"), _names_of_amd_smi),
        ("rocm-smi", ("--showproductname", "--showbus", "--json"), _names_of_rocm_smi),
    ):
        if machine.tool(tool) is None:
            continue
        answer = machine.ask(tool, *arguments)
        if answer.problem:
            return {}, (f"gpus: {answer.problem}",)
        try:
            return read(json.loads(answer.text)), ()
        except (ValueError, KeyError, TypeError, AttributeError):
            return {}, (f"gpus: {tool} printed something that is not the JSON it was asked for",)
    return {}, ()


def _names_of_amd_smi(said: object) -> dict[str, str]:
    rows = said["gpu_data"] if isinstance(said, dict) else said
    if not isinstance(rows, list):
        raise TypeError
    return {row["bus"]["bdf"].lower(): row["asic"]["market_name"] for row in rows}


def _names_of_rocm_smi(said: object) -> dict[str, str]:
    if not isinstance(said, dict):
        raise TypeError
    cards = (card for name, card in said.items() if name.startswith("card"))
    return {
        card["PCI Bus"].lower(): card.get("Card Series") or card["Card series"] for card in cards
    }
