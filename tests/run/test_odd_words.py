"""Words, names, times and streams that are not what everybody has."""

import json
import subprocess
from pathlib import Path

import pytest

from support.aorta_cli import COMMAND, aorta, environ
from support.waiting import patience

GRUESSE = b"gr\xfc\xdfe"  # Latin-1


def run(tmp_path: Path, *words: str | bytes) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        (*COMMAND, *words),
        cwd=tmp_path,
        env=environ(),
        capture_output=True,
        check=False,
        timeout=patience(),
    )


def test_a_word_that_is_no_utf_8_reaches_the_command_and_every_record_can_be_read(
    tmp_path: Path,
) -> None:
    done = run(tmp_path, "run", "--json", "--", "echo", GRUESSE)
    assert done.returncode == 0, done.stderr
    [trial] = json.loads(done.stdout)["trials"]
    record = json.loads((tmp_path / trial["path"]).read_text("utf-8"))
    assert record["config"]["command"][1].encode("utf-8", "surrogateescape") == GRUESSE
    assert (tmp_path / record["process"]["stdout"]).read_bytes() == GRUESSE + b"\n"


def test_a_word_that_is_no_utf_8_is_the_same_in_a_run_that_is_gone_on_with(tmp_path: Path) -> None:
    assert run(tmp_path, "run", "--", "bash", "-c", b": " + GRUESSE).returncode == 0
    again = run(tmp_path, "run", "--json", "--resume", "results/command")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["resumed_trials"] == 1


def test_a_results_directory_whose_name_is_no_utf_8_is_one_like_any_other(tmp_path: Path) -> None:
    done = run(tmp_path, "run", "--json", "--results-dir", GRUESSE, "--", "true")
    assert done.returncode == 0, done.stderr
    place = json.loads(done.stdout)["run_dir"].encode("utf-8", "surrogateescape")
    assert place == GRUESSE + b"/command"


def test_a_kept_file_whose_name_is_no_utf_8_ships_under_its_name(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    for name in (b"a", b"b", GRUESSE):
        (tmp_path / "shards" / name.decode("utf-8", "surrogateescape")).write_bytes(name)
    (tmp_path / "f.sh").write_bytes(b'[ -e "$S"/' + GRUESSE + b" ] && echo BOOM\n")
    (tmp_path / "aorta.yaml").write_text(
        "workload: {command: bash f.sh, cwd: ./}\n"
        "oracle: {kind: regex, pattern: BOOM}\n"
        "budget: {trials_per_candidate: 1, k_of_n_to_count_as_reproducing: 1}\n"
        "axes: [{name: S, kind: dir_subset, initial: shards}]\n"
    )
    done = run(tmp_path, "reduce", "--json", "-q", "--spec", "aorta.yaml", "--output", "out")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    [kept] = report["axes"][0]["final_items"]
    assert kept.encode("utf-8", "surrogateescape") == GRUESSE
    shipped = tmp_path / report["run_dir"] / "shrunken"
    assert [path.read_bytes() for path in (shipped / "shards").iterdir()] == [GRUESSE]
    again = subprocess.run(["bash", shipped / "run_repro.sh"], capture_output=True, check=False)
    assert again.stdout == b"BOOM\n"


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_a_closed_stream_changes_nothing(tmp_path: Path, closed: str) -> None:
    command = " ".join(COMMAND)
    line = f"{command} run --results-dir out -- sh -c 'echo said; exit 3' {closed}"
    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, env=environ(), capture_output=True, check=False
    )
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    [log] = tmp_path.rglob("stdout.log")
    assert log.read_text() == "said\n"


@pytest.mark.parametrize("time", ["99999999999999999999", "1e300", "4000d"])
def test_a_time_that_nobody_waits_for_is_refused_in_one_line(tmp_path: Path, time: str) -> None:
    done = aorta("run", "--timeout", time, "--", "true", cwd=tmp_path)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert "longer than ten years" in done.stderr


@pytest.mark.parametrize("verb", [["run"], ["triage", "run", "--trials", "1"]])
def test_an_empty_name_of_a_workload_is_refused(tmp_path: Path, verb: list[str]) -> None:
    done = aorta(*verb, "--workload", "", "--", "true", cwd=tmp_path)
    assert done.exit_code == 2
    assert "--workload is empty" in done.stderr
    assert list(tmp_path.iterdir()) == []
