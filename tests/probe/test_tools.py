"""Vendors' tools that hang, die, lie or never stop talking: each costs a line in the snapshot, and
nothing else.
"""

import os
from pathlib import Path

import pytest

from aorta.probe.gpus import nvidia_gpus, probe_cuda
from aorta.probe.machine import Machine
from aorta.probe.snapshot import collect_env
from support.fake_tools import put_files, put_tool
from support.processes import wait_until_gone
from support.waiting import patience

SOON = round(patience(1))  # seconds
HOSTILE = {
    "exits with an error": ("exit 9", "ended with exit code 9"),
    "dies of a signal": ("kill -SEGV $$", "ended with exit code -11"),
    "prints nothing": ("true", "not the table"),
    "prints prose": ("echo 'NVIDIA-SMI has failed'", "not the table"),
    "prints binary": ("head -c 4096 /dev/urandom", "nvidia-smi"),
    "prints too few columns": ("echo '0, H200'", "not the table"),
    "prints letters for an index": ("echo 'a,b,c,d,e,f,g,h'", "not the table"),
    "never stops printing": ("yes", "printed more than 1 MiB"),
    "prints one endless line": ("head -c 900000 /dev/zero | tr '\\0' x", "not the table"),
}


def looking_at(root: Path, tools: Path) -> Machine:
    return Machine(root, {"PATH": f"{tools}:/usr/bin:/bin"})


@pytest.mark.parametrize("case", HOSTILE)
def test_a_tool_that_misbehaves_leaves_a_reason_and_no_gpu(tmp_path: Path, case: str) -> None:
    script, said = HOSTILE[case]
    put_tool(tmp_path / "bin", "nvidia-smi", script)
    found = nvidia_gpus(looking_at(tmp_path, tmp_path / "bin"))
    assert found.value == []
    (reason,) = found.missing
    assert reason.startswith("gpus: ")
    assert said in reason
    assert "\n" not in reason


def test_a_tool_that_hangs_is_ended_with_everything_it_started(tmp_path: Path) -> None:
    put_tool(
        tmp_path / "bin",
        "nvidia-smi",
        f"trap '' TERM; sleep 600 & echo $! > {tmp_path}/child; wait; sleep 600",
    )
    machine = looking_at(tmp_path, tmp_path / "bin")
    assert (
        machine.ask("nvidia-smi", timeout=SOON).problem
        == f"nvidia-smi did not answer within {SOON} s"
    )
    child = int((tmp_path / "child").read_text())
    wait_until_gone(child)


def test_a_tool_that_leaves_its_output_open_does_not_hold_us(tmp_path: Path) -> None:
    put_tool(tmp_path / "bin", "hipconfig", "sleep 600 & echo 6.4")
    machine = looking_at(tmp_path, tmp_path / "bin")
    assert (
        machine.ask("hipconfig", timeout=SOON).problem
        == f"hipconfig did not answer within {SOON} s"
    )


def test_a_tool_without_an_interpreter_could_not_be_started(tmp_path: Path) -> None:
    tool = put_tool(tmp_path / "bin", "hipconfig", "")
    tool.write_text("#!/no/such/interpreter\n")
    problem = looking_at(tmp_path, tmp_path / "bin").ask("hipconfig").problem
    assert problem == "hipconfig could not be started: No such file or directory"


def test_an_old_driver_that_does_not_know_a_question_is_asked_without_it(tmp_path: Path) -> None:
    put_tool(
        tmp_path / "bin",
        "nvidia-smi",
        """
        case "$1" in *compute_cap*) echo 'Field "compute_cap" is not a valid field to query.'; exit 2;; esac
        echo "0, Tesla V100, GPU-1, 00000000:00:04.0, 16160, 418.0, [N/A]"
        """,
    )
    (gpu,) = nvidia_gpus(looking_at(tmp_path, tmp_path / "bin")).value
    assert (gpu["name"], gpu["arch"], gpu["vbios"]) == ("Tesla V100", None, None)


def test_a_driver_without_devices_is_no_fault(tmp_path: Path) -> None:
    put_tool(tmp_path / "bin", "nvidia-smi", "echo 'No devices were found'; exit 6")
    found = nvidia_gpus(looking_at(tmp_path, tmp_path / "bin"))
    assert (found.value, found.missing) == ([], ())


def test_where_the_tool_fails_the_kernel_is_believed(tmp_path: Path) -> None:
    root = put_files(
        tmp_path / "root",
        {
            "/dev/nvidia0": "",
            "/proc/driver/nvidia/version": (
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release "
                "Build\n"
            ),
            "/proc/driver/nvidia/gpus/0000:00:06.0/information": (
                "Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-b4434b79\nVideo BIOS: \t 96.00.a5\n"
            ),
        },
    )
    put_tool(tmp_path / "bin", "nvidia-smi", "exit 15")
    machine = looking_at(root, tmp_path / "bin")
    found = nvidia_gpus(machine)
    assert [(gpu["name"], gpu["pci"]) for gpu in found.value] == [("NVIDIA H200", "0000:00:06.0")]
    assert found.missing == ("gpus: nvidia-smi ended with exit code 15",)
    assert probe_cuda(machine).value["driver_version"] == "580.159.04"
    assert collect_env(machine).platform == "cuda"


def test_the_environment_of_a_tool_holds_only_where_to_look(tmp_path: Path) -> None:
    put_tool(tmp_path / "bin", "nvidia-smi", f"env > {tmp_path}/seen; exit 1")
    environ = {**os.environ, "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "MY_TOKEN": "hunter2"}
    collect_env(Machine(tmp_path, environ))
    assert "hunter2" not in (tmp_path / "seen").read_text()
