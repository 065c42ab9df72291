"""Real git repositories for tests: commits with chosen dates, branches and merges."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_WHO = {
    "GIT_AUTHOR_NAME": "Ann",
    "GIT_AUTHOR_EMAIL": "ann@example.com",
    "GIT_COMMITTER_NAME": "Ann",
    "GIT_COMMITTER_EMAIL": "ann@example.com",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
}
_EPOCH = 1_700_000_000


@dataclass
class Repository:
    """`commit` writes files and commits them; the clock moves on by a minute a commit unless told."""

    path: Path
    clock: int = _EPOCH

    @classmethod
    def create(cls, path: Path) -> "Repository":
        path.mkdir(parents=True)
        repository = cls(path)
        repository.git("init", "--quiet", "--initial-branch=main")
        return repository

    def git(self, *arguments: str, at: int | None = None) -> str:
        date = f"{at if at is not None else self.clock} +0000"
        done = subprocess.run(
            ("git", "-C", str(self.path), *arguments),
            env={**os.environ, **_WHO, "GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"git {arguments}: {done.stderr}"
        return done.stdout.strip()

    def commit(self, title: str, files: Mapping[str, str], *, at: int | None = None) -> str:
        for name, content in files.items():
            (self.path / name).write_text(content)
        self.git("add", "--all")
        self.clock += 60
        self.git("commit", "--quiet", "--allow-empty", f"--message={title}", at=at)
        return self.head

    @property
    def head(self) -> str:
        return self.git("rev-parse", "HEAD")

    def worktrees(self) -> list[str]:
        listed = self.git("worktree", "list", "--porcelain").splitlines()
        return [line.split(" ", 1)[1] for line in listed if line.startswith("worktree ")]


def numbered(path: Path, count: int, *, name: str = "number") -> tuple[Repository, list[str]]:
    """Commits 0..count-1, each writing its own number into one file."""
    repository = Repository.create(path)
    shas = [repository.commit(f"commit {i}", {name: f"{i}\n"}) for i in range(count)]
    return repository, shas
