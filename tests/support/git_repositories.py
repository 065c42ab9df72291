"""Real git repositories for tests: commits with chosen dates, branches and merges."""

import os
import random
import subprocess
from collections.abc import Callable, Mapping, Sequence
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
    """`commit` writes files and commits them; the clock moves on by a minute a commit unless
    told.
    """

    path: Path
    clock: int = _EPOCH

    @classmethod
    def create(cls, path: Path) -> "Repository":
        path.mkdir(parents=True)
        repository = cls(path)
        repository.git("init", "--quiet", "--initial-branch=main")
        return repository

    def git(self, *arguments: str, at: int | None = None, stdin: str = "") -> str:
        date = f"{at if at is not None else self.clock} +0000"
        done = subprocess.run(
            ("git", "-C", str(self.path), *arguments),
            input=stdin,
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

    def graph(self, parents: Sequence[Sequence[int]], dates: Sequence[int]) -> list[str]:
        """A history with merges, in one process: by each commit the numbers of its parents, and its
        date. Commit `n` writes its number to `number` and is the branch `c<n>`.
        """
        orders: list[str] = []
        for number, (own, date) in enumerate(zip(parents, dates, strict=True)):
            who = f"{_WHO['GIT_AUTHOR_NAME']} <{_WHO['GIT_AUTHOR_EMAIL']}> {date} +0000"
            orders += [f"commit refs/heads/c{number}", f"mark :{number + 1}"]
            orders += [f"author {who}", f"committer {who}", _data(f"commit {number}\n")]
            orders += [f"{'merge' if place else 'from'} :{p + 1}" for place, p in enumerate(own)]
            orders += [f"M 644 inline number\n{_data(f'{number}{chr(10)}')}"]
        self.git("fast-import", "--quiet", stdin="\n".join([*orders, ""]))
        return self.git("rev-parse", *(f"c{n}" for n in range(len(parents)))).split()

    def line(self, states: Sequence[tuple[str, Mapping[str, str]]]) -> list[str]:
        """As `commit` makes them one after the other, of titles and files, on a branch that has
        none yet: in one process.
        """
        orders: list[str] = []
        for title, files in states:
            self.clock += 60
            who = f"{_WHO['GIT_AUTHOR_NAME']} <{_WHO['GIT_AUTHOR_EMAIL']}> {self.clock} +0000"
            orders += ["commit refs/heads/main", f"author {who}", f"committer {who}"]
            orders += [_data(f"{title}\n")]
            orders += [f"M 644 inline {name}\n{_data(text)}" for name, text in files.items()]
        told = "\n".join([*orders, ""])
        loose = ("-c", "fastimport.unpackLimit=1000000")  # as commits are that were made one by one
        self.git(*loose, "fast-import", "--quiet", stdin=told)
        self.git("reset", "--quiet", "--hard")
        return self.git("rev-list", "--reverse", "main").split()


def _data(text: str) -> str:
    return f"data {len(text.encode())}\n{text}"


def numbered(path: Path, count: int, *, name: str = "number") -> tuple[Repository, list[str]]:
    """Commits 0..count-1, each writing its own number into one file."""
    repository = Repository.create(path)
    return repository, repository.line([(f"commit {i}", {name: f"{i}\n"}) for i in range(count)])


# -- histories that are drawn, and dates as clocks, rebases and imports make them

DAY = 86_400
JUNE = 1_748_736_000
DATES: dict[str, Callable[[int, random.Random], list[int]]] = {
    "equal": lambda count, draw: [JUNE] * count,
    "reversed": lambda count, draw: [JUNE - n * DAY for n in range(count)],
    "shuffled": lambda count, draw: draw.sample([JUNE + n * DAY for n in range(count)], count),
    "far future": lambda count, draw: [
        4_102_444_800 if draw.random() < 0.3 else JUNE + n * DAY for n in range(count)
    ],
    "1970": lambda count, draw: [
        n if draw.random() < 0.3 else JUNE + n * DAY for n in range(count)
    ],
    "the good end later": lambda count, draw: [
        JUNE if n < 2 else JUNE - 200 * DAY + n * DAY for n in range(count)
    ],
}


def drawn_parents(draw: random.Random, count: int) -> list[list[int]]:
    """A history with merges: every commit has one or two of those before it as parents."""
    parents: list[list[int]] = [[]]
    for number in range(1, count):
        near = range(max(0, number - 6), number)
        some = 2 if draw.random() < 0.25 and len(near) > 1 else 1
        parents.append(sorted(draw.sample(near, some), reverse=True))
    return parents


def contained(parents: list[list[int]], top: int) -> set[int]:
    found: set[int] = set()
    waiting = [top]
    while waiting:
        here = waiting.pop()
        if here not in found:
            found.add(here)
            waiting += parents[here]
    return found


def drawn_dates(draw: random.Random, count: int) -> list[int]:
    return draw.choice(list(DATES.values()))(count, draw)
