"""Packing that is stopped in the middle leaves nothing behind: neither a half archive nor a draft
of one.
"""

import ctypes
import os
import random
import select
import signal
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support import real_runs
from support.aorta_cli import aorta, start_aorta
from support.real_runs import copied
from support.waiting import patience


def big_run(root: Path, megabytes: float, seed: int = 7) -> Path:
    """A run with a log that no compressor makes much smaller."""
    run = copied(real_runs.reduce_dir(), root)
    rng = random.Random(seed)
    lines = (f"step {n} {rng.random()} {rng.getrandbits(200):x}\n" for n in iter(int, 1))
    with (run / "logs" / "big.log").open("w") as log:
        while log.tell() < megabytes * 1e6:
            log.write("".join(next(lines) for _ in range(1000)))
    return run


@pytest.mark.parametrize("readings", [1, 2])
def test_ctrl_c_while_packing_leaves_nothing_and_exits_130(readings: int, tmp_path: Path) -> None:
    """Stopped while the large log is read for the first time, and for the second."""
    run, output = big_run(tmp_path, 3), tmp_path / "bundles"
    output.mkdir()
    with opened(run / "logs" / "big.log") as openings:
        process = start_aorta("bundle", run, "--no-check", "--output", output)
        for _ in range(readings):
            next(openings)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=patience())
    assert process.returncode == 130, said
    assert b"Traceback" not in said
    assert list(output.iterdir()) == []


_IN_CLOSE_NOWRITE, _IN_OPEN = 0x10, 0x20
_EVENT = struct.Struct("iIII")


@contextmanager
def opened(path: Path) -> Iterator[Iterator[None]]:
    """Something for each time that the file is opened from now on. The kernel keeps them in order:
    none is missed.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    told = libc.inotify_init1(os.O_CLOEXEC)
    # Told of the ends too: else two openings that nobody has heard of yet are one.
    libc.inotify_add_watch(told, os.fsencode(path), _IN_OPEN | _IN_CLOSE_NOWRITE)

    def openings() -> Iterator[None]:
        while select.select([told], [], [], patience())[0]:
            for _, mask, _, _ in _EVENT.iter_unpack(os.read(told, 64 * _EVENT.size)):
                if mask & _IN_OPEN:
                    yield

    try:
        yield openings()
    finally:
        os.close(told)


def test_a_disk_that_fills_up_while_the_archive_is_written_is_exit_5_and_leaves_nothing(
    tmp_path: Path, small_disk: Path
) -> None:
    done = aorta("bundle", big_run(tmp_path, 2.6), "--no-check", "--output", small_disk)
    assert done.exit_code == 5, done.stderr
    assert "No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(small_disk.iterdir()) == []
