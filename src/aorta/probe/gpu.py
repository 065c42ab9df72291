"""The record of one GPU. Every GPU has every key; null is unknown. Only what stays the same: no clocks, no free memory."""

from aorta.probe.finding import JsonObject

_KEYS = (
    "vendor",
    "index",
    "name",
    "uuid",
    "pci",
    "memory_mib",
    "arch",
    "driver",
    "vbios",
    "source",
)


def gpu_record(**known: object) -> JsonObject:
    return {key: known.get(key) for key in _KEYS}


def whole_number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


class GarbledError(Exception):
    """A vendor's tool failed, or said something that cannot be read."""
