"""Which platform is this: rocm, cuda or cpu? Decided from what the kernel shows, so it costs no
subprocess.
"""

from aorta.probe.machine import Machine
from aorta.probe.packages import probe_pytorch_build
from aorta.registry.mitigation import Platform


def platform_here(machine: Machine | None = None) -> Platform:
    """The platform of the usable devices; with both vendors, the one torch was built for."""
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
