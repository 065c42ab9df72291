"""Several agents of one job: meeting, growing, shrinking, talking gloo."""

from support.launching import Site, script
from support.waiting import wait_until

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


def test_a_static_rendezvous_keeps_node_ranks_and_the_chosen_port(site: Site) -> None:
    """And gives the workers of each cycle fresh addresses: with torchrun they meet in a store full
    of old ones.
    """
    job = script(
        site.folder,
        """
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        total = torch.ones(1)
        dist.all_reduce(total)
        print("group", os.environ["GROUP_RANK"], "port", os.environ["MASTER_PORT"], flush=True)
        print(f"step {attempt} total {int(total)}", flush=True)
        if attempt == 0 and rank == 1:
            sys.exit(3)
        dist.barrier()
        dist.destroy_process_group()
        """,
    )
    port = str(site.port)
    how = ("--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", port, "--cold")
    agents = [
        site.start(*how, "--node-rank", str(rank), "--max-restarts", "1", *NO_OPINION, str(job))
        for rank in (1, 0)
    ]
    ends = [agent.wait() for agent in agents]
    assert [end.code for end in ends] == [0, 0], ends
    assert (site.cycles(), site.cycle(1)["restarts"]) == (["cycle_0", "cycle_1"], 1)
    for rank in (0, 1):
        log = (site.logs / "cycle_1" / f"rank_{rank}.out").read_text()
        assert f"group {rank} port {port}" in log
        assert "step 1 total 2" in log
