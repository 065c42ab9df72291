"""`aorta bisect` in a repository of the host, as a user runs it."""

import json
import os
import signal
from pathlib import Path

import pytest

from support.aorta_cli import Finished, aorta, start_aorta
from support.flaky import next_fails
from support.git_repositories import Repository, numbered
from support.processes import processes_with, wait_for_file
from support.reproduced import assert_both_sides_show
from support.waiting import patience, wait_until


def bisect(
    repository: Repository,
    out: Path,
    *arguments: str | Path,
    jobs: int = 1,
    checks: bool = False,
) -> Finished:
    how = ("--output-prefix", out, "--json", "--jobs", str(jobs))
    return aorta(
        "bisect", *how, *(() if checks else ("--no-checks",)), *arguments, cwd=repository.path
    )


def fails_from(number: int) -> list[str]:
    return [
        "--",
        "sh",
        "-c",
        f"test $(cat number) -lt {number} || {{ echo Error: broken; exit 1; }}",
    ]


def test_the_first_bad_commit_is_named_with_its_author_title_and_commands(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 33)
    repository.git("remote", "add", "origin", "https://token:secret@example.com/team/project.git")
    ends = ("--good", shas[0], "--bad", "HEAD")
    done = bisect(repository, tmp_path / "out", *ends, *fails_from(21), jobs=2, checks=True)
    assert done.exit_code == 0, done.stderr
    result = done.json()
    assert result["schema"] == "aorta.bisect/1"
    assert result["status"] == "found"
    [culprit] = result["culprits"]
    assert (culprit["good"], culprit["bad"]) == (shas[20], shas[21])
    assert culprit["title"] == "commit 21"
    assert culprit["author"] == "Ann"
    assert culprit["url"] == f"https://example.com/team/project/commit/{shas[21]}"
    assert result["confidence"] >= 0.95
    assert result["good"] == {"repo": shas[20]}
    assert json.loads((tmp_path / "out" / "result.json").read_text())["culprits"] == [culprit]
    assert shas[21] in (tmp_path / "out" / "report.md").read_text()
    assert "secret" not in done.stdout + done.stderr + (tmp_path / "out/debug.log").read_text()
    assert_both_sides_show(result)
    assert repository.worktrees() == [str(repository.path)]


def test_the_users_checkout_is_not_touched_and_links_lead_to_what_the_two_sides_wrote(
    tmp_path: Path,
) -> None:
    """Dirty, and of a detached head."""
    repository, shas = numbered(tmp_path / "repo", 12)
    repository.git("checkout", "--quiet", "--detach", shas[10])
    (repository.path / "number").write_text("my own edit\n")
    (repository.path / "untracked").write_text("mine\n")
    before = repository.git("status", "--porcelain=v2", "--branch")
    script = 'cp number "$AORTA_TRIAL_DIR/kept"; test $(cat number) -lt 5'
    done = bisect(repository, tmp_path / "out", "--good", shas[0], "--", "sh", "-c", script)
    assert done.json()["culprits"][0]["bad"] == shas[5]
    for link, number in (("last-known-good", "4"), ("first-known-bad", "5")):
        kept = {path.read_text().strip() for path in (tmp_path / "out" / link).rglob("kept")}
        assert kept == {number}
    assert repository.git("status", "--porcelain=v2", "--branch") == before
    assert (repository.path / "number").read_text() == "my own edit\n"
    assert repository.worktrees() == [str(repository.path)]


def test_exit_125_skips_a_commit_and_the_answer_says_what_it_hides(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 20)
    script = "n=$(cat number); case $n in 9|10|11) exit 125;; esac; test $n -lt 11"
    result = bisect(
        repository, tmp_path / "out", "--good", shas[0], "--", "sh", "-c", script
    ).json()
    assert result["status"] == "range"
    assert [c["bad"] for c in result["culprits"]] == shas[9:13]
    assert result["range"] == [{"package": "repo", "commits": shas[9:13]}]
    skipped = {entry["versions"]["repo"] for entry in result["skipped"]}
    assert skipped == set(shas[9:12])


def test_where_it_must_be_the_same_failure_another_one_is_neither_good_nor_bad(
    tmp_path: Path,
) -> None:
    repository, shas = numbered(tmp_path / "repo", 24)
    script = (
        "n=$(cat number); if [ $n -ge 9 ] && [ $n -lt 14 ]; then echo 'Error: cannot import'; "
        "exit 3; fi;"
        "if [ $n -ge 18 ]; then echo 'Error: loss is nan'; exit 1; fi"
    )
    words = ("--same-failure", "--good", shas[0], "--", "sh", "-c", script)
    result = bisect(repository, tmp_path / "out", *words).json()
    assert result["status"] == "found"
    assert result["culprits"][0]["bad"] == shas[18]
    assert any("cannot import" in words for words in result["failed_differently"])
    assert "--same-failure" not in (tmp_path / "out" / "report.md").read_text()


def test_a_flaky_failure_is_found_with_its_rate(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 9)
    fails = next_fails(tmp_path / "count", "FPPFPFFPPFFPFPPF")
    script = f"[ $(cat number) -ge 5 ] && {fails} && {{ echo Error: flaked; exit 1; }}; exit 0"
    words = ("--good", shas[0], "--", "sh", "-c", script)
    result = bisect(repository, tmp_path / "out", *words, checks=True).json()
    assert result["status"] == "found"
    assert result["confidence"] >= 0.95
    assert 0.2 < result["rates"]["bad"] < 0.8
    assert result["tests"] > result["builds"]


def test_broken_repaired_and_broken_again_is_said_and_the_last_break_is_named(
    tmp_path: Path,
) -> None:
    repository, shas = numbered(tmp_path / "repo", 17)
    script = (
        "n=$(cat number); { [ $n -ge 3 ] && [ $n -lt 10 ]; } || [ $n -ge 13 ] && exit 1; exit 0"
    )
    words = ("--good", shas[0], "--", "sh", "-c", script)
    result = bisect(repository, tmp_path / "out", *words, jobs=1, checks=True).json()
    assert result["culprits"][0]["bad"] == shas[13]
    assert any("broken again" in warning for warning in result["warnings"])


def test_find_fix_names_the_repairing_commit(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 20)
    script = "test $(cat number) -ge 13"
    arguments = ["--bad", shas[0], "--good", shas[19], "--", "sh", "-c", script]
    refused = bisect(repository, tmp_path / "refused", *arguments)
    assert refused.exit_code == 2
    assert "--find-fix" in refused.stderr
    done = bisect(repository, tmp_path / "out", "--find-fix", *arguments)
    [culprit] = done.json()["culprits"]
    assert "One change repairs the failure: " in done.stderr
    assert (culprit["good"], culprit["bad"]) == (shas[13], shas[12])
    assert culprit["title"] == "commit 13"


def test_ends_that_both_fail_are_inconsistent(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 5)
    done = bisect(repository, tmp_path / "out", "--good", shas[0], "--", "sh", "-c", "exit 1")
    assert done.exit_code == 3
    assert done.json()["status"] == "inconsistent"


def test_what_the_first_failure_said_is_shown_at_once(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 5)
    done = bisect(
        repository,
        tmp_path / "out",
        "--good",
        shas[0],
        "--",
        "sh",
        "-c",
        "python3 -c 'import nosuch'",
    )
    assert "| ModuleNotFoundError: No module named 'nosuch'" in done.stderr


def test_the_answer_is_on_stdout_and_progress_on_stderr_unless_quiet(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 5)
    words = ("bisect", "--good", shas[0], "--no-checks", *fails_from(3))
    loud = aorta(*words, cwd=repository.path)
    quiet = aorta("bisect", "-q", *words[1:], cwd=repository.path)
    for done in (loud, quiet):
        assert done.stdout.startswith(f"One change brings the failure: repo at {shas[3][:12]}")
    assert "trial 1: reproduced" in loud.stderr
    assert quiet.stderr == ""


def test_a_program_that_neither_the_machine_nor_a_commit_has_is_refused_before_anything_runs(
    tmp_path: Path,
) -> None:
    repository, shas = numbered(tmp_path / "repo", 3)
    out = tmp_path / "out"
    for command in (["pytohn3", "-c", "1"], ["./check.sh"], ["python3", "check.py"]):
        done = bisect(repository, out, "--good", shas[0], "--", *command)
        assert done.exit_code == 2
        assert len(done.stderr.splitlines()) == 1
        assert not out.exists()
    assert (
        "did you mean 'python3'?"
        in bisect(repository, out, "--good", shas[0], "--", "pytohn3").stderr
    )


def test_a_program_that_only_the_commits_have_is_run_there(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "repo")
    check = "test $(cat number) -lt 2\n"
    shas = [
        repository.commit(f"commit {i}", {"check.sh": check, "number": f"{i}\n"}) for i in range(3)
    ]
    repository.git("rm", "--quiet", "check.sh")
    (repository.path / "sub").mkdir()
    words = ("--good", shas[0], "--bad", shas[2], "--", "sh", "check.sh")
    for place in (repository.path, repository.path / "sub"):
        done = bisect(Repository(place), tmp_path / f"out-{place.name}", *words)
        assert done.json()["culprits"][0]["bad"] == shas[2], done.stderr


def test_a_hang_is_the_failure_where_the_oracle_says_so(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 8)
    script = "echo begin; test $(cat number) -lt 5 || sleep 600"
    result = bisect(
        repository,
        tmp_path / "out",
        "--good",
        shas[0],
        "--oracle",
        "hang",
        "--silent-for",
        f"{patience(1):.1f}s",
        "--",
        "sh",
        "-c",
        script,
    ).json()
    assert result["culprits"][0]["bad"] == shas[5]


def test_a_state_that_runs_out_of_time_is_skipped(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 8)
    script = "n=$(cat number); test $n -ne 3 || sleep 600; test $n -lt 6"
    result = bisect(
        repository,
        tmp_path / "out",
        "--good",
        shas[0],
        "--timeout",
        f"{patience(2):.1f}",
        "--",
        "sh",
        "-c",
        script,
    ).json()
    assert result["culprits"][-1]["bad"] == shas[6]


def test_killed_and_resumed_it_runs_no_trial_twice(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 17)
    log = tmp_path / "ran"
    script = (
        f"echo run >> {log}; test $(wc -l < {log}) -ne 4 || sleep 600; test $(cat number) -lt 9"
    )
    arguments = ["--no-checks", "--good", shas[0], "--", "sh", "-c", script]
    running = start_aorta(
        "bisect", "--output-prefix", tmp_path / "out", *arguments, cwd=repository.path
    )
    wait_until(lambda: log.exists() and len(log.read_text().splitlines()) >= 4, "the fourth trial")
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate()
    done = aorta(
        "bisect",
        "--resume",
        tmp_path / "out",
        "--json",
        *arguments,
        cwd=repository.path,
    )
    result = done.json()
    assert result["culprits"][0]["bad"] == shas[9], done.stderr
    assert result["resumed_trials"] == 3
    assert repository.worktrees() == [str(repository.path)]
    ran = len(log.read_text().splitlines())
    again = aorta(
        "bisect",
        "--resume",
        tmp_path / "out",
        "--json",
        *arguments,
        cwd=repository.path,
    ).json()
    assert again["culprits"] == result["culprits"]
    assert len(log.read_text().splitlines()) == ran


def test_a_changed_command_is_refused_on_resume(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 5)
    bisect(repository, tmp_path / "out", "--good", shas[0], *fails_from(3))
    done = aorta(
        "bisect",
        "--resume",
        tmp_path / "out",
        "--good",
        shas[0],
        *fails_from(2),
        cwd=repository.path,
    )
    assert done.exit_code == 2
    assert "the command changed" in done.stderr


def test_interrupted_it_writes_what_it_knows_and_leaves_nothing(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 17)
    mark = tmp_path / "sleeping"
    script = f"test $(cat number) -ne 8 || {{ touch {mark}; sleep 600; }}; test $(cat number) -lt 9"
    running = start_aorta(
        "bisect",
        "--output-prefix",
        tmp_path / "out",
        "--json",
        "--good",
        shas[0],
        "--",
        "sh",
        "-c",
        script,
        cwd=repository.path,
    )
    wait_for_file(mark)
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=patience())
    assert running.returncode == 130
    assert json.loads(out)["status"] == "partial"
    assert (tmp_path / "out" / "result.json").exists()
    assert repository.worktrees() == [str(repository.path)]
    assert processes_with(f"AORTA_TRIAL_DIR={tmp_path / 'out'}") == []


def test_a_budget_ends_it_with_the_interval_known_so_far(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 33)
    words = ("--good", shas[0], "--max-trials", "4", *fails_from(20))
    done = bisect(repository, tmp_path / "out", *words, jobs=1)
    assert done.exit_code == 4
    result = done.json()
    assert result["status"] == "partial"
    assert shas[20] in {culprit["bad"] for culprit in result["culprits"]}
    assert 1 < len(result["culprits"]) < 32


def test_a_dry_run_prints_the_plan_and_runs_nothing(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 33)
    done = bisect(repository, tmp_path / "out", "--good", shas[0], "--dry-run", *fails_from(20))
    assert done.exit_code == 0
    assert done.json()["packages"][0]["commits"] == 32
    assert 5 <= done.json()["expected_builds"] <= 10
    assert not (tmp_path / "out").exists()


def test_only_a_run_that_is_not_over_is_offered_to_be_gone_on_with(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 4)
    words = ("--good", shas[0], *fails_from(2))
    assert bisect(repository, tmp_path / "over", *words).exit_code == 0
    assert bisect(repository, tmp_path / "begun", "--max-trials", "1", *words).exit_code == 4
    (tmp_path / "kept" / "notes").mkdir(parents=True)
    for name, offered in (("over", False), ("begun", True), ("kept", False)):
        done = bisect(repository, tmp_path / name, *words)
        assert (done.exit_code, "--resume" in done.stderr) == (2, offered)


@pytest.mark.parametrize(("commits", "checks"), [(30, True), (30, False), (3, True), (9, True)])
def test_a_steady_run_tries_no_more_states_than_its_plan_says(
    tmp_path: Path, commits: int, *, checks: bool
) -> None:
    repository, shas = numbered(tmp_path / "repo", commits)
    for culprit in {1, commits // 3, commits - 1}:
        words = ("--good", shas[0], "--", "sh", "-c", f"test $(cat number) -lt {culprit}")
        out = tmp_path / f"{culprit}"
        planned = bisect(repository, out, "--dry-run", *words, checks=checks).json()
        result = bisect(repository, out, *words, checks=checks).json()
        assert result["culprits"][0]["commit"] == shas[culprit]
        assert result["builds"] <= planned["expected_builds"] <= result["builds"] + 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--good", "no-such", "--", "true"], "no commit 'no-such'"),
        (["--good", "HEAD", "--bad", "HEAD", "--", "true"], "nothing differs"),
        (["--good", "HEAD~1"], "no command"),
        (["--", "true"], "nothing to bisect"),
        (["--good", "HEAD~1", "--confidence", "2", "--", "true"], "confidence"),
    ],
)
def test_a_wrong_command_line_is_one_line(tmp_path: Path, arguments: list[str], words: str) -> None:
    repository, _ = numbered(tmp_path / "repo", 3)
    done = bisect(repository, tmp_path / "out", *arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert not (tmp_path / "out").exists()
