"""The page of a job (`aorta report LOG_DIR`) while it runs: through a restart, to its end, and past
the death of its launcher.
"""

import signal

from support.aorta_cli import aorta
from support.launching import Site, script
from support.waiting import wait_until

RESTARTS_ONCE = """
    print("speaks", rank, flush=True)
    if attempt == 0 and rank == 1:
        raise RuntimeError("the disk of rank 1 is wet")
    while attempt == 1 and not os.path.exists("go"):
        time.sleep(0.05)
"""
TWO_RANKS = ("--nproc-per-node", "2", "--max-restarts", "3")


def page_of(site: Site) -> str:
    """Empty where there is nothing to show yet."""
    page = site.folder / "page.html"
    done = aorta("report", site.logs, "-o", page)
    return page.read_text() if done.exit_code == 0 else ""


def test_the_page_of_a_job_tells_its_restart_while_it_runs_and_its_end(site: Site) -> None:
    agent = site.start(*TWO_RANKS, str(script(site.folder, RESTARTS_ONCE)))
    wait_until(lambda: "Running, in cycle 1" in page_of(site))
    running = page_of(site)
    assert "RESTART" in running
    assert "the disk of rank 1 is wet" in running
    (site.folder / "go").touch()
    assert agent.wait().code == 0
    assert "The job finished after 2 cycles" in page_of(site)


def test_the_page_of_a_killed_launcher_says_that_it_is_gone(site: Site) -> None:
    agent = site.start(*TWO_RANKS, str(script(site.folder, RESTARTS_ONCE)))
    wait_until(lambda: "Running, in cycle 1" in page_of(site))
    agent.signal(signal.SIGKILL)
    agent.wait()
    assert "Its process is gone without a result, in cycle 1" in page_of(site)


def test_no_option_of_ours_is_one_of_torchrun() -> None:
    from torch.distributed.run import get_args_parser

    from aorta.launch.options import parser

    torchruns = set(get_args_parser()._option_string_actions)
    ours = set(parser()._option_string_actions) - torchruns
    others = {each for each in ours if not each.startswith(("--ft", "--no-ft"))}
    assert not others
