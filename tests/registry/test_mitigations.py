"""The built-in mitigations say what is true, and an inert one is told apart from one that acts."""

import pytest

from aorta.core.errors import RegistryError
from aorta.core.names import is_path_safe, is_variable
from aorta.probe.host import KNOWN_VARIABLES
from aorta.registry.environments import stack_mitigations
from aorta.registry.mitigation import (
    BUILTIN_MITIGATIONS,
    Mitigation,
    Platform,
    VariableReader,
    why_inert,
)
from aorta.registry.mitigations import get_mitigation, load_mitigations, mitigation_rows

PLATFORMS: tuple[Platform, ...] = ("rocm", "cuda", "cpu")

EXPECTED = {
    "none": {},
    "xnack": {"HSA_XNACK": "1"},
    "gpu_max_hw_queues_2": {"GPU_MAX_HW_QUEUES": "2"},
    "debug_hip_dynamic_queues_1": {"DEBUG_HIP_DYNAMIC_QUEUES": "1"},
    "debug_hip_dynamic_queues_2": {"DEBUG_HIP_DYNAMIC_QUEUES": "2"},
    "roc_aql_queue_size_1024": {"ROC_AQL_QUEUE_SIZE": "1024"},
    "hsa_no_sdma": {"HSA_ENABLE_SDMA": "0"},
    "hsa_no_scratch_reclaim": {"HSA_NO_SCRATCH_RECLAIM": "1"},
    "hsa_disable_cache": {"HSA_DISABLE_CACHE": "1"},
    "hsa_enable_cache": {"HSA_DISABLE_CACHE": "0"},
    "roc_signal_pool_16k": {"ROC_SIGNAL_POOL_SIZE": "16384"},
    "gpu_force_blit_copy_128": {"GPU_FORCE_BLIT_COPY_SIZE": "128"},
    "debug_clr_no_batch_cpu_sync": {"DEBUG_CLR_BATCH_CPU_SYNC_SIZE": "0"},
    "nccl_launch_order_implicit": {"NCCL_LAUNCH_ORDER_IMPLICIT": "1"},
    "rccl_gfx942_cheap_fence_off": {
        "RCCL_GFX9_CHEAP_FENCE_OFF": "1",
        "RCCL_GFX942_CHEAP_FENCE_OFF": "1",
    },
    "pytorch_no_cuda_memory_caching": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
    "pytorch_alloc_expandable_segments": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    "hip_launch_blocking": {"HIP_LAUNCH_BLOCKING": "1"},
    "amd_log_level_4": {"AMD_LOG_LEVEL": "4"},
    "fa_prefer_ck": {"TORCH_ROCM_FA_PREFER_CK": "1"},
    "fa_prefer_aotriton": {"TORCH_ROCM_FA_PREFER_CK": "0"},
    "cuda_launch_blocking": {"CUDA_LAUNCH_BLOCKING": "1"},
    "nccl_p2p_off": {"NCCL_P2P_DISABLE": "1"},
    "nccl_algo_ring": {"NCCL_ALGO": "Ring"},
    "cublas_deterministic_workspace": {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"},
    "torch_nccl_blocking_wait": {"TORCH_NCCL_BLOCKING_WAIT": "1"},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_built_in_sets_exactly_its_variables(name: str) -> None:
    assert get_mitigation(name).env == EXPECTED[name]


@pytest.mark.parametrize("entry", BUILTIN_MITIGATIONS, ids=lambda entry: entry.name)
def test_every_built_in_says_who_reads_each_variable_and_what_it_is_for(entry: Mitigation) -> None:
    assert is_path_safe(entry.name)
    assert set(entry.readers) == set(entry.env)
    assert all(is_variable(name) for name in entry.env)
    assert all(reader.by and reader.on for reader in entry.readers.values())
    assert entry.what
    assert "\n" not in entry.what


def test_tf32_off_has_a_variable_that_a_library_reads_on_each_vendor() -> None:
    entry = get_mitigation("tf32_off")
    readers = {
        platform: {name for name, reader in entry.readers.items() if platform in reader.on}
        for platform in PLATFORMS
    }
    assert "NVIDIA_TF32_OVERRIDE" in readers["cuda"]
    assert "HIPBLASLT_OVERRIDE_COMPUTE_TYPE_XF32" in readers["rocm"]
    assert entry.env["NVIDIA_TF32_OVERRIDE"] == entry.env["HIPBLASLT_ALLOW_TF32"] == "0"
    assert "DISABLE_TF32" not in entry.env
    assert [why_inert(entry, platform, {}) is None for platform in PLATFORMS] == [True, True, False]


def test_every_two_built_ins_that_share_no_variable_can_be_stacked() -> None:
    stack = [(entry.name, entry.env) for entry in BUILTIN_MITIGATIONS]
    first_of = {variable: name for name, env in reversed(stack) for variable in env}
    chosen = [(name, env) for name, env in stack if all(first_of[key] == name for key in env)]
    assert set(stack_mitigations(chosen)) == {name for _, env in chosen for name in env}


@pytest.mark.parametrize(
    ("name", "platform", "env", "reason"),
    [
        ("none", "cuda", {}, "sets no variable"),
        ("xnack", "rocm", {}, None),
        ("xnack", "cuda", {}, "no library reads HSA_XNACK on cuda (only on rocm)"),
        ("xnack", "rocm", {"HSA_XNACK": "1"}, "HSA_XNACK already has this value here"),
        ("xnack", "rocm", {"HSA_XNACK": "0"}, None),
        ("cuda_launch_blocking", "rocm", {}, "only on cuda"),
        ("hsa_enable_cache", "rocm", {}, "already has this value"),
        ("hsa_enable_cache", "rocm", {"HSA_DISABLE_CACHE": "1"}, None),
        ("fa_prefer_aotriton", "rocm", {}, "already has this value"),
        ("onednn_strict_fpmath", "cpu", {}, "already has this value"),
        ("omp_one_thread", "cpu", {"OMP_NUM_THREADS": "1"}, None),
        (
            "omp_one_thread",
            "cpu",
            {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
            "MKL_NUM_THREADS and OMP_NUM_THREADS already have this value here",
        ),
    ],
)
def test_a_mitigation_that_cannot_act_here_says_why(
    name: str, platform: Platform, env: dict[str, str], reason: str | None
) -> None:
    said = why_inert(get_mitigation(name), platform, env)
    assert (said is None) if reason is None else (said is not None and reason in said)


def test_an_unknown_reader_is_no_reason_to_call_a_mitigation_inert() -> None:
    foreign = Mitigation("mine", {"SITE_FLAG": "1"}, source="sidecar:site.json")
    assert [why_inert(foreign, platform, {}) for platform in PLATFORMS] == [None, None, None]
    assert why_inert(foreign, "cpu", {"SITE_FLAG": "1"}) is not None


def test_a_variable_that_nobody_reads_is_said_to_act_nowhere() -> None:
    dead = Mitigation("dead", {"DEAD": "1"}, readers={"DEAD": VariableReader("nobody", ())})
    assert dead.platforms == ()
    assert why_inert(dead, "cuda", {}) == "no library reads DEAD on cuda (nor anywhere)"


def test_a_misspelt_name_is_answered_with_the_nearest_ones() -> None:
    with pytest.raises(RegistryError, match="unknown mitigation 'tf32_of'; did you mean tf32_off"):
        get_mitigation("tf32_of")
    with pytest.raises(RegistryError, match=r"expected one of: .*none"):
        get_mitigation("zzzzzzzz")


def test_a_listing_is_sorted_and_names_source_variables_and_readers() -> None:
    rows = mitigation_rows()
    names = [row["NAME"] for row in rows]
    assert names == sorted(names) == list(load_mitigations())
    (xnack,) = (row for row in rows if row["NAME"] == "xnack")
    assert (xnack["SOURCE"], xnack["ENV"], xnack["PLATFORMS"]) == ("aorta", "HSA_XNACK=1", "rocm")
    assert "HSA" in xnack["READ BY"]


def test_every_variable_of_a_built_in_is_recorded_by_the_snapshot() -> None:
    assert {name for entry in BUILTIN_MITIGATIONS for name in entry.env} <= set(KNOWN_VARIABLES)
    assert list(KNOWN_VARIABLES) == sorted(set(KNOWN_VARIABLES))
