"""Verbs on a real cluster: one flag more, the same answer, also when a node dies on the way."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.aorta_cli import Finished, aorta
from support.git_repositories import numbered
from support.reductions import finals, numeric, reduce_spec, write_spec
from support.services.slurm import SlurmCluster
from support.waiting import eventually

pytestmark = pytest.mark.xdist_group("slurm")
ON_SLURM = ("--executor", "slurm", "--jobs", "4")
WHERE = 'echo "$SLURMD_NODENAME" >> "$NODES"; sleep 0.5; '


@contextmanager
def losing_a_node(cluster: SlurmCluster, nodes: Path) -> Iterator[list[str]]:
    """Kills the node of a trial that runs, as soon as there are three; gives it back afterwards."""
    killed: list[str] = []

    def kill() -> None:
        if eventually(lambda: nodes.exists() and len(nodes.read_text().split()) >= 3):
            killed.append(nodes.read_text().split()[-1])
            cluster.kill_node(killed[0])

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield killed
    finally:
        killer.join()
        for name in killed:
            cluster.start_node(name)
        cluster.wait_until_idle()


def lost_in(where: Path) -> int:
    """Trials that the journal counts as errors."""
    return sum(path.read_text().count('"outcome":"error"') for path in where.rglob("journal.jsonl"))


def disturbed(
    cluster: SlurmCluster, tmp_path: Path, run: Callable[[dict[str, str]], Finished]
) -> Finished:
    nodes = tmp_path / "nodes"
    with losing_a_node(cluster, nodes) as killed:
        done = run({**cluster.environ, "NODES": str(nodes)})
    assert killed
    return done


def test_a_reduction_survives_the_loss_of_a_node(
    slurm_cluster: SlurmCluster, tmp_path: Path
) -> None:
    (tmp_path / "f.txt").write_text("a\nb\nc\nd\ne\nf\ng\n")
    script = WHERE + '[ "$N" -ge 137 ] && grep -qx c "$F" && grep -qx f "$F" && echo BOOM\n'
    axes = [numeric("N", 5000, 50), {"name": "F", "kind": "file_subset", "initial": "f.txt"}]
    spec = write_spec(tmp_path, script, axes)
    done = disturbed(
        slurm_cluster, tmp_path, lambda env: reduce_spec(spec, *ON_SLURM, env=env, timeout=300)
    )
    assert done.exit_code == 0, done.stderr
    assert finals(done.json()) == {"N": 137, "F": 2}
    assert lost_in(tmp_path)


def test_a_bisection_survives_the_loss_of_a_node(
    slurm_cluster: SlurmCluster, tmp_path: Path
) -> None:
    repository, shas = numbered(tmp_path / "repo", 33)
    script = WHERE + "test $(cat number) -lt 21 || { echo Error: broken; exit 1; }"
    words = ("--good", shas[0], "--bad", "HEAD", "--json", *ON_SLURM, "--", "bash", "-c", script)
    done = disturbed(
        slurm_cluster,
        tmp_path,
        lambda env: aorta(
            "bisect", "--output-prefix", tmp_path / "out", *words, cwd=repository.path, timeout=300,
            env={**env, "AORTA_CACHE_DIR": str(tmp_path / "cache")},
        ),
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    [culprit] = done.json()["culprits"]
    assert culprit["bad"] == shas[21]
    assert lost_in(tmp_path)
