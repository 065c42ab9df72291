"""One trial in a child process, seen from outside: its exit status, its result file and its
streams.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from aorta.workloads.base import WorkloadResult
from aorta.workloads.child import ChildExit, WorkloadOrder
from support.waiting import patience

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Ended:
    status: int
    stdout: bytes
    stderr: str
    result: dict[str, Any] | None
    files: list[str]


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    clean = {key: value for key, value in os.environ.items() if key not in {"RANK", "WORLD_SIZE"}}
    return {**clean, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}", **extra}


def start(
    folder: Path, workload: str, config: Mapping[str, Any], extra: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    name = (
        workload
        if ":" in workload or workload.islower()
        else f"support.ailing_workloads:{workload}"
    )
    order = folder / "order.json"
    order.write_text(
        WorkloadOrder(name, folder / "result.json", config, trial_env=list(extra)).to_json()
    )
    return subprocess.Popen(
        [sys.executable, "-m", "aorta.workloads.child", str(order)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(extra),
    )


def finish(process: subprocess.Popen[bytes], folder: Path) -> Ended:
    stdout, stderr = process.communicate(timeout=patience())
    result = folder / "result.json"
    return Ended(
        process.returncode,
        stdout,
        stderr.decode(),
        json.loads(result.read_text()) if result.exists() else None,
        sorted(path.name for path in folder.iterdir()),
    )


def run(folder: Path, workload: str, config: Mapping[str, Any] | None = None, **env: str) -> Ended:
    return finish(start(folder, workload, config or {}, env), folder)


def test_a_pass_leaves_status_zero_and_a_whole_result(tmp_path: Path) -> None:
    ended = run(tmp_path, "Healthy", {"depth": 3})
    assert ended.status == ChildExit.PASSED
    assert ended.result is not None
    assert WorkloadResult.from_dict(ended.result).passed
    assert ended.result["phase"] == "finished"
    assert ended.result["metrics"]["config"]["depth"] == 3
    assert ended.files == ["order.json", "result.json"]


def test_predicates_are_answered_and_a_broken_one_is_left_out(tmp_path: Path) -> None:
    ended = run(tmp_path, "Healthy", {"depth": 3})
    assert ended.result is not None
    assert ended.result["predicates"] == {"was_configured": True}
    assert "ZeroDivisionError" in ended.stderr


def test_a_failure_is_status_one_and_its_odd_values_still_make_json(tmp_path: Path) -> None:
    ended = run(tmp_path, "Failing")
    assert ended.status == ChildExit.FAILED
    assert ended.result is not None
    (detail,) = ended.result["failure_details"]
    assert detail["hint"] == "the loss is NaN"
    assert detail["loss"] == "nan"


@pytest.mark.parametrize(
    ("workload", "phase", "words"),
    [
        ("nowhere:Nothing", "import", "ModuleNotFoundError: No module named 'nowhere'"),
        ("NotAWorkload", "import", "RegistryError"),
        ("unheard_of", "import", "expected one of: command, fsdp, half_nan"),
        ("ConstructorRaises", "construct", "KeyError: 'no such setting'"),
        ("SetupRaises", "setup", "RuntimeError: no device"),
        ("SetupExits", "setup", "SystemExit: 0"),
        ("RunMissesModule", "run", "No module named 'a_module_that_is_nowhere'"),
    ],
)
def test_what_never_began_is_no_evidence(
    tmp_path: Path, workload: str, phase: str, words: str
) -> None:
    ended = run(tmp_path, workload)
    assert ended.status == ChildExit.NO_EVIDENCE
    assert ended.result is not None
    assert (ended.result["phase"], ended.result["main_work_started"]) == (phase, False)
    assert words in ended.result["failure_details"][0]["error"]
    assert words in ended.stderr


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        ("RunRaises", "ArithmeticError: lost a bit"),
        ("RunReturnsNonsense", "run() returned a dict; expected a WorkloadResult"),
        ("PassesWithFailures", "failure_count: found 3, expected 0 on a pass"),
    ],
)
def test_a_main_work_that_raises_has_a_status_of_its_own(
    tmp_path: Path, workload: str, words: str
) -> None:
    ended = run(tmp_path, workload)
    assert ended.status == ChildExit.RAISED
    assert ended.result is not None
    assert ended.result["failure_count"] == 1
    assert ended.result["main_work_started"] is None
    assert words in ended.result["exception"]


def test_cleanup_is_attempted_whatever_came_before(tmp_path: Path) -> None:
    for workload in ("Healthy", "SetupRaises", "RunRaises"):
        notes = tmp_path / f"{workload}.txt"
        run(tmp_path, workload, {"notes": str(notes)})
        assert notes.read_text().split()[-1] == "cleanup"


def test_a_cleanup_that_raises_is_told_and_changes_nothing(tmp_path: Path) -> None:
    ended = run(tmp_path, "CleanupRaises")
    assert ended.status == ChildExit.PASSED
    assert ended.result is not None
    assert ended.result["passed"]
    assert "could not unmount" in ended.result["cleanup_exception"]


def test_a_cleanup_that_raises_does_not_hide_why_the_run_raised(tmp_path: Path) -> None:
    ended = run(tmp_path, "RunRaisesAndCleanupRaises")
    assert ended.status == ChildExit.RAISED
    assert ended.result is not None
    assert "lost a bit" in ended.result["exception"]
    assert "could not unmount" in ended.result["cleanup_exception"]


def test_a_segfault_is_the_process_s_own_death_and_leaves_no_result(tmp_path: Path) -> None:
    ended = run(tmp_path, "Segfaults")
    assert ended.status == -signal.SIGSEGV
    assert ended.files == ["order.json"]


def test_a_segfault_in_cleanup_leaves_the_result_of_the_main_work(tmp_path: Path) -> None:
    ended = run(tmp_path, "CleanupSegfaults")
    assert ended.status == -signal.SIGSEGV
    assert ended.result is not None
    assert ended.result["passed"]


def test_leaving_with_zero_from_inside_leaves_no_result(tmp_path: Path) -> None:
    ended = run(tmp_path, "LeavesWithZero")
    assert (ended.status, ended.files) == (0, ["order.json"])


@pytest.mark.parametrize("deadly", [signal.SIGKILL, signal.SIGTERM])
def test_a_hang_that_is_killed_dies_of_the_signal_and_leaves_no_result(
    tmp_path: Path, deadly: signal.Signals
) -> None:
    notes = tmp_path / "notes.txt"
    process = start(tmp_path, "Hangs", {"notes": str(notes)}, {})
    assert process.stdout is not None
    assert process.stdout.readline() == b"hanging\n"
    process.send_signal(deadly)
    ended = finish(process, tmp_path)
    assert ended.status == -deadly
    assert ended.result is None
    assert ("cleanup" in notes.read_text()) == (deadly is signal.SIGTERM)


def test_garbage_on_stdout_and_a_closed_stdout_do_no_harm(tmp_path: Path) -> None:
    ended = run(tmp_path, "WritesGarbage")
    assert ended.result is not None
    assert ended.result["passed"]
    assert len(ended.stdout) == 500_000
    assert "mine: through my own format" in ended.stderr


def test_a_result_that_cannot_be_written_is_no_evidence(tmp_path: Path) -> None:
    (tmp_path / "result.json").mkdir()
    (tmp_path / "result.json" / "in the way").touch()
    notes = tmp_path / "notes.txt"
    process = start(tmp_path, "Healthy", {"notes": str(notes)}, {})
    _, stderr = process.communicate(timeout=patience())
    assert process.returncode == ChildExit.NO_EVIDENCE
    assert b"cannot keep the result" in stderr
    assert notes.read_text().split() == ["setup", "run", "cleanup"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.txt", "order.json", "result.json"]


def test_every_rank_runs_and_each_leaves_its_own_result(tmp_path: Path) -> None:
    for rank in ("1", "0"):
        assert finish_rank(tmp_path, rank).status == ChildExit.PASSED
    assert json.loads((tmp_path / "result.json").read_text())["rank"] == 0
    assert json.loads((tmp_path / "result.rank1.json").read_text())["rank"] == 1


def test_a_rank_that_gave_its_own_order_finds_the_result_where_it_asked_for_it(
    tmp_path: Path,
) -> None:
    order = tmp_path / "order.json"
    name = "support.ailing_workloads:Distributed"
    order.write_text(WorkloadOrder(name, tmp_path / "result.json", rank=1).to_json())
    subprocess.run(
        [sys.executable, "-m", "aorta.workloads.child", str(order)],
        env=_environment({"RANK": "1", "WORLD_SIZE": "2"}),
        check=True,
        timeout=patience(),
    )
    assert json.loads((tmp_path / "result.json").read_text())["rank"] == 1


def finish_rank(folder: Path, rank: str) -> Ended:
    return run(folder, "Distributed", RANK=rank, WORLD_SIZE="2")


@pytest.mark.parametrize(
    ("workload", "env", "words"),
    [
        ("Healthy", {"WORLD_SIZE": "2"}, "do not wrap it with torchrun"),
        ("Distributed", {}, "torchrun --nproc-per-node 2 -m aorta run --workload"),
        ("Healthy", {"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two'"),
        ("Healthy", {"WORLD_SIZE": "0"}, "WORLD_SIZE is '0'"),
    ],
)
def test_a_wrong_launch_is_refused_before_the_workload_exists(
    tmp_path: Path, workload: str, env: dict[str, str], words: str
) -> None:
    ended = run(tmp_path, workload, {"notes": str(tmp_path / "notes.txt")}, **env)
    assert ended.status == ChildExit.NO_EVIDENCE
    assert words in ended.stderr
    assert not (tmp_path / "notes.txt").exists()


def test_a_rank_that_is_no_number_is_taken_as_zero_with_a_warning(tmp_path: Path) -> None:
    ended = run(tmp_path, "Distributed", RANK="first", WORLD_SIZE="2")
    assert ended.status == ChildExit.PASSED
    assert ended.result is not None
    assert "RANK is 'first', not a number; taken as 0" in ended.stderr


def test_the_trial_s_variables_reach_the_workload_and_not_the_order_file(tmp_path: Path) -> None:
    ended = run(tmp_path, "Healthy", TOKEN_OF_TRIAL="s3cret")
    assert ended.result is not None
    assert ended.result["metrics"]["config"]["_aorta_trial_env"] == {"TOKEN_OF_TRIAL": "s3cret"}
    assert "s3cret" not in (tmp_path / "order.json").read_text()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        ("{", "Expecting property name"),
        ("[]", "not an aorta.order/1 document"),
        ('{"schema": "aorta.order/1"}', "missing 2 required positional arguments"),
        (
            (
                '{"schema": "aorta.order/1", "workload": "w", "result": "r", "config": '
                '{"_aorta_x": '
                "1}}"
            ),
            "config key '_aorta_x' is reserved",
        ),
    ],
)
def test_a_bad_order_is_refused_in_one_line(
    tmp_path: Path, content: str | None, words: str
) -> None:
    order = tmp_path / "order.json"
    if content is not None:
        order.write_text(content)
    ended = subprocess.run(
        [sys.executable, "-m", "aorta.workloads.child", str(order)],
        capture_output=True,
        env=_environment({}),
        timeout=patience(),
        text=True,
    )
    assert ended.returncode == ChildExit.NO_EVIDENCE
    assert words in ended.stderr
    assert ended.stderr.count("\n") == 1
