"""A store whose host is frozen, killed or slow: never between a signal and its effect."""

import math
import os
import signal
import time
from pathlib import Path

from support.launching import Agent, Site, script
from support.processes import is_running
from support.waiting import patience, wait_until

WAITS = """
    open(f"pid_{rank}_{attempt}", "w").write(str(os.getpid()))
    time.sleep(600)
"""


def worker_of(agent: Agent) -> int:
    return int(Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()[-1])


def test_a_frozen_host_of_the_store_holds_no_signal_and_is_given_up(site: Site) -> None:
    """Of four agents with a worker each the one that hosts the store no longer runs, and nothing
    tells so. Two of the others are sent a signal, which a frozen host once held for 90 seconds.
    """
    job = script(site.folder, WAITS)
    given_up = math.ceil(patience(10))
    conf = f"keep_alive_interval=1,keep_alive_max_attempt=3,read_timeout={given_up}"
    host, *others = (site.start_node(n, str(job), nodes="4", conf=conf) for n in range(4))
    wait_until(lambda: len(list(site.folder.glob("pid_*"))) == 4)
    workers = [worker_of(agent) for agent in others]
    os.kill(host.pid, signal.SIGSTOP)
    signals = (signal.SIGTERM, signal.SIGINT)
    time.sleep(2)
    for agent, number in zip(others, signals, strict=False):
        agent.signal(number)
    ends = [agent.wait() for agent in others[:2]]
    assert others[2].process.poll() is None, "signals are obeyed before the store is given up"
    ends.append(others[2].wait())
    os.kill(host.pid, signal.SIGCONT)
    assert [end.code for end in ends] == [128 + signal.SIGTERM, 128 + signal.SIGINT, 5], ends
    assert "was lost" in ends[2].err
    assert "Traceback" not in ends[2].err
    assert not any(map(is_running, workers))


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
    time.sleep(3)
    os.kill(host.pid, signal.SIGCONT)
    (site.folder / "go").touch()
    assert [host.wait().code, other.wait().code] == [0, 0]
