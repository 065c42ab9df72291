"""What people who use `git bisect run` count on."""

import re
from pathlib import Path

import pytest

from support.aorta_cli import Finished, aorta
from support.git_repositories import Repository, numbered


def bisect(repository: Repository, out: Path, *words: str | Path) -> Finished:
    how = ("--json", "--no-checks", "--output-prefix", out)
    return aorta("bisect", *how, *words, cwd=repository.path)


def fails_from(number: int) -> tuple[str, ...]:
    return (
        "--",
        "sh",
        "-c",
        f"test $(cat number) -lt {number} || {{ echo Error: broken; exit 1; }}",
    )


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ("exit 124", "exit 143"),
        ("exit 127", "exit 255"),
        ("kill -KILL $$", "kill -SEGV $$"),
    ],
)
def test_every_ordinary_exit_code_and_a_crash_are_bad(
    tmp_path: Path, first: str, last: str
) -> None:
    repository, shas = numbered(tmp_path / "repo", 3)
    script = f"case $(cat number) in 1) {first};; 2) {last};; esac"
    words = ("--good", shas[0], "--", "sh", "-c", script)
    found = bisect(repository, tmp_path / "out", *words).json()
    assert found["culprits"][0]["bad"] == shas[1]


def test_a_script_that_no_commit_has_tests_every_commit(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 12)
    script = repository.path / "check it.sh"
    script.write_text("#!/bin/sh\ntest $(cat number) -lt 7\n")
    script.chmod(0o755)
    done = bisect(repository, tmp_path / "out", "--good", shas[0], "--", "./check it.sh")
    assert done.json()["culprits"][0]["bad"] == shas[7], done.stderr
    assert "is not in every commit" in done.stderr
    assert str(script) in done.json()["reproduce"]["bad"]


def test_a_script_of_the_repository_is_the_one_of_each_commit(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "repo")
    script = "test $(cat number) -lt {limit}\n"
    shas = [
        repository.commit(f"commit {i}", {"number": f"{i}\n", "check.sh": script.format(limit=99)})
        for i in range(8)
    ]
    shas.append(repository.commit("stricter", {"check.sh": script.format(limit=3)}))
    found = bisect(repository, tmp_path / "out", "--good", shas[0], "--", "sh", "check.sh").json()
    assert found["culprits"][0]["title"] == "stricter"


def merged(tmp_path: Path) -> tuple[Repository, list[str], str]:
    """A branch of four commits, the second of which breaks it, merged between others."""
    repository, shas = numbered(tmp_path / "repo", 4)
    repository.git("checkout", "--quiet", "-b", "branch")
    inner = [
        repository.commit(f"branch {i}", {"other": "bad\n" if i >= 1 else "good\n"})
        for i in range(4)
    ]
    repository.git("checkout", "--quiet", "main")
    repository.commit("beside", {"number": "4\n"})
    repository.git("merge", "--quiet", "--no-ff", "--message=merge it", "branch")
    merge = repository.head
    repository.commit("after", {"number": "5\n"})
    return repository, [shas[0], merge, *inner], inner[1]


def test_first_parent_names_the_merge_and_its_absence_the_commit_it_merged(tmp_path: Path) -> None:
    repository, (good, merge, *_), culprit = merged(tmp_path)
    words = ("--good", good, "--", "sh", "-c", "! grep -q bad other")
    inside = bisect(repository, tmp_path / "out", *words).json()
    assert inside["culprits"][0]["bad"] == culprit
    outside = bisect(repository, tmp_path / "two", "--first-parent", *words).json()
    assert outside["culprits"][0]["bad"] == merge
    assert outside["culprits"][0]["title"] == "merge it"


def test_every_line_tells_the_same_number_of_commits(tmp_path: Path) -> None:
    repository, (good, *_), _ = merged(tmp_path)
    words = ("--good", good, "--", "sh", "-c", "! grep -q bad other")
    for flags, count in (((), 10), (("--first-parent",), 6)):
        planned = bisect(repository, tmp_path / "out", "--dry-run", *flags, *words).json()
        assert planned["packages"][0]["commits"] == count
        done = bisect(repository, tmp_path / f"out{count}", *flags, *words)
        assert re.findall(r"bisecting the changes of .*\((\d+)\)", done.stderr) == [str(count)]
        possible = re.findall(r"(\d+) commits? still possible", done.stderr)
        assert possible[0] == str(count), done.stderr


def test_a_repository_named_by_variables_is_read_and_never_moved(tmp_path: Path) -> None:
    """As in a hook, in `rebase --exec`, or in an alias."""
    repository, shas = numbered(tmp_path / "repo", 9)
    git = repository.path / ".git"
    variables = {
        "GIT_DIR": str(git),
        "GIT_WORK_TREE": str(repository.path),
        "GIT_INDEX_FILE": str(git / "index"),
        "GIT_PREFIX": "",
    }
    words = ("--good", shas[0], "--no-checks", "--json", "--output-prefix", tmp_path / "out")
    done = aorta("bisect", *words, *fails_from(5), cwd=repository.path, env=variables)
    assert done.json()["culprits"][0]["bad"] == shas[5], done.stderr
    assert repository.git("symbolic-ref", "HEAD") == "refs/heads/main"
    assert repository.git("status", "--porcelain") == ""


def test_any_failing_exit_is_bad_and_how_many_failed_otherwise_is_said(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 17)
    script = (
        "n=$(cat number); test $n -lt 6 || { echo Error: kind $(echo $n | tr 0-9 a-j); exit $n; }"
    )
    words = ("--good", shas[0], "--", "sh", "-c", script)
    found = bisect(repository, tmp_path / "out", *words).json()
    assert found["culprits"][0]["bad"] == shas[6]
    first, *kinds, hint = found["failed_differently"]
    assert first.endswith("failed differently:")
    assert any("Error: kind" in kind for kind in kinds)
    assert first in (tmp_path / "out" / "report.md").read_text()
    assert "--same-failure" in hint


def test_a_linked_interpreter_and_a_script_outside_the_repository_are_found_by_every_state(
    tmp_path: Path,
) -> None:
    repository, shas = numbered(tmp_path / "repo", 9)
    (repository.path / "env").mkdir()
    (repository.path / "env" / "sh").symlink_to("/bin/sh")
    (tmp_path / "check.sh").write_text("test $(cat number) -lt 4\n")
    words = ("--good", shas[0], "--", "env/sh", "../check.sh")
    done = bisect(repository, tmp_path / "out", *words)
    assert done.json()["culprits"][0]["bad"] == shas[4], done.stderr


def test_a_script_that_only_the_newest_commit_has_tests_every_commit(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 9)
    shas.append(repository.commit("add a test", {"check.sh": "test $(cat number) -lt 3\n"}))
    done = bisect(repository, tmp_path / "out", "--good", shas[0], "--", "sh", "check.sh")
    assert done.json()["culprits"][0]["bad"] == shas[3], done.stderr


def test_an_end_that_cannot_be_tested_is_taken_as_it_was_said(tmp_path: Path) -> None:
    """And the commits beside it that cannot be tested either are jumped over, not walked
    through.
    """
    repository, shas = numbered(tmp_path / "repo", 64)
    script = "n=$(cat number); test $n -lt 40 && exit 125; test $n -lt 50"
    found = bisect(repository, tmp_path / "out", "--good", shas[0], "--", "sh", "-c", script).json()
    assert [said["bad"] for said in found["culprits"]] == [shas[50]]
    assert any("the good end cannot be built or tested" in said for said in found["warnings"])
    assert found["tests"] < 25


def test_a_bare_repository_is_bisected(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 9)
    repository.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare.git"))
    bare = Repository(tmp_path / "bare.git")
    found = bisect(bare, tmp_path / "out", "--good", shas[0], *fails_from(5)).json()
    assert found["culprits"][0]["bad"] == shas[5]


def test_a_run_in_the_repository_leaves_no_untracked_file_and_is_gone_on_with_by_resume_alone(
    tmp_path: Path,
) -> None:
    repository, shas = numbered(tmp_path / "repo", 40)
    words = ("--good", shas[0], "--no-checks", "--max-trials", "4", *fails_from(23))
    cut = aorta("bisect", *words, cwd=repository.path)
    assert cut.exit_code == 4
    assert repository.git("status", "--porcelain") == ""
    done = aorta("bisect", "--resume", "--json", cwd=repository.path)
    assert done.json()["culprits"][0]["bad"] == shas[23], done.stderr
    assert done.json()["resumed_trials"] == 4


def test_side_by_side_with_few_trials_it_ends(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 30)
    words = ("--good", shas[0], "--jobs", "2", "--max-trials", "5", *fails_from(11))
    done = bisect(repository, tmp_path / "out", *words)
    assert done.exit_code == 4
    assert done.json()["tests"] <= 5


def test_without_checks_it_takes_what_git_takes_and_the_two_ends(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 33)
    words = ("--good", shas[0], *fails_from(11))
    found = bisect(repository, tmp_path / "out", *words).json()
    assert found["status"] == "found"
    assert found["culprits"][0]["bad"] == shas[11]
    assert found["tests"] <= 5 + 2


def test_what_is_left_is_counted_down_in_commits_and_tests(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 41)
    words = ("--good", shas[0], "--json", *fails_from(17))
    done = aorta("bisect", "--output-prefix", tmp_path / "out", *words, cwd=repository.path)
    said = re.findall(r"(\d+) commits? still possible, about (\d+) more tests?, [\d.]", done.stderr)
    possible = [int(commits) for commits, _ in said]
    assert possible[0] == 40
    assert possible[-1] == 1
    assert possible == sorted(possible, reverse=True)
    left = done.json()["tests"] - 2  # both ends are tried before
    assert len(said) == left
    for place, (_, tests) in enumerate(said):
        assert abs(int(tests) - (left - place)) <= 1
