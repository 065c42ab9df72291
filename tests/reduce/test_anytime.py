"""The best so far is on disk at every moment, and a budget is held over everything that is run."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from aorta.engine.events import Event, Note
from aorta.engine.session import Resume
from aorta.reduce.request import ReduceRequest, reduce
from aorta.search.subset import Splitting
from support.aorta_cli import Finished, aorta, environ, start_aorta
from support.reductions import numeric, reduce_spec, run_dir_of, write_spec
from support.waiting import patience, wait_until

# From the twelfth trial on it never ends, so that there is all the time to stop it.
STALLS = """\
echo x >> "$COUNT"
[ "$(wc -l < "$COUNT")" -gt 12 ] && sleep 9999
[ "$N" -ge 137 ] && grep -qx 'row 3100' "$F" && echo BOOM
"""


def stalling(place: Path) -> Path:
    place.mkdir(exist_ok=True)
    (place / "rows.txt").write_text("".join(f"row {n}\n" for n in range(4000)))
    rows = {"name": "F", "kind": "file_subset", "initial": "rows.txt"}
    return write_spec(place, STALLS, [numeric("N", 100_000, 0), rows])


def shrunken_fails(run_dir: Path) -> bool:
    script = run_dir / "shrunken" / "run_repro.sh"
    env = environ({"COUNT": "/dev/null"})
    done = subprocess.run(
        ["bash", script], cwd="/", env=env, capture_output=True, text=True, check=False
    )
    return "BOOM" in done.stdout


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_reduction_that_is_stopped_leaves_its_best_so_far(tmp_path: Path, how: int) -> None:
    spec = stalling(tmp_path)
    count = tmp_path / "count"
    process = start_aorta(
        "reduce", "--spec", spec, "--output", "out", "-q", cwd=tmp_path, env={"COUNT": str(count)}
    )
    wait_until(lambda: count.is_file() and count.read_text().count("x") > 12, "twelve trials")
    os.kill(process.pid, how)
    process.communicate(timeout=patience())
    (run_dir,) = (tmp_path / "out").glob("2*")
    found = json.loads((run_dir / "result.json").read_text())
    assert found["status"] == "partial"
    finals = {axis["name"]: axis["final"] for axis in found["axes"]}
    assert finals["N"] >= 137
    assert finals["F"] <= 1000
    assert f"aorta reduce --resume {run_dir.relative_to(tmp_path)}" in found["next"]
    assert shrunken_fails(run_dir)
    assert "row 3100" in (run_dir / "shrunken" / "rows.txt").read_text().splitlines()
    packed = aorta("bundle", run_dir, "--output", ".", "--no-check", "--json", cwd=tmp_path)
    assert packed.exit_code == 0, packed.stderr


def test_a_budget_of_time_is_held_over_every_question_of_a_reduction(tmp_path: Path) -> None:
    """What is tried after the search (is an axis read, does the copy fail) has no budget of its
    own, and a resumed run goes on with what is given to it.
    """
    script = 'sleep 0.4; [ "$N" -ge 3 ] && echo BOOM\n'
    spec = write_spec(tmp_path, script, [numeric("N", 9, 3)])
    for budget, more in (("2s", ()), ("1s", ("--resume",))):
        began = time.monotonic()
        done = reduce_spec(spec, "--max-wall-clock", budget, *more)
        assert time.monotonic() - began < float(budget[:-1]) + patience(4)
        assert done.exit_code in {0, 4}, done.stderr


def test_a_resumed_reduction_says_what_is_new_and_how_long_the_rest_takes(tmp_path: Path) -> None:
    """The journal is read in no time, which says nothing about a trial."""
    spec = write_spec(tmp_path, 'sleep 1; [ "$N" -ge 137 ] && echo BOOM\n', [numeric("N", 999, 0)])
    reduce_spec(spec, "--max-wall-clock", "5s")
    go_on = ("reduce", "--resume", "--output", "out", "--max-wall-clock", "3s")
    done = aorta(*go_on, cwd=tmp_path)
    decided = [line for line in done.stderr.splitlines() if "reproduce" in line]
    decided = [line for line in decided if "trial " not in line]
    assert decided
    assert not any("N=999" in line for line in decided), "it was decided before"
    left = [re.search(r"about (\d+) candidates? left, (\d+)s", line) for line in decided]
    assert all(int(found[2]) >= int(found[1]) for found in left if found)


def solved(place: Path, *words: str) -> Finished:
    return aorta("solve", "--json", "-q", *words, cwd=place)


TRAIN = """\
import sys, time
rows = open(sys.argv[1]).read().splitlines()
time.sleep(0.3)
with open({count!r}, "a") as count:
    count.write("x")
while open({count!r}).read().count("x") > {most}:
    time.sleep(1)
if "row 700" in rows:
    raise ValueError("bad row")
"""


def train(place: Path, most: int) -> Path:
    count = place / "count"
    (place / "train.py").write_text(TRAIN.format(count=str(count), most=most))
    (place / "rows.txt").write_text("".join(f"row {n}\n" for n in range(1000)))
    return count


def check_partial(document: dict[str, Any]) -> None:
    (axis,) = [a for a in document["reproducer"]["axes"] if a["initial"] == 1000]
    assert 1 <= axis["final"] <= 500
    run_dir = Path(document["run_dir"])
    assert json.loads((run_dir / "solve.json").read_text()) == document
    assert f"1000 -> {axis['final']}" in (run_dir / "summary.md").read_text()
    assert Path(document["bundle"]["path"]).is_file()


def test_a_solve_that_is_stopped_while_it_reduces_ships_the_best_so_far(tmp_path: Path) -> None:
    count = train(tmp_path, most=16)
    process = start_aorta("solve", "--json", "-q", "--", "python", "train.py", "rows.txt",
                          cwd=tmp_path)  # fmt: skip
    wait_until(lambda: count.is_file() and len(count.read_text()) > 16, "sixteen trials")
    (run_dir,) = (tmp_path / "solve").glob("2*")
    wait_until((run_dir / "solve.json").is_file, "a summary while it runs")
    under_way = json.loads((run_dir / "solve.json").read_text())
    assert under_way["status"] == "partial"
    assert under_way["reproducer"]["axes"]
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=patience())
    assert process.returncode == 130, err
    document = json.loads(out)
    check_partial(document)
    assert any("--resume" in said for said in document["next"])
    page = (run_dir / "report.html").read_text()
    assert "bad row" in page
    (tmp_path / "train.py").write_text(TRAIN.format(count=str(count), most=10**6))
    count.write_text("")


def test_a_budget_is_spent_and_what_is_left_of_it_reduces(tmp_path: Path) -> None:
    train(tmp_path, most=10**6)
    words = ("--", "python", "train.py", "rows.txt")
    began = time.monotonic()
    done = solved(tmp_path, "--budget", "8s", *words)
    took = time.monotonic() - began
    assert done.exit_code in {0, 4}, done.stderr
    document = done.json()
    check_partial(document)
    assert took < 8 + patience(6)
    began = time.monotonic()
    again = solved(tmp_path, "--resume", document["run_dir"], "--budget", "3s")
    assert time.monotonic() - began < 3 + patience(6)
    assert again.exit_code in {0, 4}
    assert again.json()["reproducer"]["axes"]


def test_two_repeats_of_a_failure_that_never_missed_are_enough_to_begin(tmp_path: Path) -> None:
    spec = write_spec(tmp_path, '[ "$N" -ge 137 ] && echo BOOM\n', [numeric("N", 200, 0)],
                      budget={})  # fmt: skip
    report = reduce_spec(spec).json()
    assert (report["status"], report["original"]["of"]) == ("reduced", 2)
    trace = (run_dir_of(report, tmp_path) / "reduction_trace.jsonl").read_text()
    assert json.loads(trace.splitlines()[0])["rate"]["of"] == 2


@pytest.mark.parametrize("row", [0, 7, 150, 299, 300, 451, 598, 599])
def test_one_bad_row_of_six_hundred_is_among_forty_after_eight_trials(row: int) -> None:
    """Where a trial takes a minute, a budget may end there."""
    search = Splitting(frozenset(range(600)), floor=1, all_expected=False, checks=True)
    left = []
    while asked := search.ask(1):
        search.tell(asked[0], row in asked[0])
        left.append(len(search.verified))
    assert left[7] <= 40
    assert search.verified == {row}
    assert len(left) <= 15


def test_what_ships_and_cannot_be_written_loses_nothing_that_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **_more: object) -> None:
        raise RuntimeError("no recipe today")

    spec = write_spec(tmp_path, '[ "$N" -ge 137 ] && echo BOOM', [numeric("N", 5000, 50)])
    request = ReduceRequest(spec=spec, output=tmp_path / "out")
    said: list[Event] = []
    with monkeypatch.context() as patched:
        patched.setattr("aorta.reduce.shrunken.recipe_document", broken)
        with pytest.raises(RuntimeError, match="no recipe today"):
            reduce(request, lambda: [said.append])
    (run_dir,) = (tmp_path / "out").glob("2*")
    found = json.loads((run_dir / "result.json").read_text())
    assert (found["axes"][0]["final"], found["search"]) == (137, "reduced")
    notes = [event.text for event in said if isinstance(event, Note)]
    assert any("could not be written: no recipe today" in note for note in notes)
    again = reduce(ReduceRequest(output=tmp_path / "out", resume=Resume()))
    assert again.status == "reduced"
    assert shrunken_fails(run_dir)
