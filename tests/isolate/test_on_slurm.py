"""`aorta isolate` on a real Slurm: faults planted by node, by rank and by pair."""

from pathlib import Path

import pytest

from support.aorta_cli import Finished, aorta
from support.services.slurm import SlurmCluster

pytestmark = pytest.mark.xdist_group("slurm")


def isolated(cluster: SlurmCluster, folder: Path, script: str, *words: str) -> Finished:
    job = folder / "job.sh"
    job.write_text(script, encoding="utf-8")
    names = ",".join(cluster.nodes)
    return aorta(
        *("isolate", "--nodes", names, "--executor", "slurm", "--json"),
        *(*words, "--", "bash", str(job)),
        cwd=folder,
        env=cluster.environ,
        timeout=400,
    )


def test_nodes_that_the_cluster_does_not_have_are_one_line_before_anything_runs(
    slurm_cluster: SlurmCluster, tmp_path: Path
) -> None:
    words = ("isolate", "--nodes", "n[3-6]", "--executor", "slurm", "--", "true")
    done = aorta(*words, cwd=tmp_path, env=slurm_cluster.environ)
    assert done.exit_code == 2
    (said,) = done.stderr.strip().splitlines()
    assert "--nodes: the default partition has no node n5, n6" in said
    assert list(tmp_path.iterdir()) == []


def test_the_broken_node_is_named_and_how_to_drain_it(
    slurm_cluster: SlurmCluster, tmp_path: Path
) -> None:
    bad = sorted(slurm_cluster.nodes)[1]
    script = (
        f'[ "$SLURMD_NODENAME" = {bad} ] || exit 0\n'
        'echo "[rank$((8 * SLURM_PROCID + 5))]: RuntimeError: CUDA error: uncorrectable ECC error'
        ' encountered" >&2; exit 1\n'
    )
    result = isolated(slurm_cluster, tmp_path, script, "--ranks-per-node", "8").json()
    assert result["status"] == "found"
    assert [(one["kind"], one["name"]) for one in result["guilty"]] == [("node", bad)]
    assert any(
        line.startswith(f"scontrol update NodeName={bad} State=DRAIN") for line in result["next"]
    )
    for placement in result["placements"]:
        assert (placement["outcome"] == "reproduced") == (bad in placement["nodes"])
    which_gpu = f"which GPU of it: srun -w {bad} aorta isolate --nodes 0-7 -- bash"
    assert any(line.startswith(which_gpu) for line in result["next"])


def test_a_job_that_only_runs_whole_is_permuted_and_the_rank_is_named(
    slurm_cluster: SlurmCluster, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    script = (
        f'echo "$SLURM_PROCID $SLURMD_NODENAME $AORTA_NODES" >> {seen}\n'
        '[ "$SLURM_PROCID" = 2 ] && { echo "[rank2]: ValueError: shard 2 is empty" >&2; exit 1; }\n'
        "sleep 2\n"
    )
    size = str(len(slurm_cluster.nodes))
    result = isolated(slurm_cluster, tmp_path, script, "--world-size", size).json()
    assert result["status"] == "found", result
    assert [(one["kind"], one["name"]) for one in result["guilty"]] == [("rank", "rank 2")]
    for rank, node, nodes in map(str.split, seen.read_text().splitlines()):
        assert nodes.split(",")[int(rank)] == node
    assert len({tuple(placement["nodes"]) for placement in result["placements"]}) > 1
