"""What a trial's end says, seen through `aorta run`: kills, memory, and metrics that belong to one
trial.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.solve_stories import limited_memory

from support.aorta_cli import COMMAND, aorta, environ
from support.services import requirements

METRIC = ("--oracle", "metric", "--metric-file", "m.json", "--metric-key", "loss", "--above", "5")


def trials(tmp_path: Path, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = aorta("run", "--json", *words, cwd=tmp_path).json()["trials"]
    return found


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("kill -KILL $$", "signal 9 (SIGKILL)"),
        ("kill -TERM $$", "signal 15 (SIGTERM)"),
        ("exit 137", "exit 137 (SIGKILL)"),
        ("exit 143", "exit 143 (SIGTERM)"),
        ("exit 130", "exit 130 (SIGINT)"),
        ("exit 126", "exit 126 (what a shell says of a command that it cannot find or execute)"),
        ("exit 127", "exit 127 (what a shell says of a command that it cannot find or execute)"),
    ],
)
def test_an_end_that_nobody_else_brought_about_is_the_program_s_own(
    tmp_path: Path, command: str, why: str
) -> None:
    [trial] = trials(tmp_path, "--", "bash", "-c", command)
    assert (trial["outcome"], trial["why"]) == ("reproduced", why)


@pytest.mark.parametrize("command", ["kill -KILL $$", "exit 137", "bash -c 'kill -KILL $$'; exit"])
@pytest.mark.parametrize("code", ["137", "-9"])
def test_a_death_by_sigkill_is_found_under_both_of_its_numbers(
    tmp_path: Path, command: str, code: str
) -> None:
    [trial] = trials(tmp_path, f"--exit-codes={code}", "--", "bash", "-c", command)
    assert trial["outcome"] == "reproduced"


@pytest.fixture
def small_memory() -> Iterator[Path]:
    requirements.demand(requirements.CONTROL_GROUPS)
    with limited_memory(150) as group:
        yield group


def test_a_kill_by_the_kernel_for_want_of_memory_is_the_failure_and_says_so(
    tmp_path: Path, small_memory: Path
) -> None:
    def enter() -> None:
        (small_memory / "cgroup.procs").write_text(str(os.getpid()))

    hog = "x = bytearray(600 << 20); print(len(x))"
    done = subprocess.run(
        (*COMMAND, "run", "--", "python3", "-c", hog),
        cwd=tmp_path, env=environ(), preexec_fn=enter, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "signal 9 (SIGKILL, out of memory)" in done.stderr


def test_a_trial_that_writes_no_metric_does_not_inherit_the_one_before(tmp_path: Path) -> None:
    script = "[ -e m.json ] || echo '{\"loss\": 1}' > m.json"
    first, *later = trials(tmp_path, "--trials", "2", *METRIC, "--", "bash", "-c", script)
    assert (first["outcome"], first["why"]) == ("clean", "the metric is 1")
    assert {(trial["outcome"], trial["why"]) for trial in later} == {
        ("error", "the metric is missing")
    }


def test_a_metric_that_is_written_again_with_the_same_number_counts_again(tmp_path: Path) -> None:
    script = "echo '{\"loss\": 7}' > m.json"
    found = trials(tmp_path, "--trials", "4", *METRIC, "--", "bash", "-c", script)
    assert [trial["outcome"] for trial in found] == ["reproduced"] * 4


# Each waits for the other, so that both are alive when each writes.
MEET = (
    "mktemp -d here.XXXXXX >/dev/null;"
    " for i in $(seq 600); do [ $(ls -d here.* | wc -l) -ge 2 ] && break; sleep 0.05; done;"
)


def test_what_trials_side_by_side_write_to_one_file_is_an_error_never_a_number(
    tmp_path: Path,
) -> None:
    script = MEET + "echo '{\"loss\": 7}' > m.json"
    found = trials(
        tmp_path, "--trials", "2", "--jobs", "2", *METRIC, "--", "bash", "-c", script
    )  # fmt: skip
    assert [trial["outcome"] for trial in found] == ["error"] * len(found)
    assert "$AORTA_METRIC_FILE" in found[0]["why"]


def test_a_metric_in_the_trial_s_own_place_is_its_own_side_by_side(tmp_path: Path) -> None:
    script = MEET + 'echo \'{"loss": 7}\' > "$AORTA_METRIC_FILE"'
    found = trials(
        tmp_path, "--trials", "2", "--jobs", "2", *METRIC, "--", "bash", "-c", script
    )  # fmt: skip
    assert [trial["outcome"] for trial in found] == ["reproduced"] * 2


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        ("echo loss 0.1; sleep 0.4; echo loss 9 >&2", "reproduced"),
        ("echo loss 9 >&2; sleep 0.4; echo loss 0.1", "clean"),
        ("echo loss 9; echo loss 9 >&2", "reproduced"),
    ],
)
def test_of_both_streams_the_number_that_came_last_decides(
    tmp_path: Path, script: str, outcome: str
) -> None:
    [trial] = trials(
        tmp_path, "--oracle", "metric", "--pattern", r"loss (\S+)", "--above", "5",
        "--", "bash", "-c", script,
    )  # fmt: skip
    assert trial["outcome"] == outcome, trial["why"]
