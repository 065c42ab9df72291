"""Which files may be read for others: admitted by name, opened without following anything."""

import os
from pathlib import Path

import pytest

from aorta.attribution.logs import open_straight
from aorta.attribution.server import PathJail, PathRefusedError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root" / "job").mkdir(parents=True)
    (tmp_path / "root" / "job" / "rank_0.err").write_text("hello")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "rank_0.err").write_text("secret")
    return tmp_path / "root"


def test_a_path_under_a_root_is_admitted_by_its_true_name(root: Path) -> None:
    jail = PathJail([root])
    assert jail.admit(f"{root}//job/./rank_0.err") == root / "job" / "rank_0.err"
    assert jail.admit(str(root)) == root
    assert jail.admit(f"{root}/job/not_there_yet.log") == root / "job" / "not_there_yet.log"


def test_a_root_that_is_a_link_opens_under_both_of_its_names(root: Path) -> None:
    alias = root.parent / "alias"
    alias.symlink_to(root)
    jail = PathJail([alias])
    assert jail.admit(f"{alias}/job/rank_0.err") == root / "job" / "rank_0.err"
    assert jail.admit(f"{root}/job/rank_0.err") == root / "job" / "rank_0.err"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("job/rank_0.err", "invalid_path"),
        ("{root}/../outside/rank_0.err", "invalid_path"),
        ("{root}/job\0", "invalid_path"),
        ("", "invalid_path"),
        ("{root}-evil/rank_0.err", "outside_root"),
        ("/etc/passwd", "outside_root"),
        ("{root}/link/rank_0.err", "outside_root"),
        ("{root}/link", "outside_root"),
    ],
)
def test_whatever_leads_elsewhere_is_refused_without_being_repeated(
    root: Path, path: str, code: str
) -> None:
    (root / "link").symlink_to(root.parent / "outside")
    with pytest.raises(PathRefusedError) as refused:
        PathJail([root]).admit(path.format(root=root))
    assert refused.value.code == code
    assert str(root) not in str(refused.value)


def test_a_regular_file_is_opened(root: Path) -> None:
    with open_straight(root / "job" / "rank_0.err") as file:
        assert file.read() == b"hello"


def test_what_was_swapped_after_admission_is_not_opened(root: Path) -> None:
    path = PathJail([root]).admit(f"{root}/job/rank_0.err")
    (root / "job").rename(root / "old")
    (root / "job").symlink_to(root.parent / "outside")
    with pytest.raises(OSError, match=r"links|directory|regular|No such"):
        open_straight(path)
    (root / "job").unlink()
    (root / "job").mkdir()
    path.symlink_to(root.parent / "outside" / "rank_0.err")
    with pytest.raises(OSError, match=r"links|directory|regular|No such"):
        open_straight(path)


def test_a_pipe_and_a_directory_are_no_logs_and_hold_nobody_up(root: Path) -> None:
    os.mkfifo(root / "pipe")
    for name in ("pipe", "job", "missing"):
        with pytest.raises(OSError, match=r"links|directory|regular|No such"):
            open_straight(root / name)
