"""`aorta run` as its user types it."""

import json
import subprocess
from pathlib import Path

import pytest

from support.aorta_cli import COMMAND, aorta, environ


def test_every_trial_clean_is_exit_0_and_one_document(tmp_path: Path) -> None:
    done = aorta("run", "--trials", "3", "--json", "--", "true", cwd=tmp_path)
    assert done.exit_code == 0
    report = done.json()
    assert report["schema"] == "aorta.run/1"
    assert [t["outcome"] for t in report["trials"]] == ["clean"] * 3
    assert report["rate"]["of"] == 3
    assert report["rate"]["reproduced"] == 0
    assert 0.56 < report["rate"]["high"] < 0.57
    assert report["workload"] == "command"


def test_a_failing_trial_is_exit_1_with_its_code_and_a_record(tmp_path: Path) -> None:
    done = aorta("run", "--trials", "2", "--json", "--", "bash", "-c", "exit 7", cwd=tmp_path)
    assert done.exit_code == 1
    trials = done.json()["trials"]
    assert [t["exit_code"] for t in trials] == [7, 7]
    record = json.loads((tmp_path / trials[0]["path"]).read_text())
    assert record["schema_version"] == "0.1"
    assert record["trial_id"] == "command_d0_m0_t0"
    assert record["exit_status"] == "workload_failed"
    assert (tmp_path / "results" / "command" / "trial_d0_m0_t1.json").is_file()


def test_the_summary_is_for_people(tmp_path: Path) -> None:
    done = aorta(
        "run", "--trials", "2", "--", "bash", "-c", "echo ValueError: x >&2; exit 1", cwd=tmp_path
    )
    assert "2 of 2 trials reproduced the failure (95 % interval 34-100 %)" in done.stdout
    assert "exit 1 | ValueError: x" in done.stdout
    assert "trial 1: reproduced" in done.stderr


def test_a_second_run_never_overwrites_the_first(tmp_path: Path) -> None:
    for expected in ("command", "command-2", "command-3"):
        report = aorta("run", "--json", "-q", "--", "true", cwd=tmp_path).json()
        assert report["run_dir"] == f"results/{expected}"


def test_a_command_that_does_not_exist_is_an_error_and_no_reproduction(tmp_path: Path) -> None:
    refused = aorta("run", "--trials", "5", "--json", "--", "/no/such/thing", cwd=tmp_path)
    assert refused.exit_code == 2
    assert refused.json()["error"]["kind"] == "usage"
    (tmp_path / "odd").write_text("#!/no/such/interpreter\n")
    (tmp_path / "odd").chmod(0o755)
    done = aorta("run", "--trials", "5", "--json", "--", "./odd", cwd=tmp_path)
    assert done.exit_code == 5
    assert "no trial could tell: could not start './odd'" in done.stderr
    report = done.json()
    assert {t["outcome"] for t in report["trials"]} == {"error"}
    assert report["rate"] == {"reproduced": 0, "of": 0, "low": 0.0, "high": 1.0}
    assert "No such file or directory" in report["trials"][0]["why"]


def test_another_failure_is_other_and_is_shown(tmp_path: Path) -> None:
    script = (
        'n=$(wc -l < "$COUNT" 2>/dev/null || echo 0); echo x >> "$COUNT"; '
        'if [ "$n" = 1 ]; then echo "ImportError: gone" >&2; else echo "ValueError: bad" >&2; fi; '
        "exit 1"
    )
    done = aorta(
        "run", "--trials", "3", "--", "bash", "-c", script,
        cwd=tmp_path, env={"COUNT": str(tmp_path / "count")},
    )  # fmt: skip
    assert "2 reproduced   0 clean   1 other   0 error" in done.stdout
    assert "trial 1: other: another failure: exit 1 | ImportError: gone" in done.stdout


def test_a_regex_ends_a_trial_at_its_first_match(tmp_path: Path) -> None:
    done = aorta(
        "run", "--oracle", "regex", "--pattern", "NaN at", "--stream", "stdout", "--json",
        "--", "bash", "-c", "echo NaN at 3; sleep 600", cwd=tmp_path,
    )  # fmt: skip
    assert done.json()["trials"][0]["outcome"] == "reproduced"


def test_silence_is_a_hang_and_a_timeout_is_not(tmp_path: Path) -> None:
    hang = aorta(
        "run",
        "--oracle",
        "hang",
        "--silent-for",
        "500ms",
        "--json",
        "--",
        "sleep",
        "600",
        cwd=tmp_path,
    )
    assert hang.json()["trials"][0]["outcome"] == "reproduced"
    late = aorta("run", "--timeout", "0.5", "--json", "--", "sleep", "600", cwd=tmp_path)
    assert {t["outcome"] for t in late.json()["trials"]} == {"error"}
    assert late.json()["trials"][0]["timed_out"] is True


def test_a_metric_from_a_file_is_compared(tmp_path: Path) -> None:
    script = 'echo "{\\"a\\": {\\"loss\\": 3.5}}" > "$AORTA_TRIAL_DIR/m.json"'
    done = aorta(
        "run", "--oracle", "metric", "--metric-file", "m.json", "--metric-key", "a.loss",
        "--above", "3", "--json", "--", "bash", "-c", script, cwd=tmp_path,
    )  # fmt: skip
    assert done.json()["trials"][0]["why"] == "the metric is 3.5"
    assert done.exit_code == 1


def test_layers_reach_the_command_and_the_command_line_wins(tmp_path: Path) -> None:
    sidecar = tmp_path / "more.json"
    sidecar.write_text(json.dumps({"version": 1, "mitigations": {"mine": {"A": "1", "B": "1"}}}))
    done = aorta(
        "run", "--mitigations", "mine", "--mitigations-file", sidecar, "--extra-env", "B=x,y=z",
        "--json", "--", "bash", "-c", 'test "$A/$B" = "1/x,y=z"', cwd=tmp_path,
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr


def test_a_registered_workload_runs_in_a_child_and_gives_step_times(tmp_path: Path) -> None:
    done = aorta("run", "--workload", "half_nan", "--trials", "2", "--json", cwd=tmp_path)
    report = done.json()
    assert done.exit_code == 1
    assert report["counts"]["reproduced"] == 2
    assert report["step_time_ms"]["count"] > 0
    record = json.loads((tmp_path / report["trials"][0]["path"]).read_text())
    assert record["result"]["failure_count"] > 0
    assert record["env"]["schema_version"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run"], "give either --workload NAME or a command behind --"),
        (["run", "--workload", "half_nan", "--", "true"], "give either --workload NAME"),
        (["run", "--workload", "half_nn"], "unknown workload 'half_nn'"),
        (["run", "--mitigations", "tf32_of", "--", "true"], "did you mean tf32_off"),
        (["run", "--environment", "nowhere", "--", "true"], "unknown environment 'nowhere'"),
        (["run", "--trials", "0", "--", "true"], "--trials"),
        (["run", "--timeout", "soon", "--", "true"], "is not a duration"),
        (["run", "--oracle", "regex", "--", "true"], "oracle.pattern"),
        (["run", "--pattern", "(", "--", "true"], "is not a regular expression"),
        (["run", "--exit-codes", "1,x", "--", "true"], "'x' is not a number"),
        (["run", "--extra-env", "s3cret", "--", "true"], "expected NAME=VALUE"),
        (["run", "--executor", "moon", "--", "true"], "unknown executor 'moon'"),
        (["run", "--resume", "nowhere", "--", "true"], "no run directory"),
        (["rum"], "there is no verb 'rum'; did you mean 'run'?"),
    ],
)
def test_a_wrong_command_line_is_exit_2_one_line_and_nothing_on_disk(
    arguments: list[str], words: str, tmp_path: Path
) -> None:
    done = aorta(*arguments, cwd=tmp_path)
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert "s3cret" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_results_cannot_go_into_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = aorta("run", "-q", "--results-dir", "file", "--", "true", cwd=tmp_path)
    assert (done.exit_code, done.stderr) == (
        2,
        "aorta: file: this is a file; results need a directory\n",
    )


def test_a_current_directory_that_is_gone_is_one_line(tmp_path: Path) -> None:
    place = tmp_path / "gone"
    place.mkdir()
    script = f"cd {place} && rmdir {place} && {' '.join(COMMAND)} run -- true"
    done = subprocess.run(["bash", "-c", script], env=environ(), capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "aorta: the current directory is gone; cd to one that exists\n"


def test_an_error_is_a_document_too(tmp_path: Path) -> None:
    done = aorta("run", "--json", "--workload", "nope", cwd=tmp_path)
    error = done.json()
    assert error["schema"] == "aorta.error/1"
    assert error["error"]["kind"] == "registry"
    assert done.exit_code == 2


def test_json_behind_the_dashes_belongs_to_the_command(tmp_path: Path) -> None:
    done = aorta("run", "-q", "--", "bash", "-c", "exit 0", "--json", cwd=tmp_path)
    assert done.stdout.startswith("command: 0 of 1 trials reproduced")


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    done = aorta(
        "run", "--dry-run", "--trials", "4", "--", "python", "train.py", "a b", cwd=tmp_path
    )
    assert done.exit_code == 0
    assert "4 trials of command" in done.stderr
    assert "python train.py 'a b'" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_jobs_run_side_by_side(tmp_path: Path) -> None:
    """Two trials that wait for each other end only if both run at once."""
    meet = 'touch "$PLACE/$$"; until [ $(ls "$PLACE" | wc -l) = 2 ]; do sleep 0.05; done'
    place = tmp_path / "place"
    place.mkdir()
    done = aorta(
        "run", "--jobs", "2", "--trials", "2", "--timeout", "60", "--json", "--", "bash", "-c", meet,
        cwd=tmp_path, env={"PLACE": str(place)},
    )  # fmt: skip
    assert done.exit_code == 0


def test_a_full_disk_is_exit_5_and_one_line(tmp_path: Path, small_disk: Path) -> None:
    script = f"dd if=/dev/zero of={small_disk}/fill bs=4096 2>/dev/null; exit 1"
    done = aorta(
        "run", "--results-dir", small_disk / "results", "--trials", "2", "-q",
        "--", "bash", "-c", script, cwd=tmp_path,
    )  # fmt: skip
    assert done.exit_code == 5
    assert "No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_under_torchrun_only_rank_0_writes(tmp_path: Path) -> None:
    for rank in ("0", "1"):
        done = aorta(
            "run", "--trials", "2", "--", "true",
            cwd=tmp_path, env={"RANK": rank, "WORLD_SIZE": "2"},
        )  # fmt: skip
        assert done.exit_code == 0, done.stderr
    assert {place.name for place in (tmp_path / "results").iterdir()} == {".gitignore", "command"}
