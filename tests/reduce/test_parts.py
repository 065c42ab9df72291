"""The parts of a reduction by themselves: patience, the files a reproducer needs, a disk that is
full.
"""

import json
from pathlib import Path

from aorta.core.axis import Point, Purpose
from aorta.core.oracle import Classified, HangOracle
from aorta.core.trial import Outcome, StreamEnd, TrialEnd
from aorta.engine.drive import record_of
from aorta.engine.events import TrialRecord
from aorta.reduce.experiment import TimeLimits, patience_with
from aorta.reduce.files import needed_files
from support.aorta_cli import aorta
from support.reductions import numeric, write_spec

ORIGINAL = Point.of({"N": 9}, Purpose.CALIBRATE)
CANDIDATE = Point.of({"N": 1})


def _ended(seconds: float, outcome: Outcome = Outcome.REPRODUCED) -> TrialRecord:
    nothing = StreamEnd(Path("none"))
    end = TrialEnd("t", nothing, nothing, duration=seconds)
    found = Classified(outcome, "")
    return record_of(ORIGINAL, 0, found, end, seq=0, elapsed=0, path="")


def test_a_candidate_may_take_five_times_what_the_original_took() -> None:
    patience = TimeLimits()
    assert patience.seconds_for(CANDIDATE) is None
    for seconds in (20.0, 30.0, 25.0):
        patience.learn(_ended(seconds))
    assert patience.seconds_for(CANDIDATE) == 150.0
    assert patience.seconds_for(ORIGINAL) is None


def test_it_is_never_less_than_ten_seconds_and_errors_teach_nothing() -> None:
    patience = TimeLimits()
    patience.learn(_ended(0.1))
    patience.learn(_ended(5000.0, Outcome.ERROR))
    assert patience.seconds_for(CANDIDATE) == 10.0


def test_the_word_of_the_user_wins_and_a_hang_has_its_time() -> None:
    given = TimeLimits(given=7.0)
    given.learn(_ended(100.0))
    assert given.seconds_for(CANDIDATE) == 7.0
    hanging = patience_with(None, HangOracle(silent_for=30.0))
    hanging.learn(_ended(31.0))
    assert hanging.seconds_for(CANDIDATE) == 185.0


def _names(root: Path, command: str, globs: list[str] | None = None) -> tuple[str, ...]:
    files = needed_files(root, [command], globs, [root / "data.txt"])
    assert files is not None
    return files.names


def test_what_the_command_names_and_what_that_names_is_needed(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    for name, text in {
        "run.sh": "exec python train.py --config conf/a.json",
        "train.py": "import model\nfrom package import thing\n",
        "model.py": "",
        "package/__init__.py": "",
        "conf/a.json": "{}",
        "conf/b.json": "{}",
        "data.txt": "run.sh reads data.txt",
        "secret_plans.py": "",
        ".git/train.py": "",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert _names(tmp_path, "bash run.sh data.txt") == (
        "conf/a.json",
        "model.py",
        "package/__init__.py",
        "run.sh",
        "train.py",
    )
    assert _names(tmp_path, "bash run.sh", ["conf/*"]) == ("conf/a.json", "conf/b.json")


def test_a_spec_may_leave_the_axes_to_the_workload(tmp_path: Path) -> None:
    spec = tmp_path / "aorta.yaml"
    spec.write_text("workload: {name: half_nan}\nbudget: {max_trials: 4}\n")
    report = aorta("reduce", "--spec", spec, "--json", "-q", cwd=tmp_path).json()
    assert [axis["name"] for axis in report["axes"]] == ["NUM_STEPS", "BATCH_SIZE", "SHAPES_FILE"]


def test_a_full_disk_is_exit_5_and_one_document(tmp_path: Path, small_disk: Path) -> None:
    script = (
        f'[ "$N" -lt 4000 ] && dd if=/dev/zero of={small_disk}/fill bs=4096 2>/dev/null; echo BOOM'
    )
    spec = write_spec(tmp_path, script, [numeric("N", 5000, 50)])
    done = aorta(
        "reduce", "--spec", spec, "--output", small_disk / "out", "--json", "-q", cwd=tmp_path
    )
    assert done.exit_code == 5
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads(done.stdout)["schema"] in {"aorta.error/1", "aorta.reduce/1"}
