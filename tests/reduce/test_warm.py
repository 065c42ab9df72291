"""A reduction with warm trials: the answer of a cold one, in less time, and it says which trials
were which.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from aorta.engine.rundir import RunDir
from support.reductions import finals, numeric, reduce_spec, run_dir_of, write_spec
from support.warm import slow_environment

PROGRAM = """
import os, sys
early = "slow" in sys.modules
import slow
steps = int(os.environ["NUM_STEPS_OF_MINE"])
print("step", steps)
if steps >= 37 {how}:
    print("BOOM")
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return slow_environment(tmp_path_factory.mktemp("slow") / "venv")


def reduced(
    folder: Path, python: Path, *options: str, how: str = "", warm: bool = False
) -> dict[str, Any]:
    axes = [numeric("NUM_STEPS_OF_MINE", 60, 20)]
    spec = write_spec(
        folder,
        "",
        axes,
        workload={"command": f"{python} train.py", "cwd": "./"},
        budget={},
        warm=warm,
    )
    (folder / "train.py").write_text(PROGRAM.format(how=how))
    done = reduce_spec(spec, *options)
    assert done.exit_code == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_a_reduction_is_the_same_warm_and_cold_and_says_how_many_trials_were_warm(
    tmp_path: Path, python: Path
) -> None:
    """Here the spec asks for warm starts, below an option does."""
    warm, cold = (reduced(tmp_path / str(how), python, warm=how) for how in (True, False))
    assert finals(warm) == finals(cold) == {"NUM_STEPS_OF_MINE": 37}
    assert cold["warm"] == {"trials": 0, "dropped": None}
    assert warm["warm"]["dropped"] is None
    run_dir = run_dir_of(warm, tmp_path / "True")
    trials = [json.loads(line) for line in RunDir(run_dir).journal.read_text().splitlines()]
    starts: dict[str, list[bool]] = {"calibrate": [], "confirm": [], "probe": []}
    for trial in trials:
        if trial["kind"] == "trial":
            starts.setdefault(trial["key"].split(".")[1], []).append(trial["saved"] > 0)
    assert not any(starts["calibrate"] + starts["confirm"])
    assert all(starts["probe"])
    compared = 3  # warm trials of the original, which count for nothing else
    assert sum(map(sum, starts.values())) == warm["warm"]["trials"] + compared > 8


def test_a_failure_of_the_import_itself_is_searched_cold(tmp_path: Path, python: Path) -> None:
    """Warm, the library was imported long before the program began."""
    report = reduced(tmp_path, python, "--warm", how="and not early")
    assert finals(report) == {"NUM_STEPS_OF_MINE": 37}
    assert "warm trials failed 0 of" in report["warm"]["dropped"]
    journal = RunDir(run_dir_of(report, tmp_path)).journal.read_text().splitlines()
    ran = sum(json.loads(line)["kind"] == "trial" for line in journal)
    assert report["trials"] == ran, "those that were dropped ran all the same"
