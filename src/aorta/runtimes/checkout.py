"""Commits of a repository in worktrees of their own, and their builds.

Also a program (`python -I -S checkout.py JOB.json`, a `TreesJob`), so that it goes through the executor like a trial and can be
killed like one. A tree counts as made only once its mark is written, after everything else.

Started anew for every trial: standard library only, and little of it. With what the modules around it import a start took
94 ms of CPU, so it takes 37.
"""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

GIT_FAULT = 75  # the exit code that says: git could not, whatever the commit
_ATTEMPTS = 3


class GitFaultError(Exception):
    """Git could not, whatever the commit."""


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        job = json.load(file)
    for tree in job["trees"]:
        if tree["tree"] is not None:
            check_out(
                tree["tree"], tree["repository"], tree["sha"], tree["cherry_pick"], tree["files"]
            )
    for tree in job["trees"]:
        if tree["build"] is not None:
            _build(tree["package"], tree["build"], tree["tree"], job["env"])
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
    """The commit, and nothing that an earlier one left; then the build fixes that apply to it, and the `files` that are put
    into it, by their place there.
    """
    try:
        _at_commit(tree, repository, sha)
    except GitFaultError as fault:
        print(fault, file=sys.stderr)
        raise SystemExit(GIT_FAULT) from None
    if os.path.exists(f"{tree}/.gitmodules"):
        _submodules(tree)
    for commit in cherry_pick:
        if _try_git(tree, *_AS_US, "cherry-pick", "--no-gpg-sign", commit):
            _try_git(tree, "cherry-pick", "--abort")
    for place, source in (files or {}).items():
        _copy(source, f"{tree}/{place}")


def _copy(source: str, target: str) -> None:
    import shutil

    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copy2(source, target)


def _remove(tree: str) -> None:
    import shutil

    shutil.rmtree(tree, ignore_errors=True)


def _at_commit(tree: str, repository: str, sha: str) -> None:
    """A tree that git cannot use, as one is whose checkout was killed, is made anew."""
    for patience in reversed(range(_ATTEMPTS)):
        try:
            with _one_at_a_time(repository):
                _move_to_commit(tree, repository, sha)
        except subprocess.CalledProcessError as fault:
            if not patience:
                raise GitFaultError(f"git {fault.cmd[3]} failed in {repository}") from None
            _remove(tree)
        else:
            return


def _move_to_commit(tree: str, repository: str, sha: str) -> None:
    if not os.path.exists(f"{tree}/.git"):
        os.makedirs(os.path.dirname(tree), exist_ok=True)
        source = _writable(repository, tree)
        _git(source, "worktree", "prune")
        _git(source, "worktree", "add", "--quiet", "--force", "--detach", tree, sha)
    else:
        _git(tree, "checkout", "--quiet", "--force", "--detach", sha)
        _git(tree, "clean", "--quiet", "-ffdx")


def _writable(repository: str, tree: str) -> str:
    """Where worktrees can be registered: for a repository that only others may write to, one beside the tree that has its
    objects and nothing else.
    """
    shared = _asked(repository, "rev-parse", "--path-format=absolute", "--git-common-dir")
    if os.access(shared, os.W_OK):
        return repository
    own = f"{tree}.git"
    if not os.path.exists(own):
        _git(os.path.dirname(tree), "init", "--quiet", "--bare", own)
        with open(f"{own}/objects/info/alternates", "w", encoding="utf-8") as alternates:
            alternates.write(f"{shared}/objects\n")
        if os.path.exists(f"{shared}/shallow"):
            _copy(f"{shared}/shallow", f"{own}/shallow")
    return own


def with_commit(
    tree: str, repository: str, state: str, commit: str, mainline: int | None = None
) -> str | None:
    """A commit that has the state and, on top of it, another commit (of a merge, what it brings to one of its parents);
    None where that does not apply, or is there already. The same again whenever it is asked for.
    """
    _at_commit(tree, repository, state)
    when = _asked(tree, "show", "--no-patch", "--format=%cI", commit)
    pick = _command(tree, *_AS_US, "-c", "core.hooksPath=/dev/null", "cherry-pick")
    environ = {**os.environ, "GIT_COMMITTER_DATE": when}
    picked = subprocess.run(
        (*pick, "--no-gpg-sign", *(("--mainline", str(mainline)) if mainline else ()), commit),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=environ,
        check=False,
    )
    if picked.returncode == 0:
        return _asked(tree, "rev-parse", "HEAD")
    _asked(tree, "cherry-pick", "--abort")
    return None


def forget_trees(repository: str) -> None:
    """Worktrees that are gone from the disk, from git's own list."""
    prune = _command(repository, "worktree", "prune")
    with _one_at_a_time(repository):
        subprocess.run(prune, stdin=subprocess.DEVNULL, capture_output=True, check=False)


def _submodules(tree: str) -> None:
    """From what the user's own checkout has of them, where it has them: no other machine is asked for that."""
    shared = _asked(tree, "rev-parse", "--path-format=absolute", "--git-common-dir")
    names = _asked(
        tree, "config", "--file", ".gitmodules", "--name-only", "--get-regexp", r"\.path$"
    )
    at_hand: list[str] = []
    for key in names.split():
        name = key.removeprefix("submodule.").removesuffix(".path")
        if os.path.isdir(mirror := f"{shared}/modules/{name}"):
            at_hand += ["-c", f"submodule.{name}.url={mirror}"]
    update = ("submodule", "--quiet", "update", "--init", "--recursive", "--force")
    local = ("-c", "protocol.file.allow=always", *at_hand)
    if (not at_hand or _try_git(tree, *local, *update)) and _try_git(tree, *update):
        raise SystemExit(1)


@contextmanager
def _one_at_a_time(repository: str) -> Iterator[None]:
    """Git processes that make worktrees of one repository read each other's half-written files.

    The lock is on the directory itself, so that no file is left behind.
    """
    handle = os.open(repository, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _build(package: str, command: str, tree: str | None, env: Mapping[str, str]) -> None:
    print(f"building {package}: {command}", flush=True)
    done = subprocess.run(("sh", "-c", command), cwd=tree, env={**os.environ, **env}, check=False)
    if done.returncode:
        raise SystemExit(1)


_AS_US = ("-c", "user.name=aorta", "-c", "user.email=aorta@localhost")


def _command(where: str, *arguments: str) -> tuple[str, ...]:
    return ("git", "-C", where, *arguments)


def _try_git(where: str, *arguments: str) -> int:
    command = _command(where, "-c", "advice.detachedHead=false", *arguments)
    return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode


def _git(where: str, *arguments: str) -> None:
    subprocess.run(_command(where, *arguments), stdin=subprocess.DEVNULL, check=True)


def _asked(where: str, *arguments: str) -> str:
    command = _command(where, *arguments)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return done.stdout.decode("utf-8", "replace").strip()


if __name__ == "__main__":
    main()
