"""Makes one version set on this host: checks commits out into worktrees of their own, and builds them.

Runs as a process of its own (`python -m aorta.bisect.prepare JOB.json`), so that it goes through the executor like a
trial and can be killed like one. A tree counts as made only once its mark is written, after everything else.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class TreeJob:
    """One checkout: `tree` of `repository` at `sha`; `build` runs in it. A library has no repository."""

    package: str
    tree: str | None = None
    repository: str | None = None
    sha: str | None = None
    cherry_pick: Sequence[str] = ()
    build: str | None = None


@dataclass(frozen=True)
class Job:
    trees: Sequence[TreeJob]
    env: Mapping[str, str] = field(default_factory=dict)
    mark: str | None = None  # written when everything is made

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> "Job":
        content = json.loads(text)
        trees = [TreeJob(**tree) for tree in content["trees"]]
        return cls(trees, content["env"], content["mark"])


def main() -> None:
    job = Job.from_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for tree in job.trees:
        if tree.tree is not None:
            check_out(tree)
    for tree in job.trees:
        if tree.build is not None:
            build(tree, job.env)
    if job.mark is not None:
        Path(job.mark).touch()


def check_out(job: TreeJob) -> None:
    """The commit, and nothing that an earlier one left; then the build fixes that apply to it."""
    tree, sha = Path(str(job.tree)), str(job.sha)
    if not (tree / ".git").exists():
        tree.parent.mkdir(parents=True, exist_ok=True)
        _git(job.repository, "worktree", "add", "--quiet", "--force", "--detach", str(tree), sha)
    else:
        _git(tree, "checkout", "--quiet", "--force", "--detach", sha)
        _git(tree, "clean", "--quiet", "-ffdx")
    if (tree / ".gitmodules").exists():
        _git(tree, "submodule", "--quiet", "update", "--init", "--recursive", "--force")
    for commit in job.cherry_pick:
        if _try_git(tree, *_AS_US, "cherry-pick", "--no-gpg-sign", commit):
            _try_git(tree, "cherry-pick", "--abort")


def build(job: TreeJob, env: Mapping[str, str]) -> None:
    print(f"building {job.package}: {job.build}", flush=True)
    done = subprocess.run(
        ("sh", "-c", str(job.build)), cwd=job.tree, env={**os.environ, **env}, check=False
    )
    if done.returncode:
        raise SystemExit(1)


_AS_US = ("-c", "user.name=aorta", "-c", "user.email=aorta@localhost")


def _try_git(where: str | Path | None, *arguments: str) -> int:
    command = ("git", "-C", str(where), "-c", "advice.detachedHead=false", *arguments)
    return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode


def _git(where: str | Path | None, *arguments: str) -> None:
    if code := _try_git(where, *arguments):
        raise SystemExit(code)


if __name__ == "__main__":
    main()
