"""One job for every torch: alone, on two agents that meet, and on two that are numbered; a rank is
killed, and its restart meets the others in a store without old addresses.
"""

import pytest

from support.launching import Ended, Site, script

JOB = """
    import signal
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    print(f"attempt {attempt} total {int(total)}", flush=True)
    print("group", os.environ["GROUP_RANK"], "port", os.environ["MASTER_PORT"], flush=True)
    if attempt == 0 and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()
    dist.destroy_process_group()
"""


def alone(site: Site, job: str) -> list[Ended]:
    return [site.run("--standalone", "--nproc-per-node", "2", "--max-restarts", "1", job)]


def meeting(site: Site, job: str) -> list[Ended]:
    return site.run_nodes(2, "--max-restarts", "1", job)


def numbered(site: Site, job: str) -> list[Ended]:
    where = ("--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", str(site.port))
    agents = [
        site.start(*where, "--node-rank", str(node), "--max-restarts", "1", job) for node in (1, 0)
    ]
    return [agent.wait() for agent in agents]


@pytest.mark.parametrize("rendezvous", [alone, meeting, numbered])
def test_a_killed_rank_is_restarted_with_the_others(site: Site, rendezvous: object) -> None:
    assert callable(rendezvous)
    ends = rendezvous(site, str(script(site.folder, JOB)))
    assert {end.code for end in ends} == {0}, ends
    assert site.cycles() == ["cycle_0", "cycle_1"]
    assert site.cycle(0)["decision"]["action"] == "RESTART"
    for cycle, rank in ((0, 0), (0, 1), (1, 0), (1, 1)):
        log = (site.logs / f"cycle_{cycle}" / f"rank_{rank}.out").read_text()
        assert f"attempt {cycle} total 2" in log
        if rendezvous is numbered:
            assert f"group {rank} port {site.port}" in log
