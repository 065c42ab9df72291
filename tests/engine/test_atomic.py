"""A file that is written whole: what its readers, a full disk and a killed writer may see of it."""

import fcntl
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from aorta.engine.atomic import whole_lines, write_whole
from support.aorta_cli import ROOT, environ

WRITER = """
import sys
from pathlib import Path
from aorta.engine.atomic import write_whole
number = 0
while True:
    number += 1
    write_whole(Path(sys.argv[1]), str(number % 10) * 200_000)
    print(number, flush=True)
"""


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_text_and_bytes_replace_what_was_there_and_leave_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_whole(path, "old")
    write_whole(path, "new ä".encode())
    assert path.read_text() == "new ä"
    assert names(tmp_path) == ["result.json"]


def test_the_mode_is_that_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    write_whole(tmp_path / "whole", "x")
    assert (tmp_path / "whole").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_full_disk_keeps_the_old_file_and_leaves_no_draft(small_disk: Path) -> None:
    path = small_disk / "file"
    write_whole(path, "old")
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, b"x" * 2_000_000)
    assert path.read_text() == "old"
    assert names(small_disk) == ["file"]


def test_a_reader_never_sees_half_a_file_even_when_the_writer_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with subprocess.Popen(
        (sys.executable, "-c", WRITER, str(path)), env=environ(), stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        for _ in range(200):
            seen = path.read_text()
            assert (len(seen), len(set(seen))) == (200_000, 1)
        writer.send_signal(signal.SIGKILL)
    seen = path.read_text()
    assert (len(seen), len(set(seen))) == (200_000, 1)


def test_the_draft_of_a_killed_writer_is_written_over(tmp_path: Path) -> None:
    (tmp_path / ".file.draft").write_text("what a killed one left, and more than is written now")
    write_whole(tmp_path / "file", "x")
    assert (tmp_path / "file").read_text() == "x"
    assert names(tmp_path) == ["file"]


def test_a_draft_that_another_writer_moved_into_its_place_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening and locking it, which no test can hit from outside."""
    path, draft = tmp_path / "file", tmp_path / ".file.draft"
    real, locked = fcntl.flock, list[int]()

    def late(handle: int, how: int) -> None:
        if not locked:
            draft.replace(path)
        locked.append(handle)
        real(handle, how)

    monkeypatch.setattr(fcntl, "flock", late)
    write_whole(path, "mine")
    assert path.read_text() == "mine"
    assert len(locked) == 2


def test_many_writers_of_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    path = tmp_path / "file"

    def write_often(content: str) -> None:
        for _ in range(20):
            write_whole(path, content)

    writers = [threading.Thread(target=write_often, args=(str(n) * 9999,)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(set(path.read_text())) == 1
    assert names(tmp_path) == ["file"]


def test_a_long_name_and_a_missing_directory(tmp_path: Path) -> None:
    write_whole(tmp_path / ("n" * 250), "x")
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "nowhere" / "file", "x")


def test_it_costs_a_user_process_no_import_that_it_does_not_have_already() -> None:
    script = (
        "import sys, os, pathlib, contextlib, fcntl; before = set(sys.modules); import "
        "aorta.engine.atomic; "
        "print(sorted(name for name in set(sys.modules) - before))"
    )
    done = subprocess.run(
        (sys.executable, "-c", script), env=environ(), cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout == "['aorta', 'aorta.engine', 'aorta.engine.atomic', 'aorta.version']\n"


@pytest.mark.parametrize(
    ("content", "lines", "left"),
    [
        (b"", [], b""),
        (b"half", [], b""),
        (b"one\ntwo\n", [b"one", b"two"], b"one\ntwo\n"),
        (b"one\ntwo\nhal", [b"one", b"two"], b"one\ntwo\n"),
    ],
)
def test_a_last_line_that_was_cut_short_is_taken_away(
    tmp_path: Path, content: bytes, lines: list[bytes], left: bytes
) -> None:
    path = tmp_path / "lines"
    path.write_bytes(content)
    assert whole_lines(path) == lines
    assert path.read_bytes() == left
    assert whole_lines(tmp_path / "nowhere") == []


def test_text_that_is_no_utf8_is_written_as_an_escape(tmp_path: Path) -> None:
    write_whole(tmp_path / "file", "a\udcffb")
    assert (tmp_path / "file").read_bytes() == b"a\\udcffb"
