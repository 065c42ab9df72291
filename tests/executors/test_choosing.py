"""`--executor NAME`, and what only some of them can give."""

from pathlib import Path

import pytest

from support.aorta_cli import aorta


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
