"""From two revisions to what lies between them: a line of states, or the history with its merges.

From the good end it first takes away what only that has, then adds what only the bad end has; so a
repair is found like any other change.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from aorta.core.errors import UsageError
from aorta.runtimes.git import Commit, Repository
from aorta.search.timeline import GraphHistory


@dataclass(frozen=True)
class CommitChange:
    """One step: its commit, whether it is taken away, and the versions it lies between."""

    commit: Commit
    removed: bool
    good: str
    bad: str
    brought: tuple[str, ...]  # every commit that comes or goes with it, itself included


@dataclass(frozen=True)
class CommitSpan:
    """Commits that only the good end has (`back`) or the bad one (`forward`), parents first."""

    good: str
    bad: str
    shared: Commit
    back: tuple[Commit, ...]
    forward: tuple[Commit, ...]
    first_parent: bool = False

    @property
    def has_merges(self) -> bool:
        """Whether a line of commits leaves something out that can be looked at for itself."""
        return any(len(change.brought) > 1 for change in self.line.changes)

    @cached_property
    def line(self) -> "CommitPath":
        known = {commit.sha: commit for commit in (*self.back, self.shared, *self.forward)}
        back = list(_steps(self, self.back, self.good))
        forward = list(_steps(self, self.forward, self.bad))
        shas = [*(sha for sha, _ in reversed(back)), self.shared.sha, *(sha for sha, _ in forward)]
        brought = [*(b for _, b in reversed(back)), *(b for _, b in forward)]
        changes = tuple(
            CommitChange(
                known[shas[rank] if rank < len(back) else shas[rank + 1]],
                rank < len(back),
                shas[rank],
                shas[rank + 1],
                commits,
            )
            for rank, commits in enumerate(brought)
        )
        return CommitPath(tuple(known[sha] for sha in shas), changes)

    def graph(self, package: str) -> "Graph":
        return _graph_of(self, package)


@dataclass(frozen=True)
class CommitPath:
    """States from the good end to the bad one, and the change between each and the next."""

    states: tuple[Commit, ...]
    changes: tuple[CommitChange, ...]

    @property
    def times(self) -> tuple[float, ...]:
        """Going back over commits takes no time: what counts is when the line turned."""
        turn = sum(change.removed for change in self.changes)
        return tuple(float(self.states[max(at, turn)].time) for at in range(len(self.states)))


@dataclass(frozen=True)
class Graph:
    """Every commit between the two ends as a state and as a change."""

    history: GraphHistory
    changes: tuple[CommitChange, ...]


def span_between(
    repository: Repository,
    good: str,
    bad: str,
    *,
    find_fix: bool = False,
    first_parent: bool = False,
) -> CommitSpan:
    """Both ends are commits that the repository has."""
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
    shared = repository.commit(repository.merge_base(good, bad))
    back, forward = repository.only_in(good, bad), repository.only_in(bad, good)
    return CommitSpan(good, bad, shared, tuple(back), tuple(forward), first_parent)


# -- the line


def _steps(
    span: CommitSpan, commits: Sequence[Commit], top: str
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The states of a path up to `top`, and what each adds to the one before; oldest first."""
    if not commits:
        return
    parents = {commit.sha: commit.parents for commit in commits}
    way = _way(parents, top, span.shared.sha)
    brought = _brought(way, parents)
    for sha in way:
        yield sha, (sha,) if span.first_parent else tuple(brought[sha])


def _way(parents: Mapping[str, Sequence[str]], top: str, base: str) -> list[str]:
    """First parents up to `top`; of commits that hold `base`, if any, since both ends do."""
    holding = {base}
    for sha, known in parents.items():  # each after its parents
        if not holding.isdisjoint(known):
            holding.add(sha)
    way = [top]
    while inside_ := [parent for parent in parents[way[-1]] if parent in parents]:
        nearer = [parent for parent in inside_ if parent in holding]
        if base in parents[way[-1]] and parents[way[-1]][0] not in nearer:
            break
        way.append((nearer or inside_)[0])
    return way[::-1]


def _brought(way: Sequence[str], parents: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """For each state of a path the commits that it adds, each after its parents."""
    places = {sha: place for place, sha in enumerate(parents)}
    seen: set[str] = set()
    brought: dict[str, list[str]] = {}
    for sha in way:
        stack, found = [sha], list[str]()
        while stack:
            here = stack.pop()
            if here in parents and here not in seen:
                seen.add(here)
                found.append(here)
                stack += parents[here]
        brought[sha] = sorted(found, key=places.__getitem__)
    return brought


# -- the graph


def _graph_of(span: CommitSpan, package: str) -> Graph:
    """Changes in the order back (newest first), then forward."""
    back, forward = span.back[::-1], span.forward
    taken = {commit.sha: 1 << rank for rank, commit in enumerate(back)}
    added = {commit.sha: 1 << rank for rank, commit in enumerate(forward, len(back))}
    all_taken = (1 << len(back)) - 1
    had = _containing(span.back, taken)
    holds = {sha: all_taken & ~mine for sha, mine in reversed(had.items())}
    both = (*span.back, *span.forward)
    inside_ = {commit.sha for commit in both}
    # Parents that both ends have: what a branch was begun from.
    for parent in (span.shared.sha, *(parent for commit in both for parent in commit.parents)):
        if parent not in inside_:
            holds.setdefault(parent, all_taken)
    for sha, mine in _containing(span.forward, added).items():
        holds[sha] = all_taken | mine
    states = [span.good, *(sha for sha in holds if sha not in (span.good, span.bad)), span.bad]
    places = {sha: place for place, sha in enumerate(states)}
    shared = span.shared.sha
    removed = (CommitChange(c, True, c.sha, (*c.parents, shared)[0], (c.sha,)) for c in back)
    added_ = (CommitChange(c, False, (*c.parents, span.good)[0], c.sha, (c.sha,)) for c in forward)
    changes = (*removed, *added_)
    history = GraphHistory(
        package,
        tuple(states),
        tuple(holds[sha] for sha in states),
        tuple(places[change.good] for change in changes),
        tuple(places[change.bad] for change in changes),
    )
    return Graph(history, changes)


def _containing(commits: Iterable[Commit], own: Mapping[str, int]) -> dict[str, int]:
    held: dict[str, int] = {}
    for commit in commits:
        mine = own.get(commit.sha, 0)
        for parent in commit.parents:
            mine |= held.get(parent, 0)
        held[commit.sha] = mine
    return held
