"""Histories as they are in life: merges, branches at both ends, dates that lie, root commits."""

from pathlib import Path

from aorta.bisect.histories import span_between
from aorta.runtimes.git import Repository as Git
from support.aorta_cli import aorta
from support.git_repositories import Repository


def culprit(repository: Repository, out: Path, *arguments: str) -> dict[str, object]:
    how = ("--output-prefix", out, "--json", "--no-checks")
    done = aorta("bisect", *how, *arguments, cwd=repository.path)
    result = done.json()
    assert result["status"] == "found", done.stderr
    found: dict[str, object] = result["culprits"][0]
    return found


def with_merge(path: Path) -> tuple[Repository, dict[str, str]]:
    """main: a0 a1 a2 M a3; a branch b0 b1 b2 b3 from a1, merged by M."""
    repository = Repository.create(path)
    shas = {}
    for name in ("a0", "a1"):
        shas[name] = repository.commit(name, {name: name})
    repository.git("checkout", "--quiet", "-b", "branch")
    for name in ("b0", "b1", "b2", "b3"):
        shas[name] = repository.commit(name, {name: name})
    repository.git("checkout", "--quiet", "main")
    shas["a2"] = repository.commit("a2", {"a2": "a2"})
    repository.git("merge", "--quiet", "--no-ff", "--message=M", "branch")
    shas["M"] = repository.head
    shas["a3"] = repository.commit("a3", {"a3": "a3"})
    return repository, shas


def test_a_merge_is_descended_into_to_the_inner_commit(tmp_path: Path) -> None:
    repository, shas = with_merge(tmp_path / "repo")
    found = culprit(
        repository, tmp_path / "out", "--good", shas["a0"], "--", "sh", "-c", "test ! -e b2"
    )
    assert (found["good"], found["bad"]) == (shas["b1"], shas["b2"])
    assert found["title"] == "b2"


def test_a_merge_whose_sides_both_pass_is_itself_the_culprit(tmp_path: Path) -> None:
    repository, shas = with_merge(tmp_path / "repo")
    found = culprit(
        repository,
        tmp_path / "out",
        "--good",
        shas["a0"],
        "--",
        "sh",
        "-c",
        "! { test -e b2 && test -e a2; }",
    )
    assert found["bad"] == shas["M"]


def test_a_good_end_on_a_branch_that_was_merged_later_is_where_the_line_begins(
    tmp_path: Path,
) -> None:
    repository, shas = with_merge(tmp_path / "repo")
    line = span_between(Git.on_host(repository.path), shas["b1"], shas["a3"]).line
    assert [commit.title for commit in line.states] == ["b1", "b2", "b3", "M", "a3"]
    found = culprit(
        repository, tmp_path / "out", "--good", shas["b1"], "--", "sh", "-c", "test ! -e b3"
    )
    assert found["bad"] == shas["b3"]


def test_two_branches_are_joined_over_their_common_commit(tmp_path: Path) -> None:
    repository, shas = with_merge(tmp_path / "repo")
    line = span_between(Git.on_host(repository.path), shas["b1"], shas["a2"]).line
    assert [commit.title for commit in line.states] == ["b1", "b0", "a1", "a2"]
    missing_repair = culprit(
        repository,
        tmp_path / "out",
        "--good",
        shas["b1"],
        "--bad",
        shas["a2"],
        "--",
        "sh",
        "-c",
        "test -e b0",
    )
    assert missing_repair["removed"] is True
    assert missing_repair["title"] == "b0"


def test_a_root_commit_may_be_the_good_end_and_dates_may_lie(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "repo")
    dates = [500, 100, 100, 900, 50, 50, 700, 10]
    shas = [
        repository.commit(f"commit {i}", {"number": str(i)}, at=1_600_000_000 + date)
        for i, date in enumerate(dates)
    ]
    found = culprit(
        repository,
        tmp_path / "out",
        "--good",
        shas[0],
        "--",
        "sh",
        "-c",
        "test $(cat number) -lt 5",
    )
    assert found["bad"] == shas[5]
