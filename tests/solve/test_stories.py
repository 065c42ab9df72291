"""Failing jobs with a known truth, solved unattended by the command line alone."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import solve_stories
from benchmarks.solve_stories import Story

from support.aorta_cli import COMMAND, Finished, aorta, environ
from support.waiting import patience

RANKS_IN_A_RING = '''\
"""Two ranks that pass a number on in every step; from step 5 on the last rank does not come."""
import argparse
import os
import time

parser = argparse.ArgumentParser()
parser.add_argument("--ranks", type=int)
parser.add_argument("--steps", type=int)
given = parser.parse_args()
ring = [os.pipe() for _ in range(given.ranks)]
for rank in range(given.ranks):
    if os.fork() == 0:
        for step in range(1, given.steps + 1):
            if rank == 1 and step == 5:
                time.sleep(10_000)
            os.write(ring[(rank + 1) % given.ranks][1], b"1")
            os.read(ring[rank][0], 1)
            print(f"rank {rank} step {step}", flush=True)
        os._exit(0)
for _ in ring:
    os.wait()
print("done")
'''


def solved(make: Callable[[Path], Story], place: Path, *options: str) -> tuple[Story, Finished]:
    story = make(place)
    words = ("solve", "--json", "-q", *story.options, *options, "--", *story.command)
    return story, aorta(*words, cwd=place, timeout=300)


def stage(document: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [row for row in document["stages"] if row["name"] == name]
    return dict(found)


def finals(document: dict[str, Any]) -> dict[str, Any]:
    return {axis["name"]: axis["final"] for axis in document["reproducer"]["axes"]}


def test_a_mistake_of_the_user_is_said_after_one_run_and_nothing_more_is_spent(
    tmp_path: Path,
) -> None:
    _, done = solved(solve_stories.missing_module, tmp_path)
    document = done.json()
    assert done.exit_code == 3
    assert document["status"] == "user_error"
    assert document["failure"]["class"] == "import_error"
    assert "modul_that_nobody_has" in document["failure"]["summary"]
    assert document["trials"] == 1
    assert [row["name"] for row in document["stages"]] == ["reproduce"]
    assert document["next"]


def test_a_failure_that_does_not_show_is_told_with_the_most_often_it_can_be(tmp_path: Path) -> None:
    _, done = solved(solve_stories.never_fails, tmp_path)
    document = done.json()
    assert done.exit_code == 3
    assert document["status"] == "did_not_reproduce"
    rate = document["failure"]["rate"]
    assert (rate["reproduced"], rate["of"]) == (0, 20)
    assert 0.15 < rate["high"] < 0.17
    assert document["trials"] == 20
    assert "14 %" in document["not_found_out"][0]


def test_a_nan_is_reduced_to_its_rows_layers_and_steps_and_ships(tmp_path: Path) -> None:
    story, done = solved(
        partial(solve_stories.nan_of_three_rows, harmless=13, steps=700, layers=5),
        tmp_path,
        "--ticket",
        "NAN-1",
    )
    assert done.exit_code == 0, done.stderr
    document = done.json()
    assert document["failure"]["class"] == "nan"
    rate = document["failure"]["rate"]
    assert rate["reproduced"] == rate["of"] == 3  # twice alone, and where its reduction began
    assert finals(document) == story.truth["axes"]
    (data,) = [axis for axis in document["reproducer"]["axes"] if axis["name"] == "DATA"]
    assert [line.split()[0] for line in data["final_items"]] == story.truth["rows"]
    assert document["reproducer"]["elsewhere"] == {"reproduced": 1, "of": 1}
    assert document["cure"] is None
    assert stage(document, "triage")["status"] == "no_answer"
    assert Path(tmp_path, document["bundle"]["path"]).name.startswith("NAN-1-")
    assert document["shared_trials"] > 0
    written = json.loads((tmp_path / document["run_dir"] / "solve.json").read_text())
    assert written == document


def test_a_race_is_cured_by_one_thread_among_useless_mitigations_and_on_the_original(
    tmp_path: Path,
) -> None:
    story, done = solved(partial(solve_stories.race_of_threads, rate=0.7, rounds=30), tmp_path)
    assert done.exit_code == 0, done.stderr
    document = done.json()
    assert document["status"] == "solved"
    assert document["failure"]["class"] == "user_exception"
    assert "lost update" in document["failure"]["summary"]
    rate = document["failure"]["rate"]
    assert rate["low"] < story.truth["rate"] < rate["high"]
    assert finals(document) == story.truth["axes"]
    assert document["cure"]["mitigations"] == story.truth["cure"]
    assert document["cure"]["verified_on"] == "original"
    assert document["cure"]["p"] < 0.05
    assert document["reproducer"]["elsewhere"]["reproduced"] == 1


def test_a_commit_of_the_users_own_is_named_without_a_good_end_though_one_run_in_five_passes(
    tmp_path: Path,
) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    story, done = solved(
        partial(solve_stories.commit_of_the_users_own, behind=8, before=4, rate=0.8),
        repository,
        *("--skip", "triage,bundle", "--output", str(tmp_path / "solve")),
    )
    assert done.exit_code == 0, done.stderr
    document = done.json()
    assert document["status"] == "solved"
    (culprit,) = document["culprits"]
    assert culprit["bad"] == story.truth["culprit"]
    assert culprit["title"] == "change 4"
    assert document["confidence"] >= 0.95
    assert finals(document) == story.truth["axes"]
    assert (
        stage(document, "bisect")["why"] is None
    )  # the original says the same on both sides of it
    assert (repository / ".git/worktrees").exists() is False
    page = (Path(document["run_dir"]) / "report.html").read_text()
    assert "What it changed" in page
    assert "+BLEND = 2" in page


def test_a_batch_that_the_memory_cgroup_kills_is_shrunk_to_the_smallest_that_it_does(
    tmp_path: Path,
) -> None:
    story = solve_stories.batch_too_large(tmp_path, each=4)
    with solve_stories.limited_memory(160) as group:

        def enter() -> None:
            (group / "cgroup.procs").write_text(str(os.getpid()))

        done = subprocess.run(
            (*COMMAND, "solve", "--json", "-q", "--", *story.command),
            cwd=tmp_path, env=environ(), preexec_fn=enter, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["failure"]["class"] == story.truth["class"]
    found = finals(document)
    low, high = story.truth["batch"]
    assert low <= found["BATCH"] <= high
    assert stage(document, "triage")["status"] == "skipped"


def test_a_rank_that_never_comes_to_its_collective_is_a_hang_of_two_ranks_and_five_steps(
    tmp_path: Path,
) -> None:
    told = partial(
        solve_stories.rank_that_does_not_come,
        script=RANKS_IN_A_RING,
        steps=8,
        silence=patience(1),
    )
    story, done = solved(told, tmp_path, "--jobs", "4")
    assert done.exit_code == 0, done.stderr
    document = done.json()
    assert document["failure"]["class"] in story.truth["classes"]
    assert finals(document) == story.truth["axes"]
    assert document["reproducer"]["elsewhere"]["reproduced"] == 1


def test_the_release_of_a_dependency_is_named_between_two_environments(tmp_path: Path) -> None:
    story = solve_stories.release_of_a_dependency(tmp_path, sys.executable, releases=6)
    done = aorta(
        *("solve", "--json", "-q", "--skip", "triage", *story.options, "--", *story.command),
        cwd=story.directory, timeout=600,
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    document = done.json()
    (culprit,) = document["culprits"]
    assert (culprit["package"], culprit["good"], culprit["bad"]) == story.truth["culprit"]
    assert stage(document, "bisect")["why"] is None  # the original says the same in both of them
    assert finals(document) == story.truth["axes"]
