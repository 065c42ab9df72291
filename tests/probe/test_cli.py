"""`aorta env probe` as a user meets it."""

import json
from importlib import metadata
from pathlib import Path

import pytest

from support.aorta_cli import aorta
from support.fake_tools import put_tool

KEYS = [
    "schema",
    "aorta_version",
    "schema_version",
    "captured_at",
    "partial",
    "partial_reasons",
    "platform",
    "system_health",
    "rocm",
    "hip",
    "hipblaslt",
    "cuda",
    "gpus",
    "host",
    "cpu",
    "memory",
    "runtime_context",
    "docker",
    "env_vars",
    "python_version",
    "python",
    "pytorch_version",
    "pytorch_build",
    "packages",
    "other_packages",
]
FIRST_THIRTEEN = [
    "HSA_XNACK",
    "HSA_KERNARG_POOL_SIZE",
    "HSA_NO_SCRATCH_RECLAIM",
    "GPU_MAX_HW_QUEUES",
    "AMDGCN_USE_BUFFER_OPS",
    "DISABLE_TF32",
    "NCCL_MAX_NCHANNELS",
    "FBGEMM_NO_JK",
    "FBGEMM_TBE_V2",
    "FBGEMM_TBE_ROCM_HIP_BACKWARD_KERNEL",
    "FBGEMM_BOUNDS_CHECK_INDICES_V2",
    "TORCHINDUCTOR_MAX_AUTOTUNE_POINTWISE",
    "PYTORCH_CUDA_ALLOC_CONF",
]


def test_it_writes_env_json_and_shows_a_summary(tmp_path: Path) -> None:
    done = aorta("env", "probe", cwd=tmp_path, env={"HSA_XNACK": "1"})
    assert done.exit_code == 0, done.stderr
    assert "wrote env.json (schema_version=1.0)" in done.stderr
    assert "HSA_XNACK=1" in done.stdout
    written = json.loads((tmp_path / "env.json").read_text())
    assert list(written) == KEYS
    assert written["schema"] == "aorta.env/1"
    assert written["schema_version"] == "1.0"
    assert written["partial"] == bool(written["partial_reasons"])
    assert set(FIRST_THIRTEEN) <= set(written["env_vars"])
    assert written["env_vars"]["HSA_XNACK"] == "1"
    assert written["pytorch_version"].startswith(written["packages"]["torch"])
    assert written["other_packages"]["click"] == metadata.version("click")
    assert not written["packages"].keys() & written["other_packages"].keys()
    assert written["captured_at"].endswith("Z")
    assert list(written["rocm"]) == ["version", "version_dev", "kmd_version"]
    assert list(written["hip"]) == ["version", "platform", "compiler", "runtime", "cpp_config"]


def test_json_is_the_snapshot_itself_and_leaves_no_file(tmp_path: Path) -> None:
    done = aorta("env", "probe", "--json", cwd=tmp_path)
    assert list(done.json()) == KEYS
    assert list(tmp_path.iterdir()) == []


def test_json_and_a_file_hold_the_same(tmp_path: Path) -> None:
    done = aorta("env", "probe", "--json", "-o", tmp_path / "deep" / "er" / "env.json")
    assert json.loads((tmp_path / "deep" / "er" / "env.json").read_text()) == done.json()


def test_a_dash_writes_the_file_to_stdout_and_nothing_else(tmp_path: Path) -> None:
    done = aorta("env", "probe", "-o", "-", cwd=tmp_path)
    assert list(json.loads(done.stdout)) == KEYS
    assert list(tmp_path.iterdir()) == []


def test_two_snapshots_differ_in_nothing_but_their_time(tmp_path: Path) -> None:
    texts = [aorta("env", "probe", "-o", "-", cwd=tmp_path).stdout for _ in range(2)]
    without_time = [
        [line for line in text.splitlines() if '"captured_at"' not in line] for text in texts
    ]
    assert without_time[0] == without_time[1]


@pytest.mark.parametrize(
    ("place", "code", "said"),
    [
        ("/dev/full", 5, "No space left"),
        ("/proc/nope/env.json", 2, "cannot be written"),
        (".", 2, ""),
    ],
)
def test_a_place_that_cannot_be_written_is_one_line(
    tmp_path: Path, place: str, code: int, said: str
) -> None:
    done = aorta("env", "probe", "-o", place, cwd=tmp_path)
    assert done.exit_code == code
    assert done.stderr.startswith(f"aorta: {place}: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_gpus_of_a_vendors_tool_are_in_the_snapshot_and_its_summary(tmp_path: Path) -> None:
    put_tool(
        tmp_path / "bin",
        "nvidia-smi",
        """
        for i in 0 1; do
            echo "$i, NVIDIA H200, GPU-b4434b79-99e2-18bd-807a-1fe6ca5173b$i, 00000000:0$i:06.0, 143771, 580.1, 96.00, 9.0"
        done
        """,
    )
    path = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    gpus = aorta("env", "probe", "--json", env=path).json()["gpus"]
    assert gpus[1] == {
        "vendor": "nvidia",
        "index": 1,
        "name": "NVIDIA H200",
        "uuid": "GPU-b4434b79-99e2-18bd-807a-1fe6ca5173b1",
        "pci": "0000:01:06.0",
        "memory_mib": 143771,
        "arch": "9.0",
        "driver": "580.1",
        "vbios": "96.00",
        "source": "nvidia-smi",
    }
    summary = aorta("env", "probe", "-o", tmp_path / "env.json", env=path).stdout
    assert "2 x nvidia, NVIDIA H200, 9.0, 143771 MiB" in summary
