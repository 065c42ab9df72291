"""What a shell started deaf to Ctrl-C, or `nohup` to a hang-up, stays deaf to it; SIGTERM ends it
always.

And what is still done when a command line has come to its own end.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from support.aorta_cli import COMMAND, environ
from support.launching import script
from support.processes import ignores, wait_for_file
from support.waiting import patience, wait_until

WAITS = """
import pathlib
pathlib.Path("begun").touch()
while not pathlib.Path("go").exists():
    time.sleep(0.05)
pathlib.Path("gone_on").touch()
time.sleep(600)
"""
LAUNCH = ("launch", "--log-dir", "logs", "job.py")
GOES_ON = "touch begun; while ! [ -e go ]; do sleep 0.05; done; touch gone_on; sleep 600"
RUN = ("run", "--", "sh", "-c", GOES_ON)


def started_deaf(folder: Path, *words: str, deaf_to: str = "INT") -> "subprocess.Popen[bytes]":
    script(folder, WAITS)
    return subprocess.Popen(
        ("sh", "-c", f"trap '' {deaf_to}; exec \"$@\"", "sh", *COMMAND, *words),
        cwd=folder,
        env=environ({"OMP_NUM_THREADS": "1"}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


@pytest.mark.parametrize("words", [RUN, LAUNCH], ids=["run", "launch"])
def test_a_signal_that_was_ignored_at_the_start_stops_nothing_and_sigterm_all(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    process = started_deaf(tmp_path, *words, deaf_to="INT HUP")
    wait_for_file(tmp_path / "begun")
    os.kill(process.pid, signal.SIGINT)
    os.kill(process.pid, signal.SIGHUP)
    (tmp_path / "go").touch()
    wait_for_file(tmp_path / "gone_on")
    os.kill(process.pid, signal.SIGTERM)
    _, said = process.communicate(timeout=patience())
    assert process.returncode == 143, said


def test_a_service_in_the_background_stays_deaf_to_ctrl_c_and_ends_with_sigterm(
    tmp_path: Path,
) -> None:
    words = ("attrsvc", "--port", "0", "--db", "state.sqlite", "--allowed-root", str(tmp_path))
    process = started_deaf(tmp_path, *words)
    assert process.stderr is not None
    try:
        line = next(line for line in process.stderr if b"attribution service at" in line)
        url = line.split()[-1].decode()
        assert httpx.get(f"{url}/healthz", timeout=patience()).status_code == 200
        assert ignores(process.pid, signal.SIGINT)
        os.kill(process.pid, signal.SIGTERM)
        wait_until(lambda: process.poll() is not None, "the end of the service")
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("daemon", [True, False])
def test_at_the_end_what_is_registered_runs_and_threads_that_are_no_daemons_are_waited_for(
    daemon: bool,
) -> None:
    program = f"""
import atexit, threading
from aorta.cli.app import run
atexit.register(print, "registered")
end = threading.Event()
thread = threading.Thread(target=lambda: (end.wait(600 if {daemon} else 0), print("thread")), daemon={daemon})
thread.start()
run(["no-such-verb"])
"""
    done = subprocess.run(
        (sys.executable, "-c", program),
        env=environ(),
        capture_output=True,
        text=True,
        timeout=patience(),
        check=False,
    )
    assert done.returncode == 2
    assert sorted(done.stdout.split()) == ["registered", *([] if daemon else ["thread"])]
