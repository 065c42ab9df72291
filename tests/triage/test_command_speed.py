"""A command tells how fast it is in the ways commands do; one that is only slower is not called
cured.
"""

from pathlib import Path
from typing import Any

import pytest

from support.aorta_cli import aorta
from support.triage_runs import BASELINE, by_name, cell, document, written

# Fails unless it is slow; the mitigation only makes every step slower. The step's time is measured,
# not made up.
RACE = """
import os, sys, time
slow, told, times = os.environ.get("SLOW"), os.environ["TOLD"], []
for step in range(6):
    start = time.monotonic()
    time.sleep(0.06 if slow else 0.002)
    times.append(1000 * (time.monotonic() - start))
    if told == "printed":
        print(f"step {step} loss 1.0 step time: {times[-1]:.3f} ms", flush=True)
if told == "file":
    with open(os.environ["AORTA_STEP_TIMES"], "w") as lines:
        lines.writelines(f"{took}\\n" for took in times)
if not slow:
    sys.exit("ValueError: raced")
"""
SLOW = cell("slow", extra_env={"SLOW": "1"})


def matrix(folder: Path, told: str) -> dict[str, Any]:
    script = folder / "race.py"
    script.write_text(RACE)
    content = document(
        BASELINE,
        SLOW,
        trials=5,
        workload_config={"command": ["python3", "race.py"], "cwd": str(folder)},
        extra_env={"TOLD": told},
    )
    path = written(folder, content)
    done = aorta("triage", "run", "--recipe", path, "--json", "-q", cwd=folder)
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = done.json()
    return found


@pytest.mark.parametrize(("told", "source"), [("printed", "printed"), ("file", "per_step")])
def test_a_command_that_tells_its_step_times_is_flagged_where_it_is_slower(
    tmp_path: Path, told: str, source: str
) -> None:
    found = matrix(tmp_path, told)
    slow = by_name(found)["slow"]
    assert slow["call"] == "works"
    assert slow["step_time_source"] == source
    assert slow["step_time_ratio"] > 2
    assert slow["step_time_ratio_by"] == "steps"
    assert slow["confound"].startswith("speed (+")
    page = (tmp_path / found["run_dir"] / "matrix.md").read_text()
    assert "a race may hide behind that" in page
