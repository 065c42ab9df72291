"""A matrix that is killed goes on where it was: no trial runs twice, and what came from before is
visible.
"""

import json
import os
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from aorta.engine.journal import read_records
from support.aorta_cli import COMMAND, aorta, environ, start_aorta
from support.processes import processes_with, wait_until_no_process_has
from support.triage_runs import BASELINE, by_name, cell, document, run, written
from support.triage_runs import loaded as load
from support.waiting import patience, wait_until

SLOW = 'sleep 0.1; echo "$AORTA_TRIAL_DIR" >> "$LOG"; test -n "$FIXED"'


def wait_for_trials(folder: Path, count: int) -> Path:
    def begun() -> list[Path]:
        journals = folder.glob("triage_results/*/*/*/.aorta/journal.jsonl")
        return [path for path in journals if path.read_bytes().count(b'"kind":"trial"') >= count]

    wait_until(begun, f"the writing down of {count} trials")
    return begun()[0].parent.parent


def trials_of_the_first_cell(run_dir: Path) -> int:
    places = [Path(record.path).parent for record in read_records(run_dir / ".aorta/journal.jsonl")]
    return places.count(places[0])


def recipe(folder: Path) -> Path:
    cells = [BASELINE, cell("fixed", extra_env={"FIXED": "1"}), cell("c", extra_env={"X": "1"})]
    return written(folder, document(*cells, script=SLOW, trials=5))


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_killed_and_resumed_it_runs_no_trial_twice(tmp_path: Path, jobs: str) -> None:
    log = tmp_path / "log"
    words = ["triage", "run", "--recipe", str(recipe(tmp_path)), "--jobs", jobs, "--json", "-q"]
    env = {"LOG": str(log)}
    process = start_aorta(*words, cwd=tmp_path, env=env)
    run_dir = wait_for_trials(tmp_path, 4)
    wait_until(lambda: trials_of_the_first_cell(run_dir) >= 3, "three trials of the baseline")
    process.kill()
    process.communicate(timeout=patience())
    done = aorta(*words, "--resume", cwd=tmp_path, env=env)
    assert done.exit_code == 0, done.stderr
    matrix = done.json()
    assert tmp_path / matrix["run_dir"] == run_dir
    assert matrix["resumed_trials"] >= 4
    cells = by_name(matrix)
    assert cells["baseline-local"]["resumed"] is True
    assert cells["baseline-local"]["resumed_trials"] >= 3
    assert "Resumed" in (run_dir / "matrix.md").read_text()
    assert sum(entry["resumed_trials"] for entry in cells.values()) == matrix["resumed_trials"]
    # A trial that ended in the very moment of the kill may have run and not been written down.
    again = [name for name, runs in Counter(log.read_text().split()).items() if runs > 1]
    assert len(again) <= int(jobs)


def test_a_finished_matrix_resumed_runs_nothing_and_needs_no_recipe(tmp_path: Path) -> None:
    env = {"LOG": str(tmp_path / "log")}
    first = aorta(
        "triage", "run", "--recipe", recipe(tmp_path), "--timeout", "60", "--json", "-q",
        cwd=tmp_path, env=env,
    ).json()  # fmt: skip
    before = (tmp_path / "log").read_text()
    (tmp_path / "recipe.json").unlink()
    done = aorta(
        "triage", "run", "--resume", first["run_dir"], "--json", "-q", cwd=tmp_path, env=env
    )
    assert done.exit_code == 0, done.stderr
    matrix = done.json()
    assert (tmp_path / "log").read_text() == before
    assert all(entry["resumed_trials"] == entry["trials"] for entry in matrix["cells"])
    assert [entry["call"] for entry in matrix["cells"]] == [
        entry["call"] for entry in first["cells"]
    ]


def test_another_recipe_is_refused_on_resume(tmp_path: Path) -> None:
    env = {"LOG": str(tmp_path / "log")}
    first = aorta(
        "triage", "run", "--recipe", recipe(tmp_path), "--json", "-q", cwd=tmp_path, env=env
    ).json()
    other = written(tmp_path, document(BASELINE, script=SLOW, trials=5))
    done = aorta("triage", "run", "--recipe", other, "--resume", first["run_dir"], cwd=tmp_path)
    assert done.exit_code == 2
    assert "the cells changed since this run began" in done.stderr


def test_interrupted_it_leaves_a_matrix_and_no_process(tmp_path: Path) -> None:
    script = "setsid sleep 600 & (trap '' TERM; sleep 600) & wait"
    cells = [cell("baseline-quick", workload_config={"command": "false"}), cell("slow")]
    path = written(tmp_path, document(*cells, script=script, trials=2))
    mark = f"AORTA_TEST_MARK={tmp_path}"
    process = start_aorta(
        "triage", "run", "--recipe", path, cwd=tmp_path, env={"AORTA_TEST_MARK": str(tmp_path)}
    )
    run_dir = wait_for_trials(tmp_path, 1)
    wait_until(lambda: len(processes_with(mark)) > 3, "the trial of the slow cell")
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=patience())
    wait_until_no_process_has(mark)
    assert process.returncode == 130, err
    assert f"go on with: aorta triage run --resume {run_dir.relative_to(tmp_path)}".encode() in err
    matrix = json.loads((run_dir / "matrix.json").read_text())
    assert matrix["status"] == "interrupted"
    assert by_name(matrix)["baseline-quick"]["failed_count"] >= 1
    assert "**Not finished**: interrupted" in (run_dir / "matrix.md").read_text()


def test_eighty_cells_end_without_growth_in_memory(tmp_path: Path) -> None:
    """The peak of a run of 80 cells beside that of a run of 10."""

    def peak_kib(cells: int) -> int:
        names = [BASELINE, *(cell(f"c{n}", extra_env={"N": str(n)}) for n in range(cells - 1))]
        path = written(tmp_path / str(cells), document(*names, script="exit 1", trials=1))
        words = ("triage", "run", "--recipe", str(path), "--jobs", "2", "-q", "--output-dir", "out")
        process = subprocess.Popen((*COMMAND, *words), cwd=path.parent, env=environ())
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        (matrix,) = (path.parent / "out").rglob("matrix.json")
        found = json.loads(matrix.read_text())["cells"]
        assert len(found) == cells
        assert all(entry["trials"] == 1 for entry in found)
        return used.ru_maxrss

    small = peak_kib(10)
    assert peak_kib(80) - small < 8 * 1024


def test_an_environment_that_cannot_be_had_is_that_cells_misfortune(tmp_path: Path) -> None:
    boxed = cell("boxed", environment={"docker": "no.such/image:1"})
    recipe_ = load(tmp_path, BASELINE, boxed, script="exit 1", trials=2)
    finished = run(recipe_, tmp_path / "out")
    calls = {row.name: row.comparison.call.value for row in finished.rows}
    assert calls == {"baseline-local": "(baseline)", "boxed": "did not run"}
    assert finished.did_not_run == ["boxed"]


def test_a_full_disk_is_exit_5_and_one_line(tmp_path: Path, small_disk: Path) -> None:
    script = f"dd if=/dev/zero of={small_disk}/fill bs=4096 2>/dev/null; exit 1"
    path = written(tmp_path, document(script=script, trials=2))
    done = aorta(
        "triage", "run", "--recipe", path, "--output-dir", small_disk / "out", "-q", cwd=tmp_path
    )
    assert done.exit_code == 5
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1
