"""Several agents of one job: meeting, growing, shrinking, talking gloo."""

import math
import signal

import pytest

from support.launching import Site, script
from support.waiting import patience, wait_until

NO_OPINION = ("--ft-attribution-dry-run", "--ft-max-no-progress-cycles", "0")


def test_an_agent_that_comes_later_is_taken_in_and_costs_no_restart(site: Site) -> None:
    job = script(
        site.folder,
        """
        print("world", os.environ["WORLD_SIZE"], flush=True)
        if os.environ["WORLD_SIZE"] == "1":
            time.sleep(600)
        """,
    )
    host = site.start_node(0, "--max-restarts", "0", str(job), nodes="1:2")
    wait_until((site.logs / "cycle_0" / "rank_0.out").exists)
    late = site.start_node(1, "--max-restarts", "0", str(job), nodes="1:2")
    assert [host.wait().code, late.wait().code] == [0, 0]
    assert site.cycle(0)["decision"] is None
    assert site.cycle(1)["restarts"] == 0
    assert len(site.cycle(1)["nodes"]) == 2


def test_the_restart_budget_is_the_job_s_and_not_each_agent_s(site: Site) -> None:
    job = script(site.folder, "time.sleep(0.3); sys.exit(3 if rank == attempt % 2 else 0)")
    ends = site.run_nodes(2, "--max-restarts", "2", *NO_OPINION, str(job))
    assert [end.code for end in ends] == [1, 1], ends
    assert site.cycles() == ["cycle_0", "cycle_1", "cycle_2"]
    assert all("2 of 2 restarts used" in end.err for end in ends)


ALL_FAIL_BY_THEMSELVES = """
import signal

import pytest
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(f"ready_{rank}", "w").close()
while not all(os.path.exists(f"ready_{each}") for each in range(4)):
    time.sleep(0.02)
import surely_not_installed
"""


def test_four_agents_stop_together(site: Site) -> None:
    job = script(site.folder, ALL_FAIL_BY_THEMSELVES)
    ends = site.run_nodes(4, "--max-restarts", "3", str(job))
    assert [end.code for end in ends] == [93] * 4, ends
    assert site.cycles() == ["cycle_0"]
    assert site.cycle(0)["finding"]["class"] == "import_error"


@pytest.mark.parametrize(("then", "exit_code"), [("sys.exit(1)", 1), ("time.sleep(600)", None)])
def test_a_lost_node_of_a_fixed_size_job_is_named_and_leaves_a_record_and_a_case(
    site: Site, then: str, exit_code: int | None
) -> None:
    # The survivor's rank fails before its agent misses the other one, or is ended by its agent.
    job = script(
        site.folder,
        f"""
        open(f'pid_{{rank}}', 'w').close()
        while not os.path.exists('gone'):
            time.sleep(0.05)
        {then}
        """,
    )
    few = f"join_timeout={2 * math.ceil(patience(3))}"
    timeouts = ("--max-restarts", "3", "--ft-attribution-decision-timeout", "2")
    host = site.start_node(0, *timeouts, str(job), conf=few)
    other = site.start_node(1, *timeouts, "--local-addr", "127.0.0.2", str(job), conf=few)
    wait_until(lambda: len(list(site.folder.glob("pid_*"))) == 2)
    other.signal(signal.SIGKILL)
    (site.folder / "gone").touch()
    end = host.wait()
    assert end.code == 5, end
    assert "1 of 2 nodes are here (127.0.0.2 was lost)" in end.err
    info = site.cycle(0)
    assert info["lost_nodes"] == ["127.0.0.2"]
    assert info["ending"]["exit_code"] == 5
    assert "127.0.0.2 was lost and no other node took its place" in info["ending"]["reason"]
    assert [(rank["rank"], rank["exit_code"]) for rank in info["ranks"]] == [(0, exit_code)]
    blamed = (0, "127.0.0.1") if exit_code else (None, "127.0.0.2")
    assert (info["finding"]["root"]["rank"], info["finding"]["root"]["node"]) == blamed
    assert info["decision"] is not None
    assert (site.logs / "case" / "aorta.yaml").is_file()


def test_an_agent_that_arrives_after_the_end_leaves_with_the_job_s_exit_code(site: Site) -> None:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    store = TCPStore("127.0.0.1", site.port, is_master=True, wait_for_workers=False)
    job = script(site.folder, "open('ran', 'a').write('x')")
    where = ("--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-id", "job7", "--rdzv-endpoint")
    how = (
        *where,
        f"127.0.0.1:{store.port}",
        "--rdzv-conf",
        "is_host=false,last_call_timeout=1",
        str(job),
    )
    first, late = site.run(*how), site.run(*how)
    assert (first.code, late.code) == (0, 0), late
    assert "the job has already ended: every rank succeeded" in late.err
    assert (site.folder / "ran").read_text() == "x"


def test_a_port_that_is_taken_is_named_to_the_agent_that_would_host_the_store(site: Site) -> None:
    """As by another agent that was given --node-rank 0 too: there is nobody else to start."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    taken = TCPStore("127.0.0.1", site.port, is_master=True, wait_for_workers=False)
    where = ("--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", str(taken.port))
    end = site.run(*where, "--node-rank", "0", str(script(site.folder, "pass")))
    assert end.code == 5, end
    assert "another agent --node-rank 0 too" in end.err
    assert "start the agent that hosts it" not in end.err
