"""A live job as somebody who watches it sees it: through a restart, to its end, and past the death
of its launcher.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from support.aorta_cli import start_aorta
from support.launching import Site, script
from support.live_pages import pictures
from support.waiting import patience

RESTARTS_ONCE = """
    print("speaks", rank, flush=True)
    if attempt == 0 and rank == 1:
        raise RuntimeError("the disk of rank 1 is wet")
    while attempt == 1 and not os.path.exists("go"):
        time.sleep(0.05)
"""
TWO_RANKS = ("--nproc-per-node", "2", "--max-restarts", "3")
SECOND_CYCLE = "Running, in its second cycle"


@contextmanager
def watching(site: Site) -> Iterator[str]:
    """`aorta watch` on the log directory, from before the job begins; where its page is."""
    site.logs.mkdir()
    watcher = start_aorta("watch", site.logs)
    assert watcher.stdout is not None
    try:
        yield watcher.stdout.readline().decode().strip()
    finally:
        watcher.send_signal(signal.SIGINT)
        watcher.communicate(timeout=patience())


def test_the_page_of_a_launch_is_live_from_its_first_cycle_over_a_restart_to_its_end(
    site: Site,
) -> None:
    with watching(site) as address:
        agent = site.start(*TWO_RANKS, str(script(site.folder, RESTARTS_ONCE)))
        seen = []
        for picture in pictures(address):
            seen.append(picture)
            if SECOND_CYCLE in picture.html:
                (site.folder / "go").touch()
            if "finished after" in picture.html:
                break
        assert agent.wait().code == 0
    before_the_end = [picture.state for picture in seen if "finished after" not in picture.html]
    assert set(before_the_end) <= {"", "running"}, "a job between two cycles is not over"
    running = next(picture for picture in seen if SECOND_CYCLE in picture.html)
    assert "RESTART after cycle 0" in running.html
    assert "the disk of rank 1 is wet" in running.html
    assert "The job finished after 2 cycles" in seen[-1].html


def test_watching_begins_before_the_job_and_notices_a_killed_launcher(site: Site) -> None:
    with watching(site) as address:
        agent = site.start(*TWO_RANKS, str(script(site.folder, RESTARTS_ONCE)))
        told = pictures(address)
        assert "this is no run directory" in next(told).html
        assert any(SECOND_CYCLE in picture.html for picture in told)
        agent.signal(signal.SIGKILL)
        dead = next(picture for picture in told if picture.state != "running")
        assert dead.state == "its process is gone without a result"
        assert "Its process is gone without a result, in its second cycle" in dead.html


def test_a_launch_stopped_by_ctrl_c_says_so_to_its_viewers_and_leaves(site: Site) -> None:
    with watching(site) as address:
        agent = site.start(*TWO_RANKS, str(script(site.folder, RESTARTS_ONCE)))
        told = pictures(address)
        assert any(SECOND_CYCLE in picture.html for picture in told)
        agent.signal(signal.SIGINT)
        assert (
            next(picture for picture in told if picture.state != "running").state == "interrupted"
        )
        assert agent.wait().code == 130


def test_no_option_of_ours_is_one_of_torchrun() -> None:
    from torch.distributed.run import get_args_parser

    from aorta.launch.options import parser

    torchruns = set(get_args_parser()._option_string_actions)
    ours = set(parser()._option_string_actions) - torchruns
    ours -= {"--term-timeout", "--term_timeout", "--workers-stop-timeout", "--workers_stop_timeout"}
    others = {each for each in ours if not each.startswith(("--ft", "--no-ft"))}
    assert not others, "beyond those of ft_launcher, which torchrun does not have either"
