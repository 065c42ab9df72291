"""Stopping `aorta run` in every way there is: no process outlives it, and a resume runs no trial
twice.
"""

import json
import os
import shlex
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from aorta.engine.journal import read_records
from aorta.engine.rundir import claim_run_dir
from support.aorta_cli import aorta, start_aorta
from support.executor_contract import pid_in
from support.processes import (
    processes_with,
    wait_for_file,
    wait_for_trials,
    wait_until_no_process_has,
)
from support.waiting import patience, wait_until

# A tree that resists: a child in its own session, and one that ignores TERM.
STUBBORN = "setsid sleep 600 & (trap '' TERM; sleep 600) & touch \"$MARKS/$$\"; wait"


def started(tmp_path: Path, *arguments: str) -> tuple["subprocess.Popen[bytes]", str]:
    marks = tmp_path / "marks"
    marks.mkdir()
    mark = f"AORTA_TEST_MARK={tmp_path}"
    process = start_aorta(
        "run", *arguments, "--", "bash", "-c", STUBBORN,
        cwd=tmp_path, env={"AORTA_TEST_MARK": str(tmp_path), "MARKS": str(marks)},
    )  # fmt: skip
    wait_until(lambda: list(marks.iterdir()), "a trial")
    wait_until(lambda: len(processes_with(mark)) > 2, "a tree of processes")
    return process, mark


@pytest.mark.parametrize(
    ("signals", "code"),
    [
        ([signal.SIGINT], 130),
        ([signal.SIGINT, signal.SIGINT], 130),
        ([signal.SIGTERM], 143),
        ([signal.SIGKILL], -9),
    ],
)
def test_no_process_outlives(signals: list[signal.Signals], code: int, tmp_path: Path) -> None:
    process, mark = started(tmp_path, "--trials", "4", "--jobs", "2")
    for number in signals:
        os.kill(process.pid, number)
        time.sleep(0.3)
    out, err = process.communicate(timeout=patience())
    wait_until_no_process_has(mark)
    assert process.returncode == code, (out, err)
    if signals == [signal.SIGINT]:
        assert b"Traceback" not in err


def test_what_an_interrupted_run_says_goes_on_with_it_from_elsewhere_too(tmp_path: Path) -> None:
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    for folder in (work, elsewhere):
        folder.mkdir()
    (work / "more.yaml").write_text("version: 1\nmitigations: {calm: {CALM: '1'}}\n")
    (work / "train.sh").write_text('echo "$CALM $SEED" >> seen; [ -e go ] || sleep 600\n')
    process = start_aorta(
        *("run", "--trials", "3", "--jobs", "2", "--results-dir", str(tmp_path / "my results")),
        *("--mitigations-file", "more.yaml", "--mitigations", "calm", "--extra-env", "SEED=7"),
        *("--", "bash", "train.sh"),
        cwd=work,
    )
    wait_for_file(work / "seen")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=patience())
    (work / "go").touch()
    command = shlex.split(err.decode().partition("go on with: ")[2])
    assert command[:3] == ["aorta", "run", "--resume"], err
    planned = aorta(*command[1:], "--dry-run", cwd=elsewhere)
    assert planned.stderr.splitlines()[0].endswith(f"in local, {work}")
    done = aorta(*command[1:], "--json", cwd=elsewhere)
    assert done.exit_code == 0, done.stderr
    assert len(done.json()["trials"]) == 3
    assert set((work / "seen").read_text().splitlines()) == {"1 7"}
    newest = aorta("run", "--resume", "--results-dir", "../my results", cwd=elsewhere)
    assert (newest.exit_code, newest.stderr.count("\n")) == (2, 1)
    assert "no unfinished run" in newest.stderr


def test_a_run_of_another_verb_is_gone_on_with_by_that_verb(tmp_path: Path) -> None:
    claim_run_dir(tmp_path, "reduce", name="a")
    refused = aorta("run", "--resume", "a", cwd=tmp_path)
    assert refused.exit_code == 2
    assert refused.stderr.strip().endswith("go on with: aorta reduce --resume a")


def test_a_run_killed_before_it_wrote_down_its_request_says_so(tmp_path: Path) -> None:
    run = claim_run_dir(tmp_path, "run", name="a")
    for written in (None, '{"command": ["tr'):
        if written is not None:
            (run.private / "request.json").write_text(written)
        refused = aorta("run", "--resume", "a", cwd=tmp_path)
        assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
        assert "give the whole command line again" in refused.stderr
    assert aorta("run", "--resume", "a", "--", "true", cwd=tmp_path).exit_code == 0


def test_killed_again_and_again_it_runs_no_trial_twice(tmp_path: Path) -> None:
    count = tmp_path / "count"
    script = 'sleep 0.15; basename "$AORTA_TRIAL_DIR" >> "$COUNT"'
    words = ["run", "--trials", "12", "--jobs", "2", "--json", "-q"]
    env = {"COUNT": str(count)}
    process = start_aorta(*words, "--", "bash", "-c", script, cwd=tmp_path, env=env)
    journal = tmp_path / "results/command/.aorta/journal.jsonl"
    for kills in range(3):
        wait_for_trials(journal, 2 * kills + 1)
        process.kill()
        process.communicate(timeout=patience())
        process = start_aorta(*words, "--resume", "--", "bash", "-c", script, cwd=tmp_path, env=env)
    out, err = process.communicate(timeout=patience())
    assert process.returncode == 0, err
    report = json.loads(out)
    assert len(report["trials"]) == 12
    assert report["resumed_trials"] > 0
    # A trial that finished in the very moment of the kill may have run and not been written down.
    again = [name for name, runs in Counter(count.read_text().split()).items() if runs > 1]
    records = read_records(journal)
    assert len({record.index for record in records}) == len(records) == 12
    assert len(again) <= 6


def test_a_finished_run_resumed_executes_nothing(tmp_path: Path) -> None:
    script = 'echo x >> "$COUNT"'
    env = {"COUNT": str(tmp_path / "count")}
    words = ["run", "--trials", "3"]
    aorta(*words, "--", "bash", "-c", script, cwd=tmp_path, env=env)
    done = aorta(
        *words, "--resume", "results/command", "--", "bash", "-c", script, cwd=tmp_path, env=env
    )
    assert done.exit_code == 0
    assert "3 of 3 trials came from the journal" in done.stderr
    assert (tmp_path / "count").read_text() == "x\n" * 3


def test_another_command_is_refused_on_resume(tmp_path: Path) -> None:
    aorta("run", "--", "true", cwd=tmp_path)
    done = aorta("run", "--resume", "results/command", "--", "false", cwd=tmp_path)
    assert done.exit_code == 2
    assert "the workload changed since this run began" in done.stderr


def test_a_run_directory_in_use_is_refused(tmp_path: Path) -> None:
    process = start_aorta("run", "--", "sleep", "60", cwd=tmp_path)
    wait_for_file(tmp_path / "results/command/.aorta/journal.jsonl")
    done = aorta("run", "--resume", "results/command", "--", "sleep", "60", cwd=tmp_path)
    process.terminate()
    process.communicate(timeout=patience())
    assert done.exit_code == 2
    assert f"process {process.pid} on" in done.stderr
    assert "is running this already" in done.stderr


def test_a_closed_stdout_is_no_traceback(tmp_path: Path) -> None:
    process = start_aorta("run", "--json", "-q", "--", "sleep", "0.3", cwd=tmp_path)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr as words:
        err = words.read()
    process.wait(patience())
    assert b"Traceback" not in err


def test_a_trial_whose_keeper_is_killed_is_counted_as_an_error_and_stdout_is_one_document(
    tmp_path: Path,
) -> None:
    script = (
        "[ -e again ] || { touch again; echo $PPID > keeper.new; mv keeper.new keeper; sleep 300; }"
    )
    process = start_aorta(
        "run", "--trials", "1", "--json", "--", "bash", "-c", script, cwd=tmp_path
    )
    os.kill(pid_in(tmp_path / "keeper"), signal.SIGKILL)
    out, err = process.communicate(timeout=patience())
    assert process.returncode == 1, (out, err)
    assert out.count(b"\n") == 1, out
    assert json.loads(out)["counts"]["error"] == 1, out


def test_a_run_that_no_trial_could_tell_anything_is_exit_5_and_tried_again_by_a_resume(
    tmp_path: Path,
) -> None:
    """What keeps each trial is killed until there is a file `calm`."""
    script = "echo >> ran; [ -e calm ] || { kill -9 $PPID; sleep 60; }"
    words = ("--trials", "2", "--json", "-q")
    done = aorta("run", *words, "--", "bash", "-c", script, cwd=tmp_path)
    assert done.exit_code == 5, done.stderr
    assert done.json()["status"] == "infrastructure"
    assert "no trial could tell: " in done.stderr
    assert "--resume results/command" in done.stderr
    again = aorta("run", "--resume", "--json", "-q", cwd=tmp_path)
    assert again.exit_code == 5
    assert (tmp_path / "ran").read_text().count("\n") == 6, "three more were tried"
    (tmp_path / "calm").touch()
    resumed = aorta("run", "--resume", "--json", "-q", cwd=tmp_path)
    assert resumed.exit_code == 1, "some of its trials could not tell"
    assert resumed.json()["counts"] == {"reproduced": 0, "clean": 2, "other": 0, "error": 6}


def test_a_run_whose_script_changed_since_is_not_gone_on_with(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text("echo loss went up >&2; exit 1\n")
    assert aorta("run", "--trials", "2", "--", "bash", "train.sh", cwd=tmp_path).exit_code == 1
    script.write_text("exit 0\n")
    words = ["run", "--trials", "2", "--resume", "results/command"]
    refused = aorta(*words, "--", "bash", "train.sh", cwd=tmp_path)
    assert refused.exit_code == 2
    assert "the script train.sh changed since this run began" in refused.stderr


def test_a_rank_left_over_in_a_shell_does_not_throw_the_results_away(tmp_path: Path) -> None:
    done = aorta("run", "--json", "--", "true", cwd=tmp_path, env={"RANK": "1"})
    assert Path(tmp_path, done.json()["run_dir"], "result.json").is_file()
