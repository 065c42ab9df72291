"""The GPUs of a machine as options of a container engine; none unless they are asked for."""

from collections.abc import Iterator
from pathlib import Path

from aorta.core.errors import InfrastructureError
from aorta.runtimes.engine import Engine


def has_gpus(dev: Path = Path("/dev")) -> bool:
    return (dev / "nvidiactl").exists() or (dev / "kfd").exists()


def gpu_options(count: int, engine: Engine, dev: Path = Path("/dev")) -> tuple[str, ...]:
    """Every GPU of the machine; the slot's own are chosen by the *_VISIBLE_DEVICES among the trial's variables."""
    if count == 0:
        return ()
    if (dev / "nvidiactl").exists():
        return engine.nvidia
    if (dev / "kfd").exists():
        return tuple(_amd(dev))
    raise InfrastructureError(
        f"the trial asks for {count} GPUs and this machine has neither {dev / 'nvidiactl'} nor "
        f"{dev / 'kfd'}; ask for none, or load the GPU's driver"
    )


def _amd(dev: Path) -> Iterator[str]:
    """The nodes, and the groups that own them by number: an image need not know their names."""
    yield f"--device={dev / 'kfd'}"
    yield f"--device={dev / 'dri'}"
    nodes = [dev / "kfd", *(dev / "dri").glob("renderD*")]
    yield from (f"--group-add={group}" for group in sorted({node.stat().st_gid for node in nodes}))
