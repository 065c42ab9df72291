"""Packing that is stopped in the middle leaves nothing behind: neither a half archive nor a draft of one."""

import random
import signal
import time
from pathlib import Path

import pytest

from support.aorta_cli import aorta, start_aorta
from support.run_dirs import reduce_dir
from support.waiting import patience


def big_run(root: Path, megabytes: float, seed: int = 7) -> Path:
    """A run with a log that no compressor makes much smaller."""
    run = reduce_dir(root)
    rng = random.Random(seed)
    lines = (f"step {n} {rng.random()} {rng.getrandbits(200):x}\n" for n in iter(int, 1))
    with (run / "logs" / "big.log").open("w") as log:
        while log.tell() < megabytes * 1e6:
            log.write("".join(next(lines) for _ in range(1000)))
    return run


@pytest.mark.parametrize("seconds", [0.8, 2.5])
def test_ctrl_c_while_packing_leaves_nothing_and_exits_130(seconds: float, tmp_path: Path) -> None:
    run, output = big_run(tmp_path, 40), tmp_path / "out"
    output.mkdir()
    process = start_aorta("bundle", run, "--output", output)
    time.sleep(seconds)
    assert process.poll() is None, "it was over before it could be interrupted"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=patience())
    assert process.returncode == 130, said
    assert b"Traceback" not in said
    assert list(output.iterdir()) == []


def test_a_disk_that_fills_up_while_the_archive_is_written_is_exit_5_and_leaves_nothing(
    tmp_path: Path, small_disk: Path
) -> None:
    done = aorta("bundle", big_run(tmp_path, 4), "--output", small_disk)
    assert done.exit_code == 5, done.stderr
    assert "No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(small_disk.iterdir()) == []
