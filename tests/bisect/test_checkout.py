"""Checkouts for trials: a fault of git is no property of a commit."""

from pathlib import Path

import pytest

from aorta.runtimes.checkout import GIT_FAULT, check_out
from support.aorta_cli import aorta
from support.git_repositories import Repository, numbered


def test_a_tree_whose_checkout_was_killed_is_made_anew(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 3)
    tree = tmp_path / "trees" / "package"
    check_out(str(tree), str(repository.path), shas[0])
    own = Path(Repository(tree).git("rev-parse", "--absolute-git-dir"))
    for name in ("index.lock", "HEAD.lock"):
        (own / name).touch()
    check_out(str(tree), str(repository.path), shas[2])
    assert (tree / "number").read_text() == "2\n"
    assert repository.git("status", "--porcelain") == ""


def test_a_commit_that_git_cannot_check_out_is_a_fault_and_not_an_untestable_state(
    tmp_path: Path,
) -> None:
    repository, shas = numbered(tmp_path / "repo", 9)
    blob = repository.git("rev-parse", f"{shas[4]}:number")
    (repository.path / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(SystemExit) as left:
        check_out(str(tmp_path / "tree"), str(repository.path), shas[4])
    assert left.value.code == GIT_FAULT
    words = ("--good", shas[0], "--json", "--output-prefix", tmp_path / "out")
    command = ("--", "sh", "-c", "test $(cat number) -lt 6")
    done = aorta("bisect", *words, *command, cwd=repository.path)
    assert done.exit_code == 5
    assert "git" in done.stderr


def test_a_build_fix_that_does_not_apply_leaves_those_before_it(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 3)
    fix = repository.commit("fix", {"fixed": "yes"})
    other = repository.commit("other", {"number": "other\n"})
    last = repository.commit("last", {"also": "yes"})
    tree = tmp_path / "tree"
    check_out(str(tree), str(repository.path), shas[0], (fix, other, last))
    assert (tree / "number").read_text() == "0\n"
    assert (tree / "fixed").exists()
    assert (tree / "also").exists()
    check_out(str(tree), str(repository.path), shas[1])
    assert Repository(tree).git("status", "--porcelain") == ""


def test_many_jobs_beside_each_other_leave_git_whole(tmp_path: Path) -> None:
    repository, shas = numbered(tmp_path / "repo", 40)
    words = (
        "--good",
        shas[0],
        "--jobs",
        "5",
        "--no-checks",
        "--json",
        "--output-prefix",
        tmp_path / "out",
    )
    command = ("--", "sh", "-c", "test $(cat number) -lt 17")
    done = aorta("bisect", *words, *command, cwd=repository.path)
    assert done.json()["culprits"][0]["bad"] == shas[17], done.stderr
    assert done.json()["skipped"] == []
    assert repository.worktrees() == [str(repository.path)]


def test_submodules_come_from_what_is_at_hand(tmp_path: Path) -> None:
    inner, _ = numbered(tmp_path / "inner", 2)
    repository, shas = numbered(tmp_path / "repo", 2)
    repository.git("-c", "protocol.file.allow=always", "submodule", "add", str(inner.path), "inner")
    shas.append(repository.commit("with a submodule", {}))
    inner.path.rename(tmp_path / "gone")
    tree = tmp_path / "tree"
    check_out(str(tree), str(repository.path), shas[-1])
    assert (tree / "inner" / "number").read_text() == "1\n"
