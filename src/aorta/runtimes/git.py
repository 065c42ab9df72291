"""Questions to one git repository, here or in a container. Remotes may hold tokens: never shown."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aorta.core.errors import InfrastructureError, UsageError
from aorta.scrub import secrets

RunGit = Callable[[Sequence[str]], "GitAnswer"]
"""Runs `git ARGUMENTS...` in the repository."""

_FIELD = "\x1f"
_FORM = _FIELD.join(("%H", "%P", "%ct", "%aI", "%an", "%s"))
_LOG = ("log", "--no-show-signature", "--encoding=UTF-8", f"--format={_FORM}")
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
_WEB_FORMS = (
    re.compile(r"(?:https?://)(?:[^/@\s]+@)?([^/\s]+)/(\S+?)(?:\.git)?/?\Z"),
    re.compile(r"(?:ssh://)?git@([^:/\s]+)[:/](\S+?)(?:\.git)?/?\Z"),
)
_QUIET = {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true", "LC_ALL": "C"}
_OF_ONE_REPOSITORY = re.compile(
    "GIT_(ALTERNATE_OBJECT_DIRECTORIES|COMMON_DIR|CONFIG|DIR|GRAFT_FILE|IMPLICIT_WORK_TREE"
    "|INDEX_FILE|INTERNAL_SUPER_PREFIX|NAMESPACE|OBJECT_DIRECTORY|PREFIX|QUARANTINE_PATH"
    "|REPLACE_REF_BASE|SHALLOW_FILE|WORK_TREE)"
)
"""What hooks, `rebase --exec` and aliases set for the repository they run in: with them, git works
there, whatever directory it is given. Settings (`GIT_CONFIG_COUNT`) are the user's own and stay.
"""


@dataclass(frozen=True)
class GitAnswer:
    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Commit:
    """What a report says of a commit."""

    sha: str
    parents: tuple[str, ...]
    time: int  # of the committer, seconds since the epoch
    author: str
    date: str
    title: str


@contextmanager
def no_repository_named() -> Iterator[None]:
    """Meanwhile git finds a repository by its directory alone, in child processes too."""
    names = [name for name in os.environ if _OF_ONE_REPOSITORY.fullmatch(name)]
    named = {name: os.environ.pop(name) for name in names}
    try:
        yield
    finally:
        os.environ.update(named)


def git_on_host(path: Path) -> RunGit:
    """Git in a directory of this machine, without password prompts, in English."""

    def run(arguments: Sequence[str]) -> GitAnswer:
        around = {n: v for n, v in os.environ.items() if not _OF_ONE_REPOSITORY.fullmatch(n)}
        try:
            done = subprocess.run(
                ("git", "-C", str(path), *arguments),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env={**around, **_QUIET},
                check=False,
            )
        except FileNotFoundError:
            raise InfrastructureError("git is not installed, or not on PATH") from None
        # Not in text mode: a carriage return in a commit's title would be the end of a line.
        out, err = (stream.decode("utf-8", "replace") for stream in (done.stdout, done.stderr))
        return GitAnswer(done.returncode, out, err)

    return run


class Repository:
    def __init__(self, run: RunGit, where: str) -> None:
        self._run, self.where = run, where

    @classmethod
    def on_host(cls, path: Path) -> "Repository":
        """The repository that `path` lies in, also a bare one; refuses a path outside any."""
        for question in ("--show-toplevel", "--absolute-git-dir"):
            answer = git_on_host(path)(("rev-parse", question))
            if answer.code == 0 and answer.out.strip():
                top = Path(answer.out.removesuffix("\n"))
                return cls(git_on_host(top), str(top))
        raise UsageError(
            f"this is no git repository ({_last(answer.err)}); go into one, or name it with a spec",
            where=str(path),
        )

    def resolve(self, revision: str) -> str:
        """The commit that a branch, tag or abbreviation stands for."""
        answer = self._run(("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"))
        if answer.code:
            raise UsageError(
                f"there is no commit {revision!r} here; {self._how_to_get()}", where=self.where
            )
        return answer.out.strip()

    def _how_to_get(self) -> str:
        shallow = self._run(("rev-parse", "--is-shallow-repository")).out.strip() == "true"
        if shallow:
            return "this clone has only a part of its history: git fetch --unshallow"
        return "fetch it, or check its spelling"

    def has(self, revision: str) -> bool:
        return self._run(("cat-file", "-e", f"{revision}^{{commit}}")).code == 0

    def has_file(self, revision: str, path: str) -> bool:
        return self._run(("cat-file", "-e", f"{revision}:{path}")).code == 0

    def ignores(self, path: str) -> bool:
        return self._run(("check-ignore", "--quiet", path)).code == 0

    def fetch(self, remote: str, revisions: Sequence[str]) -> None:
        answer = self._run(("fetch", "--quiet", "--no-tags", remote, *revisions))
        if answer.code:
            raise InfrastructureError(
                f"cannot fetch {', '.join(r[:12] for r in revisions)}: "
                f"{without_secrets(_last(answer.err))}",
                where=self.where,
            )

    def is_ancestor(self, older: str, newer: str) -> bool:
        return self._run(("merge-base", "--is-ancestor", older, newer)).code == 0

    def merge_base(self, one: str, other: str) -> str:
        answer = self._run(("merge-base", one, other))
        if answer.code:
            raise UsageError(
                f"{one[:12]} and {other[:12]} have no common ancestor here; {self._how_to_get()}",
                where=self.where,
            )
        return answer.out.split()[0]

    def only_in(self, newer: str, older: str) -> list[Commit]:
        """The commits that `newer` has and `older` has not, every one after its parents.

        `log newer ^older` lists common commits too if dates are wrong: all of `older` is read.
        """
        found = _commits(self._queried(*_LOG, "--topo-order", "--reverse", newer, f"^{older}"))
        shared = set(self._queried("rev-list", older).split())
        return [commit for commit in found if commit.sha not in shared]

    def main_line(self) -> list[str]:
        """What is checked out and its first parents, newest first."""
        return self._queried("rev-list", "--first-parent", "HEAD").split()

    def lay_out(self, revision: str, scratch: Path) -> Path:
        """A revision's files in a clone of their own; the user's checkout is not touched."""
        commit = self.resolve(revision)
        tree, draft = scratch / commit, scratch / f"{commit}.draft"
        if not tree.exists():
            scratch.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(draft, ignore_errors=True)  # of somebody who was killed
            self._queried("clone", "--quiet", "--shared", "--no-checkout", self.where, str(draft))
            clone = Repository(git_on_host(draft), str(draft))
            clone._queried("checkout", "--quiet", "--detach", commit)
            draft.rename(tree)
        return tree

    def commits(self, shas: Sequence[str]) -> list[Commit]:
        """In the order given."""
        return _commits(self._queried(*_LOG, "--no-walk=unsorted", *shas)) if shas else []

    def commit(self, sha: str) -> Commit:
        return self.commits([sha])[0]

    def patch(self, sha: str) -> str:
        """What one commit changed, as a unified diff."""
        return self._queried("show", "--format=", "--no-color", "--no-ext-diff", "--patch", sha)

    def remote_address(self) -> str | None:
        answer = self._run(("remote", "get-url", "origin"))
        return answer.out.strip() or None if answer.code == 0 else None

    def _queried(self, *arguments: str) -> str:
        answer = self._run(arguments)
        if answer.code:
            raise InfrastructureError(
                f"git {arguments[0]} failed: {without_secrets(_last(answer.err))}", where=self.where
            )
        return answer.out


def laid_out(revision: str, cwd: Path, scratch: Path) -> Path:
    """The directory that `cwd` is in a revision of its repository."""
    repository = Repository.on_host(cwd)
    inside = cwd.resolve().relative_to(Path(repository.where).resolve())
    return repository.lay_out(revision, scratch) / inside


def web_address(remote: str | None, sha: str) -> str | None:
    """Where people read a commit, for the usual forms of a remote; never with its credentials."""
    for form in _WEB_FORMS:
        if remote and (found := form.match(remote)):
            return f"https://{found[1]}/{found[2]}/commit/{sha}"
    return None


def without_secrets(text: str) -> str:
    """As everywhere; and all before the host of an address, where a token may stand."""
    return _CREDENTIALS.sub("***@", secrets.without_secrets(text))


def _commits(log: str) -> list[Commit]:
    """A line each; characters of names and titles that end a line become spaces."""
    found = []
    for line in log.split("\n"):
        if line:
            sha, parents, time, date, author, title = line.split(_FIELD, 5)
            known = (sha, tuple(parents.split()), int(time))
            found.append(Commit(*known, _plain(author), date, _plain(title)))
    return found


def _plain(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else "it said nothing"
