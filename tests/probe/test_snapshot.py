"""collect_env() never raises, fills every key, keeps secrets out, and says the same thing twice."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from aorta.probe import EnvSnapshot, collect_env
from aorta.probe import snapshot as probing
from aorta.probe.host import KNOWN_VARIABLES
from aorta.probe.machine import Machine, Probed

SECRETS = {
    "LD_PRELOAD": "https://me:hunter2hunter2@mirror/lib.so",
    "XLA_FLAGS": "--dump_to=/tmp token=hunter2hunter2",
    "NCCL_ALGO": "ghp_" + "hunter2" * 6,
    "NCCL_PROTO": "hf_" + "hunter2" * 5,
    "MKL_CBWR": "sk-" + "hunter2" * 4,
    "HSA_XNACK": "eyJhunter2hunter2.eyJhunter2hunter2.hunter2",
    "PYTORCH_CUDA_ALLOC_CONF": "aB3xK9hunter2hunter2Zq81LmN0pQrStUv",
    "OMP_NUM_THREADS": "-----BEGIN RSA PRIVATE KEY-----\nhunter2\n",
    "AORTA_DOCKER_IMAGE": "https://me:hunter2hunter2@host/image",
    "CONDA_DEFAULT_ENV": "glpat-" + "hunter2" * 3,
    "HF_TOKEN": "hunter2",
    "AWS_SECRET_ACCESS_KEY": "hunter2",
}


def test_secrets_never_enter_the_snapshot(tmp_path: Path) -> None:
    (tmp_path / ".dockerenv").touch()
    snapshot = collect_env(Machine(tmp_path, {"PATH": "", **SECRETS}))
    assert "hunter2" not in snapshot.to_json()
    assert "hunter2" not in snapshot.summary(verbose=True)
    assert "<redacted>" in snapshot.to_json()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CUDA_VISIBLE_DEVICES", "GPU-b4434b79-99e2-18bd-807a-1fe6ca5173b0,GPU-0"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:128"),
        ("LD_PRELOAD", "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4"),
        ("XLA_FLAGS", "--xla_gpu_enable_triton_gemm=false --xla_gpu_autotune_level=0"),
        ("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
        ("NCCL_ALGO", ""),
    ],
)
def test_an_honest_value_is_kept_as_it_is(tmp_path: Path, name: str, value: str) -> None:
    assert collect_env(Machine(tmp_path, {name: value})).env_vars[name] == value


def test_variables_that_are_not_known_do_not_enter(tmp_path: Path) -> None:
    snapshot = collect_env(Machine(tmp_path, {"MY_OWN": "x"}))
    assert tuple(snapshot.env_vars) == KNOWN_VARIABLES
    assert set(snapshot.env_vars.values()) == {None}


def test_bytes_that_are_no_text_do_not_break_the_file(tmp_path: Path) -> None:
    snapshot = collect_env(
        Machine(tmp_path, {"NCCL_ALGO": "Ring\udcff", "NCCL_PROTO": "x" * 10**6})
    )
    assert snapshot.env_vars["NCCL_ALGO"] == "Ring\\udcff"
    assert snapshot.env_vars["NCCL_PROTO"] == "<1000000 characters>"
    assert snapshot.to_json().encode("utf-8")


def broken_in(way: Callable[[], object]) -> probing.Probe:
    def probe(_machine: Machine) -> Probed:
        return Probed(way())

    return probe


def test_if_every_probe_breaks_the_snapshot_still_has_every_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode() -> object:
        raise MemoryError("password=hunter2")

    names = (*probing.STATIC_PROBES, *probing.LIVE_PROBES)
    for table in ("STATIC_PROBES", "LIVE_PROBES"):
        monkeypatch.setattr(
            probing, table, dict.fromkeys(getattr(probing, table), broken_in(explode))
        )
    snapshot = collect_env(Machine(tmp_path, {}))
    assert list(snapshot.to_dict()) == [entry.name for entry in dataclasses.fields(EnvSnapshot)]
    assert snapshot.partial
    assert [reason.split(":")[0] for reason in snapshot.partial_reasons] == list(names)
    assert all("MemoryError" in reason for reason in snapshot.partial_reasons)
    assert "hunter2" not in snapshot.to_json()
    assert snapshot.captured_at
    assert snapshot.summary()


def test_every_field_that_a_probe_fills_is_a_field_of_the_snapshot() -> None:
    fields = {entry.name for entry in dataclasses.fields(EnvSnapshot)}
    own = {"schema", "aorta_version", "schema_version", "captured_at", "partial", "partial_reasons"}
    assert fields - own == {*probing.STATIC_PROBES, *probing.LIVE_PROBES}


def test_numbers_that_json_does_not_have_become_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = broken_in(lambda: {"temperature": float("nan"), "nested": [float("inf")]})
    monkeypatch.setattr(probing, "STATIC_PROBES", {"system_health": odd})
    snapshot = collect_env(Machine(tmp_path, {}))
    assert json.loads(snapshot.to_json())["system_health"] == {
        "temperature": "nan",
        "nested": ["inf"],
    }


def test_an_interrupt_is_not_swallowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(probing, "LIVE_PROBES", {"docker": broken_in(interrupt)})
    with pytest.raises(KeyboardInterrupt):
        collect_env(Machine(tmp_path, {}))


def test_the_second_call_asks_only_what_can_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def counting(name: str, probe: probing.Probe) -> probing.Probe:
        def count(machine: Machine) -> Probed:
            asked.append(name)
            return probe(machine)

        return count

    for table in ("STATIC_PROBES", "LIVE_PROBES"):
        counted = {name: counting(name, probe) for name, probe in getattr(probing, table).items()}
        monkeypatch.setattr(probing, table, counted)
    first = collect_env(Machine(tmp_path, {"PATH": "", "NCCL_ALGO": "Ring"}))
    assert len(asked) == len(probing.STATIC_PROBES) + len(probing.LIVE_PROBES)
    asked.clear()
    second = collect_env(Machine(tmp_path, {"PATH": "", "NCCL_ALGO": "Tree"}))
    assert asked == list(probing.LIVE_PROBES)
    assert (first.env_vars["NCCL_ALGO"], second.env_vars["NCCL_ALGO"]) == ("Ring", "Tree")


def test_a_snapshot_changed_by_its_owner_does_not_change_the_next(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {"PATH": ""})
    first = collect_env(machine)
    assert first.host is not None
    first.host["hostname"] = "elsewhere"
    second = collect_env(machine)
    assert second.host is not None
    assert second.host["hostname"] != "elsewhere"


def test_a_snapshot_survives_its_file(tmp_path: Path) -> None:
    snapshot = collect_env(Machine(tmp_path, {"PATH": "", "NCCL_ALGO": "Ring"}))
    assert EnvSnapshot.from_dict(json.loads(snapshot.to_json())) == snapshot


def test_a_snapshot_of_another_release_is_read_as_far_as_it_is_known() -> None:
    old = EnvSnapshot.from_dict(
        {"schema_version": "1.0", "gpu_arch": {"new": 1}, "platform": "rocm"}
    )
    assert (old.platform, old.gpus, old.pytorch_version) == ("rocm", [], None)


def test_the_snapshot_of_this_very_machine_is_honest_about_its_python() -> None:
    snapshot = collect_env()
    assert str(snapshot.pytorch_version).startswith(snapshot.packages["torch"])
    assert snapshot.pytorch_build is not None
    assert snapshot.pytorch_build["git_version"]
    assert snapshot.runtime_context is not None
    assert snapshot.runtime_context["python_env"] == "venv"
    assert snapshot.host is not None
    assert snapshot.host["kernel_release"]
    assert snapshot.cpu is not None
    assert snapshot.cpu["usable"] >= 1
