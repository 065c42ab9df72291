"""Histories as they are in life: merges, branches at both ends, dates that lie, root commits."""

import json
from pathlib import Path

import pytest

from aorta.bisect.histories import span_between
from aorta.runtimes.git import Repository as Git
from support.aorta_cli import aorta
from support.git_repositories import Repository, numbered


def culprit(
    repository: Repository, out: Path, *arguments: str, checks: bool = False
) -> dict[str, object]:
    how = ("--output-prefix", out, "--json", *(() if checks else ("--no-checks",)))
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
    assert found["merge"] == shas["M"]


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


def test_a_path_with_spaces_and_a_submodule_works(tmp_path: Path) -> None:
    inner, inner_shas = numbered(tmp_path / "inner repo", 3)
    repository = Repository.create(tmp_path / "outer repo")
    repository.git("-c", "protocol.file.allow=always", "submodule", "add", str(inner.path), "inner")
    shas = [repository.commit("with inner", {})]
    repository.git("-C", "inner", "checkout", "--quiet", inner_shas[0])
    shas.append(repository.commit("older inner", {}))
    assert Git.on_host(repository.path).resolve("HEAD") == shas[1]
    line = span_between(Git.on_host(repository.path), shas[0], shas[1]).line
    assert [commit.sha for commit in line.states] == shas


NEEDS_THE_FEATURE = "test -e feature || exit 125; ! grep -q yes broken"


@pytest.mark.parametrize("culprit_at", [3, 7])
def test_a_feature_that_went_and_came_back_is_carried_along(
    tmp_path: Path, culprit_at: int
) -> None:
    """Gone with commit 2 and back with commit 7: with what that brings, the states between can be
    tested.
    """
    repository = Repository.create(tmp_path / "repo")
    shas = []
    for n in range(10):
        feature = repository.path / "feature"
        if n == 2:
            feature.unlink()
        files = {"number": f"{n}\n", "broken": "yes\n" if n >= culprit_at else "no\n"}
        if n in (0, 7):
            files = {"feature": "here\n", "broken": files["broken"]}
        shas.append(repository.commit(f"commit {n}", files))
    words = ("--good", shas[0], "--", "sh", "-c", NEEDS_THE_FEATURE)
    found = culprit(repository, tmp_path / "out", *words)
    assert found["commit"] == shas[culprit_at]
    assert repository.head == shas[-1]
    assert repository.worktrees() == [str(repository.path)]


def test_a_feature_that_only_a_branch_had_picked_is_carried_along(tmp_path: Path) -> None:
    """The good end is a release with the feature picked onto it; on main it comes later, and the
    break before it.
    """
    repository = Repository.create(tmp_path / "repo")
    repository.commit("base", {"number": "0\n", "broken": "no\n"})
    repository.git("checkout", "--quiet", "-b", "release")
    good = repository.commit("pick the feature", {"feature": "here\n"})
    repository.git("checkout", "--quiet", "main")
    shas = {}
    for n in range(1, 9):
        files = {"number": f"{n}\n", "broken": "yes\n" if n >= 3 else "no\n"}
        if n == 5:
            files = {"feature": "here\n"}
        shas[n] = repository.commit(f"main {n}", files)
    words = ("--good", good, "--bad", "main", "--", "sh", "-c", NEEDS_THE_FEATURE)
    found = culprit(repository, tmp_path / "out", *words)
    assert found["commit"] == shas[3]


@pytest.mark.parametrize("culprit_at", ["a2", "b2", "M"])
def test_a_feature_that_came_back_beside_a_merge_is_carried_along(
    tmp_path: Path, culprit_at: str
) -> None:
    """Gone with a1 and back with a5. Between them a branch from a1 was merged, and none of it can
    be tested.
    """
    repository = Repository.create(tmp_path / "repo")
    shas: dict[str, str] = {}

    def commit(name: str, **files: str) -> None:
        broken = {"broken": "yes\n"} if name == culprit_at else {}
        shas[name] = repository.commit(name, {name: name, **files, **broken})

    commit("a0", broken="no\n", feature="here\n")
    (repository.path / "feature").unlink()
    commit("a1")
    repository.git("checkout", "--quiet", "-b", "branch")
    for name in ("b1", "b2", "b3"):
        commit(name)
    repository.git("checkout", "--quiet", "main")
    for name in ("a2", "a3"):
        commit(name)
    repository.git("merge", "--quiet", "--no-ff", "--no-commit", "branch")
    commit("M")
    commit("a4")
    commit("a5", feature="here\n")
    commit("a6")
    words = ("--good", shas["a0"], "--", "sh", "-c", NEEDS_THE_FEATURE)
    found = culprit(repository, tmp_path / "out", *words)
    assert found["commit"] == shas[culprit_at]
    assert repository.head == shas["a6"]
    assert repository.worktrees() == [str(repository.path)]


@pytest.mark.parametrize("culprit_at", ["a2", "M"])
def test_a_feature_that_a_merge_brings_back_is_carried_along(
    tmp_path: Path, culprit_at: str
) -> None:
    """Gone from main with a1; a branch from there picks it again, and its merge brings it back to
    main.
    """
    repository = Repository.create(tmp_path / "repo")
    shas = {"a0": repository.commit("a0", {"feature": "here\n", "broken": "no\n"})}
    (repository.path / "feature").unlink()
    shas["a1"] = repository.commit("a1", {"a1": "a1"})
    repository.git("checkout", "--quiet", "-b", "branch")
    shas["b1"] = repository.commit("b1", {"b1": "b1"})
    shas["b2"] = repository.commit("b2", {"feature": "here\n"})
    repository.git("checkout", "--quiet", "main")
    for name in ("a2", "a3", "a4"):
        broken = {"broken": "yes\n"} if name == culprit_at else {}
        shas[name] = repository.commit(name, {name: name, **broken})
    repository.git("merge", "--quiet", "--no-ff", "--no-commit", "branch")
    shas["M"] = repository.commit("M", {"broken": "yes\n"} if culprit_at == "M" else {})
    repository.commit("a5", {"a5": "a5"})
    words = ("--good", shas["a0"], "--", "sh", "-c", NEEDS_THE_FEATURE)
    found = culprit(repository, tmp_path / "out", *words, checks=True)
    assert found["commit"] == shas[culprit_at]


def test_what_a_cherry_pick_makes_stays_out_of_the_repository(tmp_path: Path) -> None:
    """And the two ends are commits that the user has."""
    repository = Repository.create(tmp_path / "repo")
    shas = []
    for n in range(9):
        if n == 2:
            (repository.path / "feature").unlink()
        files = {"number": f"{n}\n", "broken": "yes\n" if n >= 4 else "no\n"}
        if n in (0, 7):
            files = {"feature": "here\n", "broken": files["broken"]}
        shas.append(repository.commit(f"commit {n}", files))
    before = repository.git("count-objects")
    found = culprit(
        repository, tmp_path / "out", *("--good", shas[0], "--", "sh", "-c"), NEEDS_THE_FEATURE
    )
    assert found["commit"] == shas[4]
    assert repository.git("count-objects") == before
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert {*result["good"].values(), *result["bad"].values()} <= set(shas)
