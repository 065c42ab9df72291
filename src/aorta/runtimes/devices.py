"""The GPUs of a machine: which of them a trial sees, and how a container engine lets them in."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from aorta.core.errors import InfrastructureError
from aorta.runtimes.engine import ContainerEngine

_DEV = Path("/dev")
_LETTING_IN = frozenset({"--gpus", "--device"})


def has_gpus(dev: Path = _DEV) -> bool:
    return (dev / "nvidiactl").exists() or _is_amd(dev)


def shown_devices(devices: Sequence[str], dev: Path = _DEV) -> dict[str, str]:
    """The variables with which a trial sees these devices alone.

    On AMD two layers choose one after the other: HIP counts anew what ROCr has left to it.
    """
    chosen = ",".join(devices)
    left = ",".join(str(index) for index in range(len(devices))) if _is_amd(dev) else chosen
    return {
        "CUDA_VISIBLE_DEVICES": left,
        "HIP_VISIBLE_DEVICES": left,
        "ROCR_VISIBLE_DEVICES": chosen,
    }


def visible_devices(found: Sequence[str], dev: Path = _DEV) -> list[str]:
    """The devices that this process was given, as `shown_devices` takes them; else all."""
    of_rocr, of_cuda = _given("ROCR_VISIBLE_DEVICES"), _given("CUDA_VISIBLE_DEVICES")
    left = of_cuda if of_cuda is not None else _given("HIP_VISIBLE_DEVICES")
    if left is None:
        return list(found) if of_rocr is None else of_rocr
    if of_rocr is None or not _is_amd(dev):
        return left
    return [of_rocr[int(n)] for n in left if n.isdigit() and int(n) < len(of_rocr)]


def _given(variable: str) -> list[str] | None:
    words = os.environ.get(variable)
    return None if words is None else [word.strip() for word in words.split(",") if word.strip()]


def names_devices(options: Sequence[str]) -> bool:
    """Whether somebody chose by hand, in the engine's own words, what is let in."""
    return any(option.partition("=")[0] in _LETTING_IN for option in options)


def gpu_options(count: int, engine: ContainerEngine, dev: Path = _DEV) -> tuple[str, ...]:
    """Every GPU of the machine; the *_VISIBLE_DEVICES of the trial choose the slot's own."""
    if count == 0:
        return ()
    if (dev / "nvidiactl").exists():
        return engine.nvidia
    if _is_amd(dev):
        return tuple(_amd(dev))
    raise InfrastructureError(
        f"the trial asks for {count} GPUs and this machine has neither {dev / 'nvidiactl'} nor "
        f"{dev / 'kfd'}; ask for none, or load the GPU's driver"
    )


def _is_amd(dev: Path) -> bool:
    return (dev / "kfd").exists()


def _amd(dev: Path) -> Iterator[str]:
    """The nodes, and the groups that own them by number: an image need not know their names."""
    yield f"--device={dev / 'kfd'}"
    yield f"--device={dev / 'dri'}"
    nodes = [dev / "kfd", *(dev / "dri").glob("renderD*")]
    yield from (f"--group-add={group}" for group in sorted({node.stat().st_gid for node in nodes}))
