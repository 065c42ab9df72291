"""From two revisions of a repository to the line of commits between them.

Every state is a real commit, and neighbouring states are parent and child. Where the good end is an ancestor of the bad
one the line runs forward. Where it is not, it runs back from the good end to the commit both share, and forward from
there: going back over a commit takes it away, so a repair that only one branch has is found like any other change.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from aorta.bisect.git import Commit, Repository
from aorta.core.errors import UsageError
from aorta.search.timeline import History


@dataclass(frozen=True)
class Line:
    """The commits from the good end to the bad one, both included; `turn` is the index of the shared commit."""

    commits: tuple[Commit, ...]
    turn: int

    @property
    def goes_back(self) -> bool:
        return self.turn > 0

    def history(self, package: str) -> History:
        """Going back over commits takes no time: what counts is when the line turned."""
        turned = float(self.commits[self.turn].time)
        times = [turned] * self.turn + [float(commit.time) for commit in self.commits[self.turn :]]
        return History(package, tuple(commit.sha for commit in self.commits), tuple(times))

    def changed_by(self, rank: int) -> Commit:
        """The commit that the step from state `rank` to the next adds, or takes away."""
        return self.commits[rank] if rank < self.turn else self.commits[rank + 1]

    def takes_away(self, rank: int) -> bool:
        return rank < self.turn


def line_between(
    repository: Repository,
    good: str,
    bad: str,
    *,
    find_fix: bool = False,
    main_branch: str | None = None,
    paths: Sequence[str] = (),
) -> Line:
    """Both ends are commits that the repository has. The line keeps to the main branch where one is named; with
    `paths`, commits that touch none of them are no states of their own.
    """
    if good == bad:
        raise UsageError(
            f"the good and the bad end are the same commit {good[:12]}", where=repository.where
        )
    if repository.is_ancestor(bad, good) and not find_fix:
        raise UsageError(
            f"the good end {good[:12]} is newer than the bad end {bad[:12]}; "
            "add --find-fix to look for the commit that repaired it",
            where=repository.where,
        )
    shared = repository.merge_base(good, bad)
    main = repository.first_parents(shared, main_branch) if main_branch else frozenset[str]()
    back = _way(repository, shared, good, main, paths)
    forward = _way(repository, shared, bad, main, paths)
    shas = [*reversed(back), shared, *forward]
    return Line(tuple(repository.commits(shas)), turn=len(back))


def merged_line(repository: Repository, merge: Commit, main: str) -> list[str]:
    """The commits that a merge brought in by its other parents, oldest first; empty if it is no merge."""
    others = [parent for parent in merge.parents if parent != main]
    if not others:
        return []
    base = repository.merge_base(main, others[0])
    return _way(repository, base, others[0])


def _way(
    repository: Repository,
    older: str,
    newer: str,
    main: Collection[str] = (),
    paths: Sequence[str] = (),
) -> list[str]:
    """One way from `older` (left out) to `newer`, oldest first: along `main`, then first parents, where they lead
    there. A merge may bring what touches `paths`, so every merge stays, and so does the end.
    """
    if older == newer:
        return []
    parents = repository.between(older, newer)
    way: list[str] = []
    here = newer
    while here != older:
        way.append(here)
        leading = [parent for parent in parents[here] if parent == older or parent in parents]
        here = next((parent for parent in leading if parent in main), leading[0])
    if paths:
        touching = repository.touching(older, newer, paths)
        way = [sha for sha in way if sha in touching or len(parents[sha]) > 1 or sha == newer]
    return way[::-1]
