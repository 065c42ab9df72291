"""Each verb once as its user starts it: a new interpreter that has imported nothing, from the first
word to the answer. The other tests fork a process that has imported every verb, which would hide an
import that is missing on the way.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from aorta.cli import VERBS
from support.aorta_cli import COMMAND, environ
from support.git_repositories import numbered
from support.reductions import numeric, write_spec
from support.waiting import patience

pytestmark = pytest.mark.xdist_group("cold")

RECORDED = """\
import os
from aorta.diverge import record
scale = float(os.environ.get("SCALE", "1"))
record("scaled", [scale * value for value in range(9)])
"""
SERVED = {"attrsvc": "tests/cli/test_signals.py", "mcp": "tests/attribution/test_mcp.py"}
"""Those that are started cold, and asked something, by another test."""

PYTHON = sys.executable
LINES: dict[str, tuple[int, tuple[str, ...]]] = {
    "run": (1, ("--trials", "2", "--", "sh", "-c", "echo boom >&2; exit 3")),
    "report": (0, ("results/command",)),
    "bundle": (0, ("results/command", "--ticket", "T-1")),
    "env": (0, ("probe", "--json")),
    "triage": (0, ("run", "--mitigation-axis", "none", "--environment-axis", "local",
                   "--trials", "2", "--", "false")),
    "reduce": (0, ("--spec", "aorta.yaml")),
    "bisect": (0, ("--good", "HEAD~3", "--", "sh", "-c", "test $(cat number) -lt 2")),
    "diverge": (0, ("--bad-set", "SCALE=2", "--good-set", "SCALE=1", "--", PYTHON, "train.py")),
    "isolate": (0, ("--nodes", "0-1", "--", "sh", "-c", "echo 'ValueError: bad' >&2; exit 1")),
    "solve": (0, ("--stages", "reproduce,reduce", "--", PYTHON, "steps.py", "--steps", "6")),
    "attribute": (0, ("rank_0.err",)),
    "launch": (0, ("--log-dir", "logs", "quiet.py")),
}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository, _ = numbered(tmp_path_factory.mktemp("cold") / "repository", 4)
    folder = repository.path
    write_spec(folder, '[ "$N" -ge 3 ] && echo BOOM', [numeric("N", 8, 1)])
    (folder / "train.py").write_text(RECORDED)
    (folder / "quiet.py").write_text("print('done')\n")
    (folder / "steps.py").write_text(
        "import sys\nif int(sys.argv[2]) >= 3:\n    raise RuntimeError('overflow')\n"
    )
    (folder / "rank_0.err").write_text("ModuleNotFoundError: No module named 'apex'\n")
    return folder


@pytest.mark.parametrize("verb", LINES)
def test_a_verb_answers_from_a_cold_start(verb: str, place: Path) -> None:
    if verb in {"report", "bundle"} and not (place / "results").exists():
        test_a_verb_answers_from_a_cold_start("run", place)
    code, words = LINES[verb]
    done = subprocess.run(
        (*COMMAND, verb, *words),
        cwd=place,
        env=environ({"OMP_NUM_THREADS": "1"}),
        capture_output=True,
        text=True,
        timeout=patience(),
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


def test_only_the_command_is_ended_where_it_does_not_come_to_its_end(tmp_path: Path) -> None:
    waits = "import threading; threading.Event().wait()"
    done = subprocess.run(
        (*COMMAND, "solve", "--budget", "6s", "--", PYTHON, "-c", waits),
        cwd=tmp_path,
        env=environ(),
        capture_output=True,
        text=True,
        timeout=patience(),
        check=False,
    )
    assert done.returncode == 4, done.stderr
    assert "it still runs after" in done.stdout, done.stdout


def test_no_verb_is_left_out() -> None:
    assert {*LINES, *SERVED} == set(VERBS)
