"""`--executor NAME`: the built-in ones, and those that others add."""

from pathlib import Path

import pytest

from support.aorta_cli import ROOT, aorta

PLUGIN = """\
from aorta.executors.local import LocalExecutor

def opened(options):
    print("opened", options.resources.partition, file=open("said", "w"))
    return LocalExecutor(options.jobs or 1)
"""


def test_a_package_can_bring_an_executor_and_take_no_name_of_ours(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN)
    about = tmp_path / "mine-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        "[aorta.executors]\nmine = mine:opened\nlocal = mine:opened\n"
    )
    path = {"PYTHONPATH": f"{ROOT / 'src'}:{tmp_path}"}
    ours = aorta("run", "--executor", "local", "--", "true", cwd=tmp_path, env=path)
    assert ours.exit_code == 0, ours.stderr
    assert not (tmp_path / "said").exists()
    words = ("run", "--executor", "mine", "--partition", "p1", "--", "true")
    done = aorta(*words, cwd=tmp_path, env=path)
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "said").read_text() == "opened p1\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--executor", "moon"), "unknown executor 'moon'; expected one of: local, ray, slurm"),
        (("--nodes", "2"), "--nodes 2 and --tasks-per-node 1 need a scheduler"),
    ],
)
def test_what_is_asked_of_the_wrong_executor_is_one_line_and_exit_2(
    options: tuple[str, str], words: str, tmp_path: Path
) -> None:
    done = aorta("run", *options, "--", "true", cwd=tmp_path)
    assert done.exit_code == 2
    assert words in done.stderr
