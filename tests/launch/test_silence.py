"""A store whose host is frozen, killed or slow: said in time, and never between a signal and its
effect.
"""

import os
import signal
import time
from pathlib import Path

import pytest

from support.launching import Agent, Site, script
from support.processes import is_running
from support.waiting import patience, wait_until

WAITS = """
    open(f"pid_{rank}_{attempt}", "w").write(str(os.getpid()))
    time.sleep(600)
"""
SOON = "keep_alive_interval=1,keep_alive_max_attempt=3"


def frozen_host(site: Site, conf: str) -> tuple[Agent, Agent]:
    """Two agents with a worker each; the one that hosts the store no longer runs, and nothing tells
    so.
    """
    job = script(site.folder, WAITS)
    host = site.start_node(0, str(job), conf=conf)
    other = site.start_node(1, str(job), conf=conf)
    wait_until(lambda: len(list(site.folder.glob("pid_*"))) == 2)
    os.kill(host.pid, signal.SIGSTOP)
    return host, other


def worker_of(agent: Agent) -> int:
    return int(Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()[-1])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_obeyed_at_once_while_the_store_s_host_is_frozen(
    site: Site, number: signal.Signals
) -> None:
    host, other = frozen_host(site, SOON)
    worker = worker_of(other)
    wait_until(lambda: "has not answered" in other.err())
    began = time.monotonic()
    other.signal(number)
    end = other.wait()
    assert end.code == 128 + number, end
    assert time.monotonic() - began < patience(10), (
        "a frozen host once held a signal for 90 seconds"
    )
    assert not is_running(worker)
    os.kill(host.pid, signal.SIGCONT)


def test_a_silent_store_is_said_within_the_keep_alive_time_and_given_up_after_the_read_timeout(
    site: Site,
) -> None:
    host, other = frozen_host(site, f"{SOON},read_timeout=6")
    worker = worker_of(other)
    end = other.wait()
    assert end.code == 5, end
    assert "has not answered for 2 s" in end.err
    assert "was lost" in end.err
    assert "Traceback" not in end.err
    assert not is_running(worker)
    os.kill(host.pid, signal.SIGCONT)


def test_a_job_goes_on_with_a_store_that_answers_again(site: Site) -> None:
    job = script(
        site.folder,
        """
        open(f"pid_{rank}_{attempt}", "w").write(str(os.getpid()))
        while not os.path.exists("go"):
            time.sleep(0.05)
        """,
    )
    how = ("--max-restarts", "9", "--ft-attribution-dry-run", "--ft-max-no-progress-cycles", "0")
    host = site.start_node(0, *how, str(job))
    other = site.start_node(1, *how, str(job))
    wait_until(lambda: len(list(site.folder.glob("pid_*"))) == 2)
    os.kill(host.pid, signal.SIGSTOP)
    wait_until(lambda: "has not answered" in other.err())
    os.kill(host.pid, signal.SIGCONT)
    wait_until(lambda: "answers again" in other.err())
    (site.folder / "go").touch()
    assert [host.wait().code, other.wait().code] == [0, 0]
