"""Makes one version set on this host: checks commits out into worktrees of their own, and builds them.

Runs as a process of its own (`python -m aorta.runtimes.worktree_job JOB.json`), so that it goes through the executor like a
trial and can be killed like one. A tree counts as made only once its mark is written, after everything else.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aorta.core.errors import InfrastructureError

GIT_FAULT = 75  # the exit code that says: git could not, whatever the commit
_ATTEMPTS = 3


@dataclass(frozen=True)
class TreeJob:
    """One checkout: `tree` of `repository` at `sha`; `build` runs in it. A library has no repository."""

    package: str
    tree: str | None = None
    repository: str | None = None
    sha: str | None = None
    cherry_pick: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict)  # put into it, by their place there
    build: str | None = None


@dataclass(frozen=True)
class Job:
    trees: Sequence[TreeJob]
    env: Mapping[str, str] = field(default_factory=dict)
    mark: str | None = None  # written when everything is made

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
    tree = Path(str(job.tree))
    try:
        _at_commit(tree, str(job.repository), str(job.sha))
    except InfrastructureError as fault:
        print(fault.message, file=sys.stderr)
        raise SystemExit(GIT_FAULT) from None
    if (tree / ".gitmodules").exists():
        _submodules(tree)
    for commit in job.cherry_pick:
        if _try_git(tree, *_AS_US, "cherry-pick", "--no-gpg-sign", commit):
            _try_git(tree, "cherry-pick", "--abort")
    for place, source in job.files.items():
        (tree / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, tree / place)


def _at_commit(tree: Path, repository: str, sha: str) -> None:
    """A tree that git cannot use, as one is whose checkout was killed, is made anew."""
    for patience in reversed(range(_ATTEMPTS)):
        try:
            with _one_at_a_time(repository):
                _move_to_commit(tree, repository, sha)
        except subprocess.CalledProcessError as fault:
            if not patience:
                raise InfrastructureError(f"git {fault.cmd[3]} failed in {repository}") from None
            shutil.rmtree(tree, ignore_errors=True)
        else:
            return


def _move_to_commit(tree: Path, repository: str, sha: str) -> None:
    if not (tree / ".git").exists():
        tree.parent.mkdir(parents=True, exist_ok=True)
        source = _writable(repository, tree)
        _git(source, "worktree", "prune")
        _git(source, "worktree", "add", "--quiet", "--force", "--detach", str(tree), sha)
    else:
        _git(tree, "checkout", "--quiet", "--force", "--detach", sha)
        _git(tree, "clean", "--quiet", "-ffdx")


def _writable(repository: str, tree: Path) -> str:
    """Where worktrees can be registered: for a repository that only others may write to, one beside the tree that has its
    objects and nothing else.
    """
    shared = Path(
        _asked(Path(repository), "rev-parse", "--path-format=absolute", "--git-common-dir")
    )
    if os.access(shared, os.W_OK):
        return repository
    own = tree.parent / f"{tree.name}.git"
    if not own.exists():
        _git(tree.parent, "init", "--quiet", "--bare", str(own))
        (own / "objects" / "info" / "alternates").write_text(f"{shared / 'objects'}\n")
        if (shared / "shallow").exists():
            shutil.copy(shared / "shallow", own)
    return str(own)


def with_commit(
    tree: Path, repository: str, state: str, commit: str, mainline: int | None = None
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


def _submodules(tree: Path) -> None:
    """From what the user's own checkout has of them, where it has them: no other machine is asked for that."""
    shared = Path(_asked(tree, "rev-parse", "--path-format=absolute", "--git-common-dir"))
    names = _asked(
        tree, "config", "--file", ".gitmodules", "--name-only", "--get-regexp", r"\.path$"
    )
    at_hand: list[str] = []
    for key in names.split():
        name = key.removeprefix("submodule.").removesuffix(".path")
        if (mirror := shared / "modules" / name).is_dir():
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


def build(job: TreeJob, env: Mapping[str, str]) -> None:
    print(f"building {job.package}: {job.build}", flush=True)
    done = subprocess.run(
        ("sh", "-c", str(job.build)), cwd=job.tree, env={**os.environ, **env}, check=False
    )
    if done.returncode:
        raise SystemExit(1)


_AS_US = ("-c", "user.name=aorta", "-c", "user.email=aorta@localhost")


def _command(where: str | Path | None, *arguments: str) -> tuple[str, ...]:
    return ("git", "-C", str(where), *arguments)


def _try_git(where: str | Path | None, *arguments: str) -> int:
    command = _command(where, "-c", "advice.detachedHead=false", *arguments)
    return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode


def _git(where: str | Path | None, *arguments: str) -> None:
    subprocess.run(_command(where, *arguments), stdin=subprocess.DEVNULL, check=True)


def _asked(where: Path, *arguments: str) -> str:
    command = _command(where, *arguments)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return done.stdout.decode("utf-8", "replace").strip()


if __name__ == "__main__":
    main()
