"""Commits of a repository in worktrees of their own, and their builds.

Also a program, told by a file (a `TreesJob`), so that it goes through the executor like a trial and
can be killed like one. A tree counts as made only once its mark is written, after everything else.

Started anew for every trial, so it imports next to nothing: of the 25 ms of CPU that a start took
with `json`, `subprocess` and `contextlib`, 8 are a bare interpreter's and 15 were theirs.
"""

import fcntl
import marshal
import os
import sys

TYPE_CHECKING = False  # as `typing` has it
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GIT_FAULT = 75  # the exit code that says: git could not, whatever the commit
_ATTEMPTS = 3


class GitFaultError(Exception):
    """Git could not, whatever the commit."""


def main() -> None:
    with open(sys.argv[1], "rb") as file:
        job = marshal.load(file)  # noqa: S302 - from a process of ours
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
    cherry_pick: "Sequence[str]" = (),
    files: "Mapping[str, str] | None" = None,
) -> None:
    """The commit, and nothing that an earlier one left; then the build fixes that apply to it, and
    the `files` that are put into it, by their place there.
    """
    try:
        _at_commit(tree, repository, sha)
    except GitFaultError as fault:
        print(fault, file=sys.stderr)
        raise SystemExit(GIT_FAULT) from None
    if os.path.exists(f"{tree}/.gitmodules"):
        _submodules(tree)
    if cherry_pick:
        env = _own_objects(tree)
        for pick in cherry_pick:
            if _run(tree, "cherry-pick", "--no-commit", *pick.split(), env=env):
                _run(tree, "reset", "--quiet", "--hard", env=env)
    for place, source in (files or {}).items():
        _copy(source, f"{tree}/{place}")


def _own_objects(tree: str) -> "Mapping[str, str]":
    """What a cherry-pick makes is written beside the tree, not into the user's repository."""
    shared = _asked(tree, "rev-parse", "--path-format=absolute", "--git-path", "objects")
    own = f"{tree}.objects"
    os.makedirs(own, exist_ok=True)
    return {
        **os.environ,
        "GIT_OBJECT_DIRECTORY": own,
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": shared,
    }


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
            with _OneAtATime(repository):
                _move_to_commit(tree, repository, sha)
        except GitFaultError as fault:
            if not patience:
                raise GitFaultError(f"{fault} in {repository}") from None
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
    """Where worktrees can be registered: for a repository that only others may write to, one beside
    the tree that has its objects and nothing else.
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


def forget_trees(repository: str) -> None:
    """Worktrees that are gone from the disk, from git's own list."""
    with _OneAtATime(repository):
        _answer(repository, "worktree", "prune")


def _submodules(tree: str) -> None:
    """From what the user's own checkout has of them, where it has them: no other machine is asked
    for that.
    """
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
    if (not at_hand or _run(tree, *local, *update)) and _run(tree, *update):
        raise SystemExit(1)


class _OneAtATime:
    """Git processes that make worktrees of one repository read each other's half-written files.

    The lock is on the directory itself, so that no file is left behind.
    """

    def __init__(self, repository: str) -> None:
        self._repository = repository

    def __enter__(self) -> None:
        self._handle = os.open(self._repository, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._handle, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)


def _build(package: str, command: str, tree: str | None, env: "Mapping[str, str]") -> None:
    import subprocess

    print(f"building {package}: {command}", flush=True)
    done = subprocess.run(("sh", "-c", command), cwd=tree, env={**os.environ, **env}, check=False)
    if done.returncode:
        raise SystemExit(1)


# -- git, as `subprocess` would start it

_IGNORED_BY_PYTHON = (13, 25)  # SIGPIPE and SIGXFSZ, which no other program expects to be ignored
_NO_INPUT = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
_NO_COMPLAINTS = (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)


def _git(where: str, *arguments: str) -> None:
    if _run(where, *arguments):
        raise GitFaultError(f"git {arguments[0]} failed")


def _run(where: str, *arguments: str, env: "Mapping[str, str]" = os.environ) -> int:
    """What it says goes where our own words go."""
    return _exit_code(_started(where, arguments, [_NO_INPUT], env))


def _asked(where: str, *arguments: str) -> str:
    return _answer(where, *arguments)[1]


def _answer(where: str, *arguments: str, env: "Mapping[str, str]" = os.environ) -> tuple[int, str]:
    reading, writing = os.pipe()
    with open(reading, "rb") as said:
        try:
            redirected = [_NO_INPUT, (os.POSIX_SPAWN_DUP2, writing, 1), _NO_COMPLAINTS]
            child = _started(where, arguments, redirected, env)
        finally:
            os.close(writing)
        answer = said.read()
    return _exit_code(child), answer.decode("utf-8", "replace").strip()


def _started(
    where: str,
    arguments: "Sequence[str]",
    files: "Sequence[tuple[object, ...]]",
    env: "Mapping[str, str]",
) -> int:
    command = ("git", "-C", where, *arguments)
    return os.posix_spawnp("git", command, env, file_actions=files, setsigdef=_IGNORED_BY_PYTHON)


def _exit_code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
