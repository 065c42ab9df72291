"""Against `git bisect run`: the same commit, and how many tests each takes, on histories with
merges.

    python -m benchmarks git_bisect               synthetic histories of every shape
    python -m benchmarks.git_bisect REPOSITORY    culprits planted in a real one, which is only read

A culprit is planted by saying so: a state fails if it contains that commit. `git bisect` is the
real one, told by `git bisect run`; for aorta, its own search over what its own reader of histories
found.
"""

import random
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aorta.bisect.histories import CommitChange, CommitSpan, span_between
from aorta.core.axis import Purpose
from aorta.core.trial import Verdict
from aorta.runtimes.git import Repository
from aorta.search.bisection import Bisection
from aorta.search.timeline import GraphTimeline, History, Timeline

SHAPES = ("straight", "branches", "octopus", "criss-cross", "releases", "main into branches")
_NAME = "package"
_FIRST_BAD = re.compile(r"^([0-9a-f]{40}) is the first (?:bad|new) commit", re.MULTILINE)


@dataclass(frozen=True)
class Compared:
    culprit: str
    git: str | None
    git_tests: int
    aorta: str | None
    aorta_tests: int  # until it is found
    checks: int  # to be as sure as it says

    @property
    def more(self) -> int:
        return self.aorta_tests - self.git_tests


def main() -> None:
    for shape in SHAPES:
        _print(shape, [synthetic(shape, seed) for seed in range(20)])


def _print(name: str, ran: Sequence[Compared]) -> None:
    git = sum(one.git == one.culprit for one in ran)
    aorta = sum(one.aorta == one.culprit for one in ran)
    print(
        f"{name:<40} git {git}/{len(ran)} in {statistics.fmean(o.git_tests for o in ran):.1f}; "
        f"aorta {aorta}/{len(ran)}, {statistics.fmean(o.more for o in ran):+.1f} tests "
        f"(most {max(o.more for o in ran):+d}) and {statistics.fmean(o.checks for o in ran):.1f} "
        "checks",
        flush=True,
    )


# -- one history


def compare(path: Path, good: str, bad: str, culprit: str, *, find_fix: bool = False) -> Compared:
    """`bad` has the culprit and `good` has not; looking for a fix, it is the good end that has the
    repair.
    """
    answer, tests = by_git(path, bad if find_fix else good, good if find_fix else bad, culprit)
    span = span_between(Repository.on_host(path), good, bad, find_fix=find_fix)
    found, sought, checks = by_aorta(path, span, culprit, find_fix=find_fix)
    return Compared(culprit, answer, tests, found, sought, checks)


def by_git(path: Path, old: str, new: str, culprit: str) -> tuple[str | None, int]:
    """In a clone that shares the objects: the user's repository is not bisected."""
    with tempfile.TemporaryDirectory() as place:
        _git(Path(place), "clone", "--quiet", "--shared", "--no-checkout", str(path), "clone")
        clone = Path(place) / "clone"
        _git(clone, "update-ref", "--no-deref", "HEAD", new)
        _git(clone, "bisect", "start", "--no-checkout", new, old)
        has = f"git merge-base --is-ancestor {culprit} BISECT_HEAD"
        script = f"echo tested; if {has}; then exit 1; else exit 0; fi"
        said = _git(clone, "bisect", "run", "sh", "-c", script)
    found = _FIRST_BAD.search(said)
    return (found[1] if found else None), said.count("tested\n")


def by_aorta(
    path: Path, span: CommitSpan, culprit: str, *, find_fix: bool
) -> tuple[str | None, int, int]:
    search: Bisection
    changes: Sequence[CommitChange]
    if span.has_merges:
        graph = span.graph(_NAME)
        search, changes = Bisection(GraphTimeline(graph.history)), graph.changes
    else:
        changes = span.line.changes
        shas = tuple(commit.sha for commit in span.line.states)
        search = Bisection(Timeline([History(_NAME, shas, span.line.times)]))
    top = span.good if find_fix else span.bad
    containing = set(_git(path, "rev-list", "--ancestry-path", f"{culprit}..{top}").split())
    containing.add(culprit)
    sought = checks = 0
    while not search.done:
        [point] = search.ask(1)
        is_check = point.purpose in (Purpose.CONFIRM, Purpose.REPLAY)
        sought, checks = sought + (not is_check), checks + is_check
        search.tell(point, Verdict((str(point[_NAME]) in containing) != find_fix))
    answer = search.answer
    if answer is None or len(answer.changes) != 1 or not search.is_sure:
        return None, sought, checks
    return changes[answer.changes[0].rank].commit.sha, sought, checks


def real(path: Path, cases: int = 6, seed: int = 0) -> list[Compared]:
    """Ranges that hold many merges, ending at HEAD or at a merge before it."""
    rng = random.Random(seed)
    merges = _git(path, "rev-list", "--merges", "HEAD", "--max-count=400").split()
    chain = _git(path, "rev-list", "--first-parent", "HEAD", "--max-count=600").split()
    ran: list[Compared] = []
    while len(ran) < cases:
        bad = rng.choice([chain[0], *merges[: len(merges) // 4]])
        older = _git(path, "rev-list", bad, "--max-count=3000").split()
        good = rng.choice(older[len(older) // 4 :])
        between = _git(path, "rev-list", bad, f"^{good}").split()
        if 20 <= len(between) <= 3000:
            ran.append(compare(path, good, bad, rng.choice(between)))
    return ran


# -- synthetic histories


def synthetic(shape: str, seed: int) -> Compared:
    rng = random.Random(f"{shape} {seed}")
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "repository"
        shas = make_repository(path, list(history(shape, rng)))
        top = shas[-1]
        ancestors = _git(path, "rev-list", "--topo-order", top).split()
        good = rng.choice(ancestors[len(ancestors) // 2 :])
        between = _git(path, "rev-list", top, f"^{good}").split()
        culprit = rng.choice(between)
        find_fix = rng.random() < 0.3
        ends = (top, good) if find_fix else (good, top)
        return compare(path, *ends, culprit, find_fix=find_fix)


def history(shape: str, rng: random.Random) -> Iterator[tuple[int, ...]]:
    """The parents of each commit, by number; the last one contains all."""
    heads, count = [0], 1
    yield ()
    wanted = rng.randrange(4, 70)
    while count < wanted:
        parents = _parents(shape, heads, count, rng)
        yield parents
        heads = [h for h in heads if h not in parents or (h == heads[0] and rng.random() < 0.3)]
        heads.append(count)
        count += 1
    yield tuple(dict.fromkeys(heads)) if len(heads) > 1 else (count - 1,)


def _parents(shape: str, heads: Sequence[int], count: int, rng: random.Random) -> tuple[int, ...]:
    chance = rng.random()
    if shape == "straight" or count < 3:
        return (heads[-1],)
    if shape == "octopus" and len(heads) > 3 and chance < 0.4:
        return tuple(rng.sample(heads, rng.randrange(3, min(6, len(heads)) + 1)))
    if shape == "criss-cross" and len(heads) > 1 and chance < 0.5:
        return tuple(rng.sample(heads, 2))
    if shape == "releases" and len(heads) > 1 and chance < 0.35:
        return heads[0], heads[-1]
    if shape == "main into branches" and len(heads) > 1 and chance < 0.5:
        return heads[-1], heads[0]
    if len(heads) > 1 and chance < 0.3:
        return tuple(rng.sample(heads, 2))
    return (rng.randrange(count),) if chance > 0.75 else (rng.choice(heads),)


def make_repository(path: Path, parents: Sequence[tuple[int, ...]]) -> list[str]:
    """All commits at once; their trees are empty."""
    path.mkdir(parents=True)
    _git(path, "init", "--quiet")
    lines: list[str] = []
    for number, known in enumerate(parents):
        who = f"Ann <ann@example.com> {1_700_000_000 + 60 * number} +0000"
        title = f"commit {number}\n"
        lines += [f"commit refs/heads/c{number}", f"mark :{number + 1}"]
        lines += [f"author {who}", f"committer {who}", f"data {len(title)}", title]
        lines += [f"{'merge' if i else 'from'} :{p + 1}" for i, p in enumerate(known)]
        lines.append("")
    _git(path, "fast-import", "--quiet", said="\n".join(lines))
    names = [f"refs/heads/c{number}" for number in range(len(parents))]
    return _git(path, "rev-parse", *names).split()


def _git(path: Path, *arguments: str, said: str = "") -> str:
    done = subprocess.run(
        ("git", "-c", "init.defaultBranch=main", *arguments),
        cwd=path,
        input=said,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"git {arguments}: {done.stderr}"
    return done.stdout


if __name__ == "__main__":
    for given in sys.argv[1:]:
        _print(Path(given).name, real(Path(given)))
    if not sys.argv[1:]:
        main()
