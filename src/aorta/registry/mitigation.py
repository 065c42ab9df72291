"""What a mitigation is, when it cannot do anything, and the built-in ones.

A mitigation is a few environment variables. Each built-in says who reads them, where, and the value
when not set: a cell whose variable nobody reads is a second baseline under another name. Flags that
only one workload reads belong into a plugin or a sidecar. Standard library only: the probe reads
this table inside containers.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

Platform = Literal["rocm", "cuda", "cpu"]

EVERYWHERE: tuple[Platform, ...] = ("rocm", "cuda", "cpu")
PLATFORMS_OF: Mapping[str, tuple[Platform, ...]] = {
    "any": EVERYWHERE,
    "gpu": ("rocm", "cuda"),
    "rocm": ("rocm",),
    "cuda": ("cuda",),
}

UNKNOWN_FAILURE = "unknown"

_OF_CODE = "nan segfault abort illegal_access device_assert assertion user_exception unknown"
FAILURES_OF: Mapping[str, tuple[str, ...]] = {
    change: tuple(classes.split())
    for change, classes in {
        "nothing": "",
        # how exact a number is
        "precision": "nan",
        # what runs beside what, and in which order: races show as anything
        "timing": f"{_OF_CODE} data_error hang collective_timeout killed",
        # which code does the arithmetic
        "kernels": _OF_CODE,
        "collectives": "nan hang collective_timeout network_loss link_fault rendezvous_error "
        "illegal_access segfault abort",
        "memory": "device_oom host_oom illegal_access segfault nan",
    }.items()
}
"""Names of failure classes (see `aorta attribute`), by what a variable changes."""


@dataclass(frozen=True)
class VariableReader:
    """Who reads a variable, on which platforms, and its value when it is not set."""

    by: str
    on: tuple[Platform, ...]
    default: str | None = None


@dataclass(frozen=True)
class Mitigation:
    """A named set of variables. One from a plugin or a sidecar names no readers."""

    name: str
    env: Mapping[str, str]
    source: str = "aorta"
    readers: Mapping[str, VariableReader] = field(default_factory=dict)
    what: str = ""
    # Failure classes that it may cure; None: nothing is known about it, so any.
    cures: tuple[str, ...] | None = None

    def may_cure(self, failure_class: str) -> bool:
        return self.cures is None or failure_class in self.cures

    @property
    def platforms(self) -> tuple[Platform, ...]:
        """Where at least one of its variables is read; without readers, everywhere."""
        if not self.readers:
            return EVERYWHERE
        there = {place for reader in self.readers.values() for place in reader.on}
        return tuple(place for place in EVERYWHERE if place in there)


def why_inert(
    mitigation: Mitigation, platform: Platform, current_env: Mapping[str, str]
) -> str | None:
    """Why this mitigation cannot change the baseline's `current_env` here, or None. What a library
    reads and then refuses is not seen.
    """
    if not mitigation.env:
        return "it sets no variable"
    unread = {name for name, reader in mitigation.readers.items() if platform not in reader.on}
    acting = [name for name in mitigation.env if name not in unread]
    if not acting:
        names, elsewhere = " and ".join(sorted(mitigation.env)), ", ".join(mitigation.platforms)
        where = f"only on {elsewhere}" if elsewhere else "nor anywhere"
        return f"no library reads {names} on {platform} ({where})"
    defaults = {name: reader.default for name, reader in mitigation.readers.items()}
    assumed = {**defaults, **current_env}
    if all(assumed.get(name) == mitigation.env[name] for name in acting):
        verb = "has" if len(acting) == 1 else "have"
        return f"{' and '.join(sorted(acting))} already {verb} this value here"
    return None


# -- the built-in ones

# NAME (what it changes): in words; then, a line each, VARIABLE=VALUE [default] platforms: reader.
_TABLE = """
none (nothing): nothing: the baseline
# Measured on an H200 under torch 2.11 that asked for TF32 everywhere, largest error against
# float64: matmul 5e-2 -> 2e-4 and conv2d 4e-2 -> 1e-4 (NVIDIA_TF32_OVERRIDE beats the program),
# tl.dot 2e-2 -> 1e-5 (TRITON_F32_DEFAULT, where the kernel leaves the precision open; one that
# names TF32 itself keeps it). On ROCm hipBLASLt obeys its own variable, and older PyTorch asks
# HIPBLASLT_ALLOW_TF32 first. NVIDIA's container images set TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1,
# which 0 takes back.
tf32_off (precision): float32 matrix products and convolutions in full precision
  NVIDIA_TF32_OVERRIDE=0 [-] cuda: cuBLAS and cuDNN
  HIPBLASLT_OVERRIDE_COMPUTE_TYPE_XF32=0 [-1] rocm: hipBLASLt
  HIPBLASLT_ALLOW_TF32=0 [0] rocm: PyTorch for ROCm, 2.5 on
  TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=0 [0] gpu: PyTorch
  TRITON_F32_DEFAULT=ieee [-] gpu: Triton
# ROCm: the HSA and HIP runtimes
xnack (memory): page faults on the GPU are retried: memory moves on demand
  HSA_XNACK=1 [-] rocm: the HSA runtime (ROCr)
gpu_max_hw_queues_2 (timing): streams share two hardware queues
  GPU_MAX_HW_QUEUES=2 [4] rocm: the HIP runtime (CLR)
debug_hip_dynamic_queues_1 (timing): hardware queues are given to streams as they need them
  DEBUG_HIP_DYNAMIC_QUEUES=1 [-] rocm: the HIP runtime (CLR)
debug_hip_dynamic_queues_2 (timing): the second mode of dynamic hardware queues; releases where \
it is a switch read 2 as on
  DEBUG_HIP_DYNAMIC_QUEUES=2 [-] rocm: the HIP runtime (CLR)
roc_aql_queue_size_1024 (timing): a short queue of packets: the host waits for the GPU earlier
  ROC_AQL_QUEUE_SIZE=1024 [16384] rocm: the HIP runtime (CLR)
hsa_no_sdma (timing): copies by shader kernels, not by the DMA engines
  HSA_ENABLE_SDMA=0 [1] rocm: the HSA runtime (ROCr)
hsa_no_scratch_reclaim (memory): scratch memory stays with the kernel that had it
  HSA_NO_SCRATCH_RECLAIM=1 [0] rocm: the HSA runtime (ROCr)
hsa_disable_cache (timing): GPU memory is mapped without caching
  HSA_DISABLE_CACHE=1 [0] rocm: the HSA runtime (ROCr)
hsa_enable_cache (timing): GPU memory is mapped with caching, against an image that turned it off
  HSA_DISABLE_CACHE=0 [0] rocm: the HSA runtime (ROCr)
roc_signal_pool_16k (timing): so many signals are made at the start that none is recycled early
  ROC_SIGNAL_POOL_SIZE=16384 [64] rocm: the HIP runtime (CLR)
gpu_force_blit_copy_128 (timing): copies up to 128 KB by kernels
  GPU_FORCE_BLIT_COPY_SIZE=128 [16] rocm: the HIP runtime (CLR)
debug_clr_no_batch_cpu_sync (timing): every synchronisation waits on the CPU, whatever the size \
of the batch
  DEBUG_CLR_BATCH_CPU_SYNC_SIZE=0 [8] rocm: the HIP runtime (CLR)
hip_launch_blocking (timing): every kernel launch waits for the kernel
  HIP_LAUNCH_BLOCKING=1 [0] rocm: the HIP runtime (CLR)
amd_serialize_kernel_3 (timing): waits before and after every kernel: the fault is raised by \
the kernel that made it
  AMD_SERIALIZE_KERNEL=3 [0] rocm: the HIP runtime (CLR)
amd_log_level_4 (nothing): the HIP runtime logs everything to stderr; slow, and known to hide races
  AMD_LOG_LEVEL=4 [0] rocm: the HIP runtime (CLR)
# The older name is read by no current library; it is set so that older releases of RCCL are
# served too.
rccl_gfx942_cheap_fence_off (collectives): full memory fences in collectives
  RCCL_GFX9_CHEAP_FENCE_OFF=1 [0] rocm: RCCL
  RCCL_GFX942_CHEAP_FENCE_OFF=1 [0] rocm: RCCL before RCCL_GFX9_CHEAP_FENCE_OFF; no library since
fa_prefer_ck (kernels): flash attention from Composable Kernel
  TORCH_ROCM_FA_PREFER_CK=1 [0] rocm: PyTorch for ROCm
fa_prefer_aotriton (kernels): flash attention from AOTriton, against an image that prefers \
Composable Kernel
  TORCH_ROCM_FA_PREFER_CK=0 [0] rocm: PyTorch for ROCm
# CUDA
cuda_launch_blocking (timing): every kernel launch waits for the kernel
  CUDA_LAUNCH_BLOCKING=1 [0] cuda: the CUDA driver
cuda_device_max_connections_1 (timing): streams share one hardware queue: kernels start in the \
order they were issued
  CUDA_DEVICE_MAX_CONNECTIONS=1 [8] cuda: the CUDA driver
cuda_module_loading_eager (timing): every kernel is loaded at the start, none in the middle of \
the work
  CUDA_MODULE_LOADING=EAGER [LAZY] cuda: the CUDA driver
cublas_deterministic_workspace (timing): cuBLAS workspaces of fixed size: the same bits on \
every run
  CUBLAS_WORKSPACE_CONFIG=:4096:8 [-] cuda: cuBLAS; PyTorch
# Collectives, both vendors
nccl_launch_order_implicit (collectives): communicators launch in the order the host issued \
them; has crashed some releases
  NCCL_LAUNCH_ORDER_IMPLICIT=1 [0] gpu: NCCL 2.26 on; RCCL
nccl_p2p_off (collectives): no direct copies between GPUs: through host memory instead
  NCCL_P2P_DISABLE=1 [0] gpu: NCCL; RCCL
nccl_shm_off (collectives): no shared memory between the processes of a host: through the \
network instead
  NCCL_SHM_DISABLE=1 [0] gpu: NCCL; RCCL
nccl_ib_off (collectives): no InfiniBand or RoCE: plain sockets
  NCCL_IB_DISABLE=1 [0] gpu: NCCL; RCCL
nccl_algo_ring (collectives): ring algorithms only: one order of summation
  NCCL_ALGO=Ring [-] gpu: NCCL; RCCL
nccl_proto_simple (collectives): the Simple protocol only: no flags inside the data
  NCCL_PROTO=Simple [-] gpu: NCCL; RCCL
nccl_nvls_off (collectives): no reductions inside NVSwitch
  NCCL_NVLS_ENABLE=0 [-] cuda: NCCL
torch_nccl_blocking_wait (collectives): a collective is waited for on the host, and a time-out \
is raised where it happens
  TORCH_NCCL_BLOCKING_WAIT=1 [0] gpu: PyTorch's NCCL process group
# PyTorch on any GPU
pytorch_no_cuda_memory_caching (memory): every tensor is allocated and freed by the driver: use \
after free shows
  PYTORCH_NO_CUDA_MEMORY_CACHING=1 [-] gpu: PyTorch
pytorch_alloc_expandable_segments (memory): growing memory segments: less fragmentation; some \
builds for ROCm refuse it
  PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True [-] gpu: PyTorch
# PyTorch on any platform
torch_compile_off (kernels): torch.compile does nothing: eager execution
  TORCH_COMPILE_DISABLE=1 [0] any: PyTorch
# CPU libraries, which every job has
omp_one_thread (timing): one thread for each parallel loop on the CPU
  OMP_NUM_THREADS=1 [-] any: the OpenMP runtime; PyTorch
  MKL_NUM_THREADS=1 [-] any: MKL; PyTorch
mkl_reproducible (kernels): MKL takes one code path on every CPU: the same bits everywhere
  MKL_CBWR=COMPATIBLE [-] any: MKL
onednn_max_isa_avx2 (kernels): oneDNN uses no instruction newer than AVX2: no AVX-512, no AMX
  ONEDNN_MAX_CPU_ISA=AVX2 [-] any: oneDNN
onednn_strict_fpmath (precision): oneDNN keeps float32 as float32
  ONEDNN_DEFAULT_FPMATH_MODE=STRICT [STRICT] any: oneDNN
aten_no_vectors (kernels): PyTorch's own CPU kernels without vector instructions
  ATEN_CPU_CAPABILITY=default [-] any: PyTorch
"""
_HEAD = re.compile(r"(?P<name>\w+) \((?P<changes>\w+)\): (?P<what>.+)")
_VARIABLE = re.compile(
    r"  (?P<name>\w+)=(?P<value>\S+) \[(?:-|(?P<default>[^\]]+))\] (?P<on>\w+): (?P<by>.+)"
)


def _entries() -> list[Mitigation]:
    found: list[Mitigation] = []
    for line in _TABLE.splitlines():
        if head := _HEAD.fullmatch(line):
            cures = FAILURES_OF[head["changes"]]
            found.append(Mitigation(head["name"], {}, readers={}, what=head["what"], cures=cures))
        elif row := _VARIABLE.fullmatch(line):
            reader = VariableReader(row["by"], PLATFORMS_OF[row["on"]], row["default"])
            last = found[-1]
            env = {**last.env, row["name"]: row["value"]}
            found[-1] = replace(last, env=env, readers={**last.readers, row["name"]: reader})
    return found


BUILTIN_MITIGATIONS: tuple[Mitigation, ...] = tuple(_entries())
