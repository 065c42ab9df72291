"""Packing that is stopped in the middle leaves nothing behind: neither a half archive nor a draft of one."""

import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
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
    run, output = big_run(tmp_path, 40), tmp_path / "bundles"
    output.mkdir()
    log = str((run / "logs" / "big.log").resolve())
    process = start_aorta("bundle", run, "--no-check", "--output", output)
    for _ in range(readings):
        wait_until(lambda: log in opened_by(process.pid))
        if readings > 1:
            wait_until(lambda: log not in opened_by(process.pid))
            wait_until(lambda: log in opened_by(process.pid))
            break
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=patience())
    assert process.returncode == 130, said
    assert b"Traceback" not in said
    assert list(output.iterdir()) == []


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + patience()
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def opened_by(pid: int) -> set[str]:
    found = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            found.add(str(link.readlink()))
    return found


def test_a_disk_that_fills_up_while_the_archive_is_written_is_exit_5_and_leaves_nothing(
    tmp_path: Path, small_disk: Path
) -> None:
    done = aorta("bundle", big_run(tmp_path, 4), "--no-check", "--output", small_disk)
    assert done.exit_code == 5, done.stderr
    assert "No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(small_disk.iterdir()) == []
