"""Dates of commits are what clocks, rebases and imports make of them: nothing is decided by them."""

import random
from pathlib import Path

import pytest

from aorta.bisect.histories import span_between
from aorta.bisect.package import git_package
from aorta.bisect.spec import PackageSpec
from aorta.runtimes.git import Repository as Asked
from support.aorta_cli import aorta
from support.git_repositories import DATES, Repository, contained, drawn_parents


@pytest.mark.parametrize("dates", DATES)
def test_what_lies_between_two_commits_does_not_depend_on_dates(tmp_path: Path, dates: str) -> None:
    for seed in range(3):
        draw = random.Random(f"{dates} {seed}")
        parents = drawn_parents(draw, 40)
        made = Repository.create(tmp_path / f"repo-{seed}")
        shas = made.graph(parents, DATES[dates](40, draw))
        repository = Asked.on_host(made.path)
        held = [contained(parents, number) for number in range(40)]
        for _ in range(6):
            good, bad = sorted(draw.sample(range(40), 2))
            for newer, older in ((bad, good), (good, bad)):
                listed = [commit.sha for commit in repository.only_in(shas[newer], shas[older])]
                assert set(listed) == {shas[n] for n in held[newer] - held[older]}
                places = {sha: place for place, sha in enumerate(listed)}
                for sha, place in places.items():
                    own = parents[shas.index(sha)]
                    assert all(places.get(shas[p], -1) < place for p in own)
            span = span_between(repository, shas[good], shas[bad], find_fix=True)
            states = span.graph("package").history.states
            assert len(set(states)) == len(states)
            assert (states[0], states[-1]) == (shas[good], shas[bad])


def test_a_bisection_ends_at_the_commit_whatever_the_dates(tmp_path: Path) -> None:
    draw = random.Random("shuffled")
    parents = [[], *([n] for n in range(39))]
    made = Repository.create(tmp_path / "repo")
    shas = made.graph(parents, DATES["shuffled"](40, draw))
    culprit = draw.randrange(1, 40)
    found = aorta(
        *("bisect", "--json", "--good", shas[0], "--bad", shas[-1]),
        *("--max-trials", "40", "--output-prefix", tmp_path / "out"),
        *("--", "sh", "-c", f"test $(cat number) -lt {culprit}"),
        cwd=made.path,
    ).json()
    assert (found["status"], found["culprits"][0]["commit"]) == ("found", shas[culprit])
    assert found["tests"] <= 2 + 6 + 6


def test_ends_beside_the_main_line_are_searched_along_it_with_what_only_they_have(
    tmp_path: Path,
) -> None:
    """Good is a feature on an old commit, bad the same feature rebased onto a new one."""
    made = Repository.create(tmp_path / "repo")
    main = [made.commit(f"main {n}", {"number": f"{n}\n"}) for n in range(8)]
    ends = []
    for start in (main[1], main[-1]):
        made.git("checkout", "--quiet", "--detach", start)
        ends.append(made.commit("feature", {"feature": "here\n"}))
    spec = PackageSpec(name="p", path=str(made.path), main_branch="main")
    found = git_package(spec, Asked.on_host(made.path), ends[0], ends[1])
    assert found.versions == tuple(main[1:])
    assert found.spec.cherry_pick == (ends[1], ends[0])
