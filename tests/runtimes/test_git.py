"""What is asked of a git repository, on repositories that git made."""

import subprocess
from pathlib import Path

from aorta.runtimes.git import Repository, laid_out


def git(cwd: Path, *words: str) -> str:
    named = ("-c", "user.name=a", "-c", "user.email=a@b")
    done = subprocess.run(
        ("git", *named, *words), cwd=cwd, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_revision_laid_out_has_all_that_a_checkout_has_and_leaves_no_trace(
    tmp_path: Path,
) -> None:
    """Not what an archive of it would have: files that are not for export are there too."""
    repository = tmp_path / "repository"
    (repository / "inside").mkdir(parents=True)
    git(repository, "init", "-q")
    (repository / ".gitattributes").write_text("inside/data.txt export-ignore\n")
    (repository / "inside" / "data.txt").write_text("old")
    (repository / "inside" / "link").symlink_to("data.txt")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "one")
    (repository / "inside" / "data.txt").write_text("new")
    git(repository, "commit", "-qam", "two")
    before = (git(repository, "status", "--porcelain"), git(repository, "worktree", "list"))
    scratch = tmp_path / "scratch"
    commit = Repository.on_host(repository).resolve("HEAD~1")
    (scratch / f"{commit}.draft" / "half").mkdir(parents=True)  # of a run that was killed
    for _ in range(2):
        there = laid_out("HEAD~1", repository / "inside", scratch)
        assert (there / "link").read_text() == "old"
        assert [entry.name for entry in scratch.iterdir()] == [commit]
    assert (git(repository, "status", "--porcelain"), git(repository, "worktree", "list")) == before
