"""Every example of the documentation, on what other verbs really wrote."""

import re
import shlex
import sys
from pathlib import Path

from support.aorta_cli import ROOT, aorta
from support.git_repositories import Repository

TRAIN = """\
import sys

for step in range(int(sys.argv[2])):
    print(f"step {step}", flush=True)
    if step == 2:
        raise RuntimeError("value out of range")
"""


def examples() -> list[list[str]]:
    (block,) = re.findall(
        r"^```\n(.*?)^```", (ROOT / "docs/solve.md").read_text(), re.MULTILINE | re.DOTALL
    )
    return [shlex.split(line, comments=True)[2:] for line in block.splitlines()]


def test_every_documented_call_is_a_plan_and_a_stopped_launch_fails_again(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "site")
    repository.commit("begun", {"train.py": TRAIN})
    repository.git("tag", "v2.3")
    site = repository.path
    (site / "last-week.txt").write_text("numpy==2.0.0\n")
    launch = ("launch", "--log-dir", "logs", "--max-restarts", "1", "train.py", "--steps", "8")
    assert aorta(*launch, cwd=site).exit_code == 93
    assert (
        aorta("run", "-q", "--", sys.executable, "train.py", "--steps", "8", cwd=site).exit_code
        == 1
    )
    for words in examples():
        planned = aorta("solve", "--dry-run", "--json", *words, cwd=site)
        assert planned.exit_code == 0, (words, planned.stderr)
        assert planned.json()["stages"][0]["name"] == "reproduce"
    looked = ("solve", "logs/case", "--json", "-q", "--stages", "reproduce", "--max-trials", "2")
    document = aorta(*looked, cwd=site).json()
    assert document["failure"]["class"] == "user_exception"
    assert document["failure"]["rate"]["reproduced"] == 2
