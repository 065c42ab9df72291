"""What a lost standard stream may change: nothing of the work."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from support.aorta_cli import COMMAND, environ
from support.waiting import patience

CLEAN = ("run", "--trials", "2", "--", "true")


def test_a_reader_who_leaves_changes_neither_the_run_nor_its_exit_code(tmp_path: Path) -> None:
    for_reading, nobody_reads = os.pipe()
    os.close(for_reading)
    done = subprocess.run(
        (*COMMAND, *CLEAN),
        cwd=tmp_path,
        env=environ(),
        stdout=nobody_reads,
        stderr=nobody_reads,
        timeout=patience(),
    )
    os.close(nobody_reads)
    assert done.returncode == 0
    result = json.loads((tmp_path / "results/command/result.json").read_text())
    assert result["rate"]["of"] == 2


@pytest.mark.parametrize("words", [("env", "probe", "--json"), CLEAN])
def test_results_that_do_not_fit_on_the_disk_are_an_error_of_the_machine(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            (*COMMAND, *words),
            cwd=tmp_path,
            env=environ(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=patience(),
        )
    assert done.returncode == 5
    last = done.stderr.splitlines()[-1]
    assert last == "aorta: stdout: cannot be written: No space left on device"
    assert "Traceback" not in done.stderr
