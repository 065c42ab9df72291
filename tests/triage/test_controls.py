"""A mitigation that only slows is not credited, and what slows for a control changes nothing
else.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from aorta.core.trial import Tally
from aorta.triage.cells import CellStats
from aorta.triage.controls import Controls
from aorta.triage.matrix import Matrix
from aorta.triage.plan import build_plan
from aorta.triage.recipe import Recipe
from aorta.triage.statistics import Call, CellComparison
from aorta.workloads import slowed
from support.aorta_cli import ROOT
from support.processes import wait_for_file, wait_until_gone
from support.triage_runs import BASELINE, cell, loaded, run
from support.waiting import patience, wait_until

SLOWED = [sys.executable, str(Path(slowed.__file__))]


def recipe(folder: Path, *, control: object, stubborn: bool = False) -> Recipe:
    return loaded(
        folder,
        BASELINE,
        cell("slow", extra_env={"SLOW": "1"}),
        workload="support.racing_workloads:Racy",
        workload_config={},
        steps=10,
        trials=5,
        control=control,
        extra_env={"STUBBORN": "1"} if stubborn else {},
    )


def matrix(folder: Path, *, control: bool, stubborn: bool = False) -> Matrix:
    asked = recipe(folder, control=control, stubborn=stubborn)
    return run(asked, folder / "out", jobs=2).matrix


@pytest.fixture(autouse=True)
def _in_the_directory_of_the_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "tests")


def calls(found: Matrix) -> dict[str, str]:
    return {row.name: row.comparison.call.value for row in found.rows}


def test_a_mitigation_that_only_slows_is_not_credited(tmp_path: Path) -> None:
    found = matrix(tmp_path, control=True)
    assert calls(found) == {
        "baseline-local": "(baseline)",
        "slow": "only slower",
        "slow.slowed": "(control)",
    }
    rows = {row.name: row for row in found.rows}
    assert rows["slow"].confound == "speed (+50%)"
    assert rows["slow.slowed"].cell.cell.mitigations == ("none",)
    assert "without any mitigation" in rows["slow"].comparison.why


def test_a_mitigation_that_beats_its_control_is_credited(tmp_path: Path) -> None:
    found = matrix(tmp_path, control=True, stubborn=True)
    assert calls(found)["slow"] == "works"
    assert calls(found)["slow.slowed"] == "(control)"


@pytest.mark.parametrize(("failed", "enough"), [(4, 4), (5, 3)])
def test_a_control_runs_until_slowness_alone_is_told_from_chance(
    failed: int, enough: int, tmp_path: Path
) -> None:
    """How many failures the baseline had by then is a matter of which trials ended first."""
    plan = build_plan(recipe(tmp_path, control={"slowdown": 1.5}))
    tallies = {"baseline-local": Tally(reproduced=failed), "slow": Tally(clean=5)}
    controls = Controls(plan, lambda name: CellStats(tallies[name]))
    (control,) = controls.wanted(tallies)
    is_open = [
        controls.is_open(control, {**tallies, control: Tally(clean=clean)}) for clean in range(6)
    ]
    assert is_open == [clean < enough for clean in range(6)]
    works = CellComparison(Call.WORKS)
    told = controls.credited("slow", works, {**tallies, control: Tally(clean=enough)})
    assert told.call is Call.ONLY_SLOWER


def test_without_a_control_the_speed_is_flagged_and_the_reader_warned(tmp_path: Path) -> None:
    found = matrix(tmp_path, control=False)
    assert calls(found) == {"baseline-local": "(baseline)", "slow": "works"}
    (page,) = tmp_path.glob("out/*/*/*/matrix.md")
    assert (
        "`control: true` in the recipe (or `--control`) runs the baseline slowed"
        in page.read_text()
    )


def ended(*command: str, factor: str = "2") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*SLOWED, factor, *command], capture_output=True, text=True, check=False, timeout=patience()
    )


def test_slowing_keeps_output_and_exit_status() -> None:
    done = ended("sh", "-c", "echo out; sleep 0.1; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")


def test_slowing_keeps_a_death_by_signal() -> None:
    assert ended("sh", "-c", "kill -SEGV $$").returncode == -signal.SIGSEGV


def test_what_cannot_be_started_is_127() -> None:
    done = ended("/no/such/thing")
    assert done.returncode == 127
    assert done.stderr == "/no/such/thing: No such file or directory\n"


def test_the_command_is_stopped_again_and_again() -> None:
    script = (
        "import signal, time\n"
        "seen = []\n"
        "signal.signal(signal.SIGCONT, lambda *_: seen.append(1))\n"
        "end = time.monotonic() + 30\n"
        "while len(seen) < 3 and time.monotonic() < end: time.sleep(0.01)\n"
        "raise SystemExit(0 if len(seen) >= 3 else 1)\n"
    )
    assert ended(sys.executable, "-c", script).returncode == 0


def test_a_stopped_command_can_still_be_ended(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    words: Sequence[str] = [*SLOWED, "50", "sh", "-c", f"echo $$ > {mark}; exec sleep 600"]
    with subprocess.Popen(words) as process:
        wait_for_file(mark)
        wait_until(
            lambda: " T " in Path(f"/proc/{mark.read_text().strip()}/stat").read_text(), "a stop"
        )
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(patience()) == -signal.SIGTERM
    wait_until_gone(int(mark.read_text()))
