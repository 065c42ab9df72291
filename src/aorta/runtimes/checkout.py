"""Commits of a repository in worktrees of their own, and their builds.

Also a program (its file: a `TreesJob`), run and killed like a trial; standard library only. A tree
counts as made once its mark is written, after everything else.
"""

import fcntl
import marshal
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

GIT_FAULT = 75  # the exit code that says: git could not, whatever the commit
_ATTEMPTS = 3


@dataclass(frozen=True)
class TreeJob:
    """One checkout: `tree` of `repository` at `sha`; `build` runs in it."""

    package: str
    tree: str | None = None
    repository: str | None = None
    sha: str | None = None
    cherry_pick: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict)  # put into it, by their place there
    build: str | None = None


@dataclass(frozen=True)
class TreesJob:
    trees: Sequence[TreeJob]
    env: Mapping[str, str] = field(default_factory=dict)
    mark: str | None = None  # written when everything is made


class GitFaultError(Exception):
    """Git could not, whatever the commit."""


def main() -> None:
    with open(sys.argv[1], "rb") as file:
        job = marshal.load(file)  # noqa: S302 - from a process of ours
    trees = [TreeJob(**tree) for tree in job["trees"]]
    for tree in trees:
        if tree.tree is not None:
            check_out(tree.tree, str(tree.repository), str(tree.sha), tree.cherry_pick, tree.files)
    for tree in trees:
        if tree.build is not None:
            _build(tree, job["env"])
    if job["mark"] is not None:
        with open(job["mark"], "ab"):
            pass


def check_out(
    tree: str,
    repository: str,
    sha: str,
    cherry_pick: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
) -> None:
    """The commit alone, the build fixes that apply to it, and `files` by their place there."""
    try:
        _at_commit(tree, repository, sha)
    except GitFaultError as fault:
        print(fault, file=sys.stderr)
        raise SystemExit(GIT_FAULT) from None
    if os.path.exists(f"{tree}/.gitmodules"):
        _submodules(tree)
    if cherry_pick:
        # What a cherry-pick makes is written beside the tree, not into the user's repository.
        shared = _queried(tree, "rev-parse", "--path-format=absolute", "--git-path", "objects")
        os.makedirs(own := f"{tree}.objects", exist_ok=True)
        places = {"GIT_OBJECT_DIRECTORY": own, "GIT_ALTERNATE_OBJECT_DIRECTORIES": shared}
        env = {**os.environ, **places}
        for pick in cherry_pick:
            before = _queried(tree, "write-tree", env=env)
            if _run(tree, "cherry-pick", "--no-commit", pick, env=env):
                _run(tree, "read-tree", "--reset", "-u", before, env=env)
    for place, source in (files or {}).items():
        os.makedirs(os.path.dirname(target := f"{tree}/{place}"), exist_ok=True)
        shutil.copy2(source, target)


def _at_commit(tree: str, repository: str, sha: str) -> None:
    """A tree that git cannot use, as one is whose checkout was killed, is made anew."""
    for patience in reversed(range(_ATTEMPTS)):
        try:
            with _one_at_a_time(repository):
                _move_to_commit(tree, repository, sha)
        except GitFaultError as fault:
            if not patience:
                raise GitFaultError(f"{fault} in {repository}") from None
            shutil.rmtree(tree, ignore_errors=True)
        else:
            return


def _move_to_commit(tree: str, repository: str, sha: str) -> None:
    if not os.path.exists(f"{tree}/.git"):
        os.makedirs(os.path.dirname(tree), exist_ok=True)
        _git(repository, "worktree", "prune")
        _git(repository, "worktree", "add", "--quiet", "--force", "--detach", tree, sha)
    else:
        _git(tree, "checkout", "--quiet", "--force", "--detach", sha)
        _git(tree, "clean", "--quiet", "-ffdx")


def forget_trees(repository: str) -> None:
    """Worktrees that are gone from the disk, from git's own list."""
    with _one_at_a_time(repository):
        _queried(repository, "worktree", "prune")


def _submodules(tree: str) -> None:
    """From the user's own checkout, where it has them: no other machine is asked."""
    shared = _queried(tree, "rev-parse", "--path-format=absolute", "--git-common-dir")
    names = _queried(
        tree, "config", "--file", ".gitmodules", "--name-only", "--get-regexp", r"\.path$"
    )
    at_hand: list[str] = []
    for key in names.split():
        name = key.removeprefix("submodule.").removesuffix(".path")
        if os.path.isdir(mirror := f"{shared}/modules/{name}"):
            at_hand += ["-c", f"submodule.{name}.url={mirror}"]
    update = ("submodule", "--quiet", "update", "--init", "--recursive", "--force")
    local = ("-c", "protocol.file.allow=always", *at_hand)
    if (not at_hand or _run(tree, *local, *update)) and _run(tree, *update):
        raise SystemExit(1)


@contextmanager
def _one_at_a_time(repository: str) -> Iterator[None]:
    """Git processes that make worktrees of one repository collide; its directory is the lock."""
    handle = os.open(repository, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _build(tree: TreeJob, env: Mapping[str, str]) -> None:
    print(f"building {tree.package}: {tree.build}", flush=True)
    words = ("sh", "-c", str(tree.build))
    if subprocess.run(words, cwd=tree.tree, env={**os.environ, **env}, check=False).returncode:
        raise SystemExit(1)


def _git(where: str, *arguments: str) -> None:
    if _run(where, *arguments):
        raise GitFaultError(f"git {arguments[0]} failed")


def _run(where: str, *arguments: str, env: Mapping[str, str] | None = None) -> int:
    """What it says goes where our own words go."""
    words = ("git", "-C", where, *arguments)
    return subprocess.run(words, stdin=subprocess.DEVNULL, env=env, check=False).returncode


def _queried(where: str, *arguments: str, env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        ("git", "-C", where, *arguments),
        stdin=subprocess.DEVNULL,
        env=env,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    return done.stdout.strip()
