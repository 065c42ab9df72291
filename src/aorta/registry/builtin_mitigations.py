"""The built-in mitigations, as data: one entry a mitigation, saying who reads each variable.

A variable earns its place by being read by a runtime or a library, with the same effect on any
workload; flags that only one workload reads belong into a plugin or a sidecar. Imports the standard
library alone: the probe reads this table inside containers that have nothing else.
"""

from aorta.registry.mitigation import (
    COLLECTIVES,
    CUDA,
    EVERYWHERE,
    GPU,
    KERNELS,
    MEMORY,
    NO_FAILURE,
    PRECISION,
    ROCM,
    TIMING,
    Mitigation,
    VariableReader,
)

_HIP = "the HIP runtime (CLR)"
_HSA = "the HSA runtime (ROCr)"
_COLLECTIVES = "NCCL; RCCL"
_TORCH = "PyTorch"
_TORCH_NCCL = "PyTorch's NCCL process group"
_ONEDNN = "oneDNN"
_OPENMP = "the OpenMP runtime"

_Row = tuple[str, str, VariableReader]  # variable, value, who reads it


def _entry(name: str, what: str, cures: tuple[str, ...], *rows: _Row) -> Mitigation:
    return Mitigation(
        name=name,
        env={variable: value for variable, value, _ in rows},
        readers={variable: reader for variable, _, reader in rows},
        what=what,
        cures=cures,
    )


BUILTIN_MITIGATIONS: tuple[Mitigation, ...] = (
    _entry("none", "nothing: the baseline", NO_FAILURE),
    # Measured on an H200 under torch 2.11 that asked for TF32 everywhere, largest error against
    # float64: matmul 5e-2 -> 2e-4 and conv2d 4e-2 -> 1e-4 (NVIDIA_TF32_OVERRIDE beats the program),
    # tl.dot 2e-2 -> 1e-5 (TRITON_F32_DEFAULT, where the kernel leaves the precision open; one that
    # names TF32 itself keeps it). On ROCm hipBLASLt obeys its own variable, and older PyTorch asks
    # HIPBLASLT_ALLOW_TF32 first. NVIDIA's container images set TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1,
    # which 0 takes back.
    _entry(
        "tf32_off",
        "float32 matrix products and convolutions in full precision",
        PRECISION,
        ("NVIDIA_TF32_OVERRIDE", "0", VariableReader("cuBLAS and cuDNN", CUDA)),
        (
            "HIPBLASLT_OVERRIDE_COMPUTE_TYPE_XF32",
            "0",
            VariableReader("hipBLASLt", ROCM, default="-1"),
        ),
        (
            "HIPBLASLT_ALLOW_TF32",
            "0",
            VariableReader("PyTorch for ROCm, 2.5 on", ROCM, default="0"),
        ),
        ("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "0", VariableReader(_TORCH, GPU, default="0")),
        ("TRITON_F32_DEFAULT", "ieee", VariableReader("Triton", GPU)),
    ),
    # ROCm: the HSA and HIP runtimes
    _entry(
        "xnack",
        "page faults on the GPU are retried: memory moves on demand",
        MEMORY,
        ("HSA_XNACK", "1", VariableReader(_HSA, ROCM)),
    ),
    _entry(
        "gpu_max_hw_queues_2",
        "streams share two hardware queues",
        TIMING,
        ("GPU_MAX_HW_QUEUES", "2", VariableReader(_HIP, ROCM, default="4")),
    ),
    _entry(
        "debug_hip_dynamic_queues_1",
        "hardware queues are given to streams as they need them",
        TIMING,
        ("DEBUG_HIP_DYNAMIC_QUEUES", "1", VariableReader(_HIP, ROCM)),
    ),
    _entry(
        "debug_hip_dynamic_queues_2",
        "the second mode of dynamic hardware queues; releases where it is a switch read 2 as on",
        TIMING,
        ("DEBUG_HIP_DYNAMIC_QUEUES", "2", VariableReader(_HIP, ROCM)),
    ),
    _entry(
        "roc_aql_queue_size_1024",
        "a short queue of packets: the host waits for the GPU earlier",
        TIMING,
        ("ROC_AQL_QUEUE_SIZE", "1024", VariableReader(_HIP, ROCM, default="16384")),
    ),
    _entry(
        "hsa_no_sdma",
        "copies by shader kernels, not by the DMA engines",
        TIMING,
        ("HSA_ENABLE_SDMA", "0", VariableReader(_HSA, ROCM, default="1")),
    ),
    _entry(
        "hsa_no_scratch_reclaim",
        "scratch memory stays with the kernel that had it",
        MEMORY,
        ("HSA_NO_SCRATCH_RECLAIM", "1", VariableReader(_HSA, ROCM, default="0")),
    ),
    _entry(
        "hsa_disable_cache",
        "GPU memory is mapped without caching",
        TIMING,
        ("HSA_DISABLE_CACHE", "1", VariableReader(_HSA, ROCM, default="0")),
    ),
    _entry(
        "hsa_enable_cache",
        "GPU memory is mapped with caching, against an image that turned it off",
        TIMING,
        ("HSA_DISABLE_CACHE", "0", VariableReader(_HSA, ROCM, default="0")),
    ),
    _entry(
        "roc_signal_pool_16k",
        "so many signals are made at the start that none is recycled early",
        TIMING,
        ("ROC_SIGNAL_POOL_SIZE", "16384", VariableReader(_HIP, ROCM, default="64")),
    ),
    _entry(
        "gpu_force_blit_copy_128",
        "copies up to 128 KB by kernels",
        TIMING,
        ("GPU_FORCE_BLIT_COPY_SIZE", "128", VariableReader(_HIP, ROCM, default="16")),
    ),
    _entry(
        "debug_clr_no_batch_cpu_sync",
        "every synchronisation waits on the CPU, whatever the size of the batch",
        TIMING,
        ("DEBUG_CLR_BATCH_CPU_SYNC_SIZE", "0", VariableReader(_HIP, ROCM, default="8")),
    ),
    _entry(
        "hip_launch_blocking",
        "every kernel launch waits for the kernel",
        TIMING,
        ("HIP_LAUNCH_BLOCKING", "1", VariableReader(_HIP, ROCM, default="0")),
    ),
    _entry(
        "amd_serialize_kernel_3",
        "waits before and after every kernel: the fault is raised by the kernel that made it",
        TIMING,
        ("AMD_SERIALIZE_KERNEL", "3", VariableReader(_HIP, ROCM, default="0")),
    ),
    _entry(
        "amd_log_level_4",
        "the HIP runtime logs everything to stderr; slow, and known to hide races",
        NO_FAILURE,
        ("AMD_LOG_LEVEL", "4", VariableReader(_HIP, ROCM, default="0")),
    ),
    # The older name is read by no current library; it is set so that older releases of RCCL are
    # served too.
    _entry(
        "rccl_gfx942_cheap_fence_off",
        "full memory fences in collectives",
        COLLECTIVES,
        ("RCCL_GFX9_CHEAP_FENCE_OFF", "1", VariableReader("RCCL", ROCM, default="0")),
        (
            "RCCL_GFX942_CHEAP_FENCE_OFF",
            "1",
            VariableReader(
                "RCCL before RCCL_GFX9_CHEAP_FENCE_OFF; no library since", ROCM, default="0"
            ),
        ),
    ),
    _entry(
        "fa_prefer_ck",
        "flash attention from Composable Kernel",
        KERNELS,
        ("TORCH_ROCM_FA_PREFER_CK", "1", VariableReader("PyTorch for ROCm", ROCM, default="0")),
    ),
    _entry(
        "fa_prefer_aotriton",
        "flash attention from AOTriton, against an image that prefers Composable Kernel",
        KERNELS,
        ("TORCH_ROCM_FA_PREFER_CK", "0", VariableReader("PyTorch for ROCm", ROCM, default="0")),
    ),
    # CUDA
    _entry(
        "cuda_launch_blocking",
        "every kernel launch waits for the kernel",
        TIMING,
        ("CUDA_LAUNCH_BLOCKING", "1", VariableReader("the CUDA driver", CUDA, default="0")),
    ),
    _entry(
        "cuda_device_max_connections_1",
        "streams share one hardware queue: kernels start in the order they were issued",
        TIMING,
        ("CUDA_DEVICE_MAX_CONNECTIONS", "1", VariableReader("the CUDA driver", CUDA, default="8")),
    ),
    _entry(
        "cuda_module_loading_eager",
        "every kernel is loaded at the start, none in the middle of the work",
        TIMING,
        ("CUDA_MODULE_LOADING", "EAGER", VariableReader("the CUDA driver", CUDA, default="LAZY")),
    ),
    _entry(
        "cublas_deterministic_workspace",
        "cuBLAS workspaces of fixed size: the same bits on every run",
        TIMING,
        ("CUBLAS_WORKSPACE_CONFIG", ":4096:8", VariableReader("cuBLAS; PyTorch", CUDA)),
    ),
    # Collectives, both vendors
    _entry(
        "nccl_launch_order_implicit",
        "communicators launch in the order the host issued them; has crashed some releases",
        COLLECTIVES,
        ("NCCL_LAUNCH_ORDER_IMPLICIT", "1", VariableReader("NCCL 2.26 on; RCCL", GPU, default="0")),
    ),
    _entry(
        "nccl_p2p_off",
        "no direct copies between GPUs: through host memory instead",
        COLLECTIVES,
        ("NCCL_P2P_DISABLE", "1", VariableReader(_COLLECTIVES, GPU, default="0")),
    ),
    _entry(
        "nccl_shm_off",
        "no shared memory between the processes of a host: through the network instead",
        COLLECTIVES,
        ("NCCL_SHM_DISABLE", "1", VariableReader(_COLLECTIVES, GPU, default="0")),
    ),
    _entry(
        "nccl_ib_off",
        "no InfiniBand or RoCE: plain sockets",
        COLLECTIVES,
        ("NCCL_IB_DISABLE", "1", VariableReader(_COLLECTIVES, GPU, default="0")),
    ),
    _entry(
        "nccl_algo_ring",
        "ring algorithms only: one order of summation",
        COLLECTIVES,
        ("NCCL_ALGO", "Ring", VariableReader(_COLLECTIVES, GPU)),
    ),
    _entry(
        "nccl_proto_simple",
        "the Simple protocol only: no flags inside the data",
        COLLECTIVES,
        ("NCCL_PROTO", "Simple", VariableReader(_COLLECTIVES, GPU)),
    ),
    _entry(
        "nccl_nvls_off",
        "no reductions inside NVSwitch",
        COLLECTIVES,
        ("NCCL_NVLS_ENABLE", "0", VariableReader("NCCL", CUDA)),
    ),
    _entry(
        "torch_nccl_blocking_wait",
        "a collective is waited for on the host, and a time-out is raised where it happens",
        COLLECTIVES,
        ("TORCH_NCCL_BLOCKING_WAIT", "1", VariableReader(_TORCH_NCCL, GPU, default="0")),
    ),
    # PyTorch on any GPU
    _entry(
        "pytorch_no_cuda_memory_caching",
        "every tensor is allocated and freed by the driver: use after free shows",
        MEMORY,
        ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1", VariableReader(_TORCH, GPU)),
    ),
    _entry(
        "pytorch_alloc_expandable_segments",
        "growing memory segments: less fragmentation; some builds for ROCm refuse it",
        MEMORY,
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", VariableReader(_TORCH, GPU)),
    ),
    # PyTorch on any platform
    _entry(
        "torch_compile_off",
        "torch.compile does nothing: eager execution",
        KERNELS,
        ("TORCH_COMPILE_DISABLE", "1", VariableReader(_TORCH, EVERYWHERE, default="0")),
    ),
    # CPU libraries, which every job has
    _entry(
        "omp_one_thread",
        "one thread for each parallel loop on the CPU",
        TIMING,
        ("OMP_NUM_THREADS", "1", VariableReader(f"{_OPENMP}; PyTorch", EVERYWHERE)),
        ("MKL_NUM_THREADS", "1", VariableReader("MKL; PyTorch", EVERYWHERE)),
    ),
    _entry(
        "mkl_reproducible",
        "MKL takes one code path on every CPU: the same bits everywhere",
        KERNELS,
        ("MKL_CBWR", "COMPATIBLE", VariableReader("MKL", EVERYWHERE)),
    ),
    _entry(
        "onednn_max_isa_avx2",
        "oneDNN uses no instruction newer than AVX2: no AVX-512, no AMX",
        KERNELS,
        ("ONEDNN_MAX_CPU_ISA", "AVX2", VariableReader(_ONEDNN, EVERYWHERE)),
    ),
    _entry(
        "onednn_strict_fpmath",
        "oneDNN keeps float32 as float32",
        PRECISION,
        (
            "ONEDNN_DEFAULT_FPMATH_MODE",
            "STRICT",
            VariableReader(_ONEDNN, EVERYWHERE, default="STRICT"),
        ),
    ),
    _entry(
        "aten_no_vectors",
        "PyTorch's own CPU kernels without vector instructions",
        KERNELS,
        ("ATEN_CPU_CAPABILITY", "default", VariableReader(_TORCH, EVERYWHERE)),
    ),
)
