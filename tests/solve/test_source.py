"""`aorta solve --stages source`: the failing program as one short script, at the end of a solve."""

import subprocess
import sys
from pathlib import Path

from support.aorta_cli import aorta

PROGRAM = {
    "train.py": "from model import step\n\nfor n in range(20):\n    step(n, [0, 2])\n",
    "model.py": """\
import json


def report(n):
    return json.dumps({"step": n})


def step(n, config):
    report(n)
    if n == 7:
        return config.index(n)
    return config[0]
""",
}


def test_the_program_becomes_one_script_that_fails_alone(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name, text in PROGRAM.items():
        (project / name).write_text(text)
    words = ("solve", "--json", "-q", "--stages", "source", "--", sys.executable, "train.py")
    done = aorta(*words, cwd=project)
    assert done.exit_code == 0, done.stderr
    stages = {row["name"]: row for row in done.json()["stages"]}
    assert stages["reproduce"]["status"] == "done"
    assert stages["source"]["status"] == "done"
    (axis,) = done.json()["reproducer"]["axes"]
    assert (axis["kind"], axis["initial"]) == ("source", 11)
    assert axis["final"] <= 8
    script = Path(project, stages["source"]["run_dir"], "shrunken", "repro.py")
    (tmp_path / "empty").mkdir()
    ran = subprocess.run(
        [sys.executable, script.rename(tmp_path / "empty" / "repro.py")],
        cwd=tmp_path / "empty",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (1, "ValueError: 7 is not in list")
    lines = (tmp_path / "empty" / "repro.py").read_text().splitlines()
    assert len([line for line in lines if not line.startswith("#")]) <= 8
