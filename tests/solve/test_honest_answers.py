"""What a solve may claim: a cure and a culprit that the original contradicts are none, and a guess
is called one.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from support.aorta_cli import Finished, aorta
from support.git_repositories import Repository
from support.planted_index import PlantedIndex

NEEDS_TWO_THREADS = """\
import os
import sys

rounds = int(sys.argv[2])
racing = int(os.environ.get("OMP_NUM_THREADS", "4")) > 1
if (racing and rounds >= 7) or rounds >= 500:
    raise RuntimeError("lost update: the total is wrong")
"""

BLEND = """\
import sys

BLEND = {blend}
steps = int(sys.argv[2])
if (BLEND > 1 and steps >= 5) or steps >= {always}:
    raise ValueError("blend weights do not add up")
"""

NOW_AND_THEN = """\
import os

with open("../told", "a") as told:
    told.write(".")
if os.path.getsize("../told") % 2:
    open("/nowhere/rows.txt")
"""


def solve(place: Path, *words: str | Path) -> Finished:
    return aorta("solve", "--json", "-q", *words, cwd=place, timeout=300)


def stage(document: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [row for row in document["stages"] if row["name"] == name]
    return dict(found)


def told_on_the_terminal(place: Path, document: dict[str, Any], head: str) -> str:
    summary = Path(place, document["run_dir"], "summary.md").read_text()
    (line,) = [line for line in summary.splitlines() if line.startswith(f"- **{head}**")]
    return line.partition(": ")[2]


def test_a_mitigation_that_mends_the_reduced_reproducer_alone_is_no_cure(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(NEEDS_TWO_THREADS)
    done = solve(
        tmp_path, "--skip", "diverge,bundle", "--", "python", "train.py", "--rounds", "900"
    )
    document = done.json()
    assert [axis["final"] for axis in document["reproducer"]["axes"]] == [7]
    assert document["cure"] is None
    assert document["status"] == "partly"
    triage = stage(document, "triage")
    assert triage["status"] == "no_answer"
    assert "omp_one_thread mends the reduced reproducer, and not the original" in triage["why"]
    assert any("omp_one_thread" in said for said in document["not_found_out"])
    assert not any("export" in said for said in document["next"])


def history(place: Path, blends: Sequence[int], always: int, broken: Sequence[int] = ()) -> None:
    """One commit a blend; in `broken` ones the program does not even start."""
    repository = Repository.create(place)
    for number, blend in enumerate(blends):
        text = "(\n" if number in broken else BLEND.format(blend=blend, always=always)
        repository.commit(f"change {number}", {"train.py": text, "touched": str(number)})


def test_a_commit_that_brings_the_reduced_failure_alone_is_no_culprit(tmp_path: Path) -> None:
    history(tmp_path / "repository", [1] * 4 + [2] * 3, always=100)
    done = solve(
        tmp_path / "repository",
        *("--skip", "triage,diverge,bundle", "--output", tmp_path / "solve"),
        *("--", "python", "train.py", "--steps", "400"),
    )
    document = done.json()
    assert document["culprits"] == []
    assert document["confidence"] is None
    assert document["status"] == "partly"
    assert stage(document, "bisect")["status"] == "no_answer"
    assert "not that of the original" in stage(document, "bisect")["why"]
    assert told_on_the_terminal(tmp_path, document, "brought by") == "not known"


def test_a_change_that_hides_among_untestable_ones_is_told_as_one_of_them(tmp_path: Path) -> None:
    history(tmp_path / "repository", [1] * 3 + [2] * 4, always=1000, broken=(3, 4))
    done = solve(
        tmp_path / "repository",
        *("--stages", "reproduce,bisect", "--good", "HEAD~6", "--output", tmp_path / "solve"),
        *("--", "python", "train.py", "--steps", "400"),
    )
    document = done.json()
    assert document["bisect_status"] == "range"
    assert {culprit["title"] for culprit in document["culprits"]} == {
        "change 3",
        "change 4",
        "change 5",
    }
    assert told_on_the_terminal(tmp_path, document, "brought by").startswith("one of 3 changes: ")


@pytest.mark.parametrize("dry", [(), ("--dry-run",)], ids=["solve", "dry run"])
def test_a_good_end_that_is_nowhere_is_said_before_anything_runs(
    dry: tuple[str, ...], tmp_path: Path
) -> None:
    history(tmp_path / "repository", [1, 2], always=100)
    for place in (tmp_path / "repository", tmp_path):
        done = aorta(
            *("solve", *dry, "--good", "v2.33", "--output", str(tmp_path / "solve")),
            *("--", "python", "train.py", "--steps", "9"),
            cwd=place,
        )
        assert done.exit_code == 2, done.stderr
        assert "v2.33" in done.stderr
        assert done.stderr.count("\n") == 1
    assert not (tmp_path / "solve").exists()


def test_a_file_that_is_missing_each_time_is_a_mistake_said_after_two_runs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("open('rows.txt')\n")
    done = solve(tmp_path, "--", "python", "train.py")
    document = done.json()
    assert done.exit_code == 3
    assert document["status"] == "user_error"
    assert document["failure"]["class"] == "missing_file"
    assert document["failure"]["rate"]["of"] == 2
    assert document["trials"] == 2
    told = document["next"][-1]
    assert told.startswith("if it is right as it is: aorta solve --stages reduce,source,bundle -- ")
    anyway = solve(tmp_path, "--stages", "source", "--", "python", "train.py").json()
    assert anyway["status"] == "partly"


def test_a_file_that_is_missing_now_and_then_is_no_mistake(tmp_path: Path) -> None:
    place = tmp_path / "work"
    place.mkdir()
    (place / "train.py").write_text(NOW_AND_THEN)
    done = solve(place, "--stages", "reproduce", "--", "python", "train.py")
    document = done.json()
    assert (done.exit_code, document["status"]) == (3, "partial")
    assert document["failure"]["class"] == "missing_file"
    rate = document["failure"]["rate"]
    assert 0 < rate["reproduced"] < rate["of"]


def test_a_run_that_ends_well_and_got_slow_on_the_way_keeps_its_shape_while_it_shrinks(
    tmp_path: Path,
) -> None:
    (tmp_path / "train.py").write_text(
        "import sys\n"
        "for step in range(int(sys.argv[2])):\n"
        "    print(f'step {step} step_time {3.0 if step == 0 else 0.1 if step < 30 else 0.2}')\n"
    )
    words = ("--stages", "reproduce,reduce", "--", "python", "train.py", "--steps", "64")
    document = solve(tmp_path, *words).json()
    assert document["failure"]["class"] == "unknown"
    assert "it got slower: 0.1 at first, 0.2 at its end" in document["failure"]["summary"]
    (steps,) = [axis["final"] for axis in document["reproducer"]["axes"]]
    assert 31 < steps <= 40  # early and late ones, and not the one that warms up


def test_where_nothing_is_seen_to_fail_the_way_to_say_a_slowness_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('step_time 0.5')\n")
    done = solve(tmp_path, "--max-trials", "2", "--", "python", "train.py")
    assert any("--oracle metric" in said for said in done.json()["next"])


def test_a_failure_of_which_nothing_can_shrink_ships_what_was_seen_of_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise RuntimeError('boom')\n")
    done = solve(tmp_path, "--skip", "triage", "--", "python", "train.py")
    document = done.json()
    assert done.exit_code == 3
    assert stage(document, "reduce")["status"] == "no_answer"
    assert stage(document, "bundle")["status"] == "done"
    (verify,) = [said for said in document["next"] if "bundle verify" in said]
    assert aorta(*verify.split()[1:]).exit_code == 0


def test_two_releases_that_fail_only_together_are_told_as_two(tmp_path: Path) -> None:
    index = PlantedIndex(tmp_path / "wheels")
    for name, broken_from in (("left", "1.1"), ("right", "1.2")):
        index.releases(name, ["1.0", "1.1", "1.2"], broken_from)
    (tmp_path / "good.txt").write_text("left==1.0\nright==1.0\n")
    wheels = ("--no-index", "--find-links", str(tmp_path / "wheels"))
    venv = tmp_path / "venv"
    # Without pip, and so without what pip brings, which is on no index of ours.
    subprocess.run((sys.executable, "-m", "venv", "--without-pip", str(venv)), check=True)
    pip = (sys.executable, "-m", "pip", "--python", str(venv / "bin/python"), "install", "-q")
    subprocess.run((*pip, *wheels, "left==1.2", "right==1.2"), check=True)
    (tmp_path / "train.py").write_text(
        "import left, right\nif left.broken and right.broken:\n    raise ValueError('no such "
        "axis')\n"
    )
    done = solve(
        tmp_path,
        *("--stages", "reproduce,bisect", "--good", "good.txt", *wheels),
        *("--", str(venv / "bin/python"), "train.py"),
    )
    document = done.json()
    assert document["status"] == "solved"
    assert document["bisect_status"] == "pair"
    told = told_on_the_terminal(tmp_path, document, "brought by")
    assert set(told.partition(" (")[0].split(" and ")) == {"left 1.1", "right 1.2"}
