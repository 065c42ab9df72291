"""`aorta runs` and `aorta runs compare`."""

import sys
from pathlib import Path

from aorta.report.runs import compare
from support.aorta_cli import aorta
from support.report_runs import MAKERS, private, run_dir


def test_runs_lists_every_verb_with_its_answer(tmp_path: Path) -> None:
    for verb, make in MAKERS.items():
        if verb != "attribution":
            make(tmp_path / verb, "")
    done = aorta("runs", tmp_path, "--json")
    assert done.exit_code == 0, done.stderr
    found = {
        run["path"].removeprefix(f"{tmp_path}/").partition("/")[0]: run
        for run in done.json()["runs"]
    }
    assert set(found) == {"run", "reduce", "triage", "optimize", "bisect", "launch"}
    assert found["run"]["answer"].startswith("half_nan fails in 8 of 31 trials")
    assert found["launch"]["verb"] == "launch"
    assert found["reduce"]["ticket"] == "GPU-7"
    assert {run["state"] for run in found.values()} == {"done"}


def test_for_people_it_is_one_table_newest_first(tmp_path: Path) -> None:
    private(run_dir(tmp_path / "old"), "run", created="2026-11-14T00:00:00Z")
    private(run_dir(tmp_path / "new"), "run", created="2026-11-15T00:00:00Z", state="budget")
    lines = aorta("runs", cwd=tmp_path).stdout.splitlines()
    assert lines[0].split() == ["verb", "ticket", "state", "age", "answer", "directory"]
    assert "new/half_nan" in lines[1]
    assert "budget" in lines[1]
    assert "old/half_nan" in lines[2]


def test_stages_and_private_state_are_no_runs_of_their_own(tmp_path: Path) -> None:
    run = MAKERS["bisect"](tmp_path, "")
    private(run / "stages" / "containers", "bisect")
    assert [r["path"] for r in aorta("runs", tmp_path, "--json").json()["runs"]] == [str(run)]


def test_a_directory_without_runs_says_so(tmp_path: Path) -> None:
    done = aorta("runs", cwd=tmp_path)
    assert (done.exit_code, done.stdout) == (0, "no runs below .\n")
    assert aorta("runs", "nowhere", cwd=tmp_path).exit_code == 2


def test_compare_says_what_changed_and_whether_it_may_be_luck(tmp_path: Path) -> None:
    for count, script in ((6, "exit 1"), (6, "exit 0")):
        aorta("run", "--trials", str(count), "-q", "--", "bash", "-c", script, cwd=tmp_path)
    done = aorta("runs", "compare", "results/command", "results/command-2", "--json", cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    changed = {row["what"]: row for row in done.json()["changed"]}
    rate = changed["failure rate"]
    assert (rate["before"][:6], rate["after"][:6]) == ("6 of 6", "0 of 6")
    assert rate["note"] == "p = 0.0022"
    assert changed["failures seen"]["after"] == "none"
    assert "machine: hostname" not in changed


def test_compare_of_two_failures_says_where_each_was_raised(tmp_path: Path) -> None:
    for script in ("exit(2)", "def work(): raise ValueError('rows')\nwork()"):
        (tmp_path / "train.py").write_text(script)
        command = (sys.executable, "train.py")
        aorta("run", "--trials", "2", "-q", "--", *command, cwd=tmp_path)
    done = aorta("runs", "compare", "results/command", "results/command-2", "--json", cwd=tmp_path)
    changed = {row["what"]: row for row in done.json()["changed"]}
    frames = changed["result.failure.frames"]
    assert frames["before"] == "absent"
    assert frames["after"] == "train.py:<module>, train.py:work"


def test_a_run_compared_with_itself_has_not_changed(tmp_path: Path) -> None:
    for verb, make in MAKERS.items():
        run = make(tmp_path / verb, "")
        assert compare(run, run) == []
    done = aorta("runs", "compare", run, run)
    assert (done.exit_code, done.stdout) == (0, "nothing that matters differs\n")


def test_compare_of_reductions_names_the_axis_that_moved(tmp_path: Path) -> None:
    before, after = MAKERS["reduce"](tmp_path / "a", ""), MAKERS["reduce"](tmp_path / "b", "")
    text = (after / "result.json").read_text().replace('"final": 137', '"final": 90')
    (after / "result.json").write_text(text)
    changed = aorta("runs", "compare", before, after, "--json").json()["changed"]
    row = next(row for row in changed if row["what"] == "result.axes.NUM_STEPS.final")
    assert (row["before"], row["after"]) == ("137", "90")
