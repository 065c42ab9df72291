"""The one list of environment variables that a snapshot of a machine records. Standard library only."""

from aorta.registry.builtin_mitigations import BUILTIN_MITIGATIONS

# Read by a runtime or a framework, set by no built-in mitigation, and often the answer to "what is different here?".
_ALSO_WATCHED = (
    "AMDGCN_USE_BUFFER_OPS",
    "CUDA_VISIBLE_DEVICES",
    "DISABLE_TF32",  # read by no library, but people set it and believe in it
    "FBGEMM_BOUNDS_CHECK_INDICES_V2",
    "FBGEMM_NO_JK",
    "FBGEMM_TBE_ROCM_HIP_BACKWARD_KERNEL",
    "FBGEMM_TBE_V2",
    "HIP_VISIBLE_DEVICES",
    "HSA_KERNARG_POOL_SIZE",
    "HSA_OVERRIDE_GFX_VERSION",
    "LD_PRELOAD",
    "NCCL_MAX_NCHANNELS",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "ROCR_VISIBLE_DEVICES",
    "TORCHINDUCTOR_MAX_AUTOTUNE_POINTWISE",
    "XLA_FLAGS",
)

KNOWN_VARIABLES: tuple[str, ...] = tuple(
    sorted({*_ALSO_WATCHED, *(name for entry in BUILTIN_MITIGATIONS for name in entry.env)})
)
