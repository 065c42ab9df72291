"""The Python that runs, and the installed packages that decide what a training job does. Nothing is
imported.
"""

import importlib.util
import platform
import re
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from aorta.probe.machine import Machine, Probed, read_text
from aorta.scrub.vocabulary import words

_THAT_MATTER = words(
    """
    torch torchvision torchaudio torchrec torchtitan torchao triton pytorch-triton
    pytorch-triton-rocm fbgemm-gpu
    jax jaxlib jax-cuda12-plugin jax-cuda13-plugin jax-rocm7-plugin flax optax ml-dtypes
    accelerate apex bitsandbytes datasets deepspeed flash-attn lightning megatron-core peft
    pytorch-lightning safetensors sglang tensorflow tokenizers transformer-engine transformers
    trl vllm xformers amd-aiter
    mpi4py numba numpy ray scipy
    nvidia-cublas nvidia-cublas-cu12 nvidia-cuda-runtime nvidia-cuda-runtime-cu12
    nvidia-cudnn-cu12 nvidia-cudnn-cu13 nvidia-nccl-cu12 nvidia-nccl-cu13 nvidia-nvshmem-cu12
    rocm rocm-sdk-core
    """
)
"""PyTorch, JAX, training and serving, what lies underneath, vendor libraries as wheels."""


def probe_python(_machine: Machine) -> Probed:
    value = {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "compiler": platform.python_compiler(),
        "executable": sys.executable,
    }
    return Probed(value)


def probe_packages(_machine: Machine) -> Probed:
    """Version by name, of those that are installed."""
    found = ((name, version_of(name)) for name in sorted(_THAT_MATTER))
    return Probed({name: version for name, version in found if version})


def probe_other_packages(_machine: Machine) -> Probed:
    """The rest of what is installed, by the names of directories alone. What came from a directory
    or a repository and not from an index is left out: it cannot be installed from its name, and its
    name may be nobody else's business.
    """
    found: dict[str, str] = {}
    for place in dict.fromkeys(sys.path):
        with suppress(OSError):
            for entry in sorted(Path(place).glob("*.dist-info")):
                name, _, version = entry.name.removesuffix(".dist-info").partition("-")
                name = re.sub(r"[-_.]+", "-", name).lower()
                if (
                    version
                    and name not in _THAT_MATTER
                    and not (entry / "direct_url.json").exists()
                ):
                    found.setdefault(name, version)
    return Probed(dict(sorted(found.items())))


def probe_pytorch_version(_machine: Machine) -> Probed:
    """As torch says it: its metadata may leave out the +cu130 or +rocm7.0 of a build."""
    version = _assigned("__version__", _torch_says() or "") or version_of("torch")
    if version is None:
        return Probed(None, ("pytorch_version: torch is not installed for this Python",))
    return Probed(version)


def probe_pytorch_build(_machine: Machine) -> Probed:
    """What torch was built for."""
    text = _torch_says()
    if text is None:
        return Probed(None)
    return Probed({name: _assigned(name, text) for name in ("cuda", "hip", "git_version")})


def _torch_says() -> str | None:
    """The file in which torch describes its build; importing torch takes seconds."""
    spec = importlib.util.find_spec("torch") if version_of("torch") else None
    return read_text(Path(spec.origin).parent / "version.py") if spec and spec.origin else None


def version_of(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _assigned(name: str, text: str) -> str | None:
    found = re.search(rf"^{name}\b[^=\n]*=\s*'?([^'\n]*)'?", text, re.MULTILINE)
    return None if found is None or found[1] == "None" else found[1]
