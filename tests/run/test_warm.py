"""`aorta run` and `aorta triage run` with warm trials: what they say of them, and that nothing is
left of them.
"""

import os
import signal
import uuid
from pathlib import Path

import pytest

from support.aorta_cli import aorta, start_aorta
from support.processes import wait_until_no_process_has
from support.waiting import patience, wait_until
from support.warm import slow_environment

PROGRAM = """
import os, sys, slow, time
kind = os.environ.get("KIND_OF_MINE", "fails")
if kind == "sleeps":  # from the third on: the first two are cold
    open("sleeping-" + str(os.getpid()), "w").close()
    time.sleep(600 * (len([name for name in os.listdir() if name.startswith("sleeping")]) > 2))
sys.exit(0 if os.environ.get("CURED_OF_MINE") or kind == "sleeps" else 3)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return slow_environment(tmp_path_factory.mktemp("slow") / "venv")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(PROGRAM)
    return tmp_path


def test_a_run_says_which_of_its_trials_were_warm(place: Path, python: Path) -> None:
    words = ("run", "--json", "-q", "--trials", "5", "--", python, "train.py")
    report = aorta(*words[:3], "--warm", *words[3:], cwd=place).json()
    assert [trial["warm"] for trial in report["trials"]] == [False, False, True, True, True]
    assert {trial["exit_code"] for trial in report["trials"]} == {3}
    assert report["warm"] == {"trials": 3, "dropped": None}
    assert report["independent_starts"] == 3, "two cold ones, and one server for three"
    cold = aorta(*words, cwd=place).json()
    assert cold["warm"] == {"trials": 0, "dropped": None}
    assert (cold["counts"], cold["independent_starts"]) == (report["counts"], 5)
    assert report["rate"]["low"] < cold["rate"]["low"]


def test_a_run_whose_imports_take_long_says_once_what_warm_starts_would_save(
    place: Path, python: Path
) -> None:
    done = aorta("run", "--trials", "4", "--", python, "train.py", cwd=place)
    assert done.stderr.count("--warm would save about") == 1, done.stderr


def test_cold_is_what_trials_are_anyway(place: Path, python: Path) -> None:
    words = ("run", "--cold", "--json", "-q", "--trials", "4", "--", python, "train.py")
    assert aorta(*words, cwd=place).json()["warm"] == {"trials": 0, "dropped": None}


def test_a_matrix_is_the_same_warm_and_cold(place: Path, python: Path) -> None:
    (place / "cures.yaml").write_text("version: 1\nmitigations:\n  cure: {CURED_OF_MINE: '1'}\n")
    rows = []
    for options in (("--warm",), ()):
        report = aorta(
            "triage", "run", "--json", "-q", "--mitigation-axis", "none,cure",
            "--environment-axis", "local", "--mitigations-file", "cures.yaml", "--trials", "4", *options, "--", python, "train.py",
            cwd=place,
        )  # fmt: skip
        assert report.exit_code == 0, report.stderr
        content = report.json()
        warm = content.pop("warm")
        assert bool(warm["trials"]) == bool(options)
        rows.append([(cell["name"], cell["failed_count"]) for cell in content["cells"]])
    assert rows[0] == rows[1]


STACKED = """
import os, sys
early = "slow" in sys.modules
import slow
cured = os.environ.get("CURED_OF_MINE") and os.environ.get("OTHER_OF_MINE")
sys.exit(0 if cured {how} else 3)
"""


@pytest.mark.parametrize(("how", "is_believed"), [("", True), ("or early", False)])
def test_the_smallest_stack_is_the_same_warm_and_cold(
    place: Path, python: Path, how: str, is_believed: bool
) -> None:
    """Where a warm start alone mends it, nothing that warm trials said is left in the answer."""
    (place / "train.py").write_text(STACKED.format(how=how))
    cures = "a: {CURED_OF_MINE: '1'}\n  b: {OTHER_OF_MINE: '1'}\n  c: {THIRD_OF_MINE: '1'}\n"
    (place / "cures.yaml").write_text(f"version: 1\nmitigations:\n  {cures}")
    done = aorta(
        "triage", "run", "--mode", "optimize", "--json", "-q", "--warm", "--mitigation-axis", "a,b,c",
        "--mitigations-file", "cures.yaml", "--", python, "train.py", cwd=place,
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    report = done.json()
    assert report["recommended"]["mitigations"] == ["a", "b"]
    assert (report["warm"]["dropped"] is None) == is_believed
    assert bool(report["warm"]["trials"]) == is_believed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_aorta_is_stopped_in_a_warm_trial(
    place: Path, python: Path, number: signal.Signals
) -> None:
    mark = f"MARK_OF_MINE={uuid.uuid4()}"
    name, _, value = mark.partition("=")
    env = {"KIND_OF_MINE": "sleeps", name: value}
    process = start_aorta(
        "run", "--warm", "--trials", "4", "--", python, "train.py", cwd=place, env=env
    )
    try:
        wait_until(lambda: len(list(place.glob("sleeping-*"))) == 3, "the warm trial")
        os.kill(process.pid, number)
        process.communicate(timeout=patience())
    finally:
        process.kill()
    wait_until_no_process_has(mark)
