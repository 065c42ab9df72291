"""Verbs on a real cluster: one flag more, the same answer, also when a node dies on the way."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aorta.engine.journal import read_records
from support.aorta_cli import ROOT, Finished, aorta, start_aorta
from support.git_repositories import numbered
from support.reductions import finals, numeric, write_spec
from support.services.slurm import SlurmCluster
from support.waiting import eventually, patience

pytestmark = pytest.mark.xdist_group("slurm")
# One after the other: beside others the one on a lost node may be cancelled, as its answer is no
# longer asked for.
ON_SLURM = ("--executor", "slurm", "--jobs", "1")
# From the third on a trial stays until a node was lost: one that runs is.
WHERE = (
    'echo "$SLURMD_NODENAME" >> "$NODES"; '
    'until [ -e "$NODES.lost" ] || [ $(wc -l < "$NODES") -lt 3 ]; do sleep 0.05; done; '
)


@contextmanager
def losing_a_node(cluster: SlurmCluster, nodes: Path, *, declared: bool) -> Iterator[list[str]]:
    """Kills the node of a trial that runs, as soon as there are three; gives it back afterwards."""
    killed: list[str] = []

    def kill() -> None:
        try:
            if eventually(lambda: nodes.exists() and len(nodes.read_text().split()) >= 3):
                killed.append(nodes.read_text().split()[-1])
                cluster.kill_node(killed[0], declared=declared)
        finally:
            nodes.with_name(f"{nodes.name}.lost").touch()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield killed
    finally:
        killer.join()
        for name in killed:
            cluster.replace_node(name)
        cluster.wait_until_idle()


def lost_in(where: Path) -> int:
    """Trials that the journal counts as errors."""
    return sum(path.read_text().count('"outcome":"error"') for path in where.rglob("journal.jsonl"))


def disturbed(
    cluster: SlurmCluster,
    tmp_path: Path,
    run: Callable[[dict[str, str]], Finished],
    *,
    declared: bool = True,
) -> Finished:
    nodes = tmp_path / "nodes"
    with losing_a_node(cluster, nodes, declared=declared) as killed:
        done = run({**cluster.environ, "NODES": str(nodes)})
    assert killed
    return done


def test_a_reduction_in_an_allocation_that_outlives_its_nodes_ends_though_one_dies(
    slurm_cluster: SlurmCluster, tmp_path: Path
) -> None:
    spec = write_spec(tmp_path, WHERE + '[ "$N" -ge 13 ] && echo BOOM\n', [numeric("N", 40, 5)])
    allocation = ("salloc", "--no-kill", "--nodes=4", "--ntasks-per-node=2")
    words = ("reduce", "--spec", spec, "--output", tmp_path / "out", "--json", "-q", *ON_SLURM)

    def run(env: dict[str, str]) -> Finished:
        done = subprocess.run(
            (*allocation, sys.executable, "-m", "aorta", *words),
            env={**os.environ, **env, "PYTHONPATH": str(ROOT / "src")},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=patience(90),
        )
        return Finished((), done.returncode, done.stdout, done.stderr)

    done = disturbed(slurm_cluster, tmp_path, run, declared=False)
    assert done.exit_code == 0, done.stderr
    assert finals(done.json()) == {"N": 13}
    assert lost_in(tmp_path)


def test_a_bisection_names_the_commit_with_its_trials_on_the_cluster(
    slurm_cluster: SlurmCluster, tmp_path: Path
) -> None:
    repository, shas = numbered(tmp_path / "repo", 9)
    script = 'test -n "$SLURM_JOB_ID" || exit 125; test $(cat number) -lt 5'
    words = ("--good", shas[0], "--no-checks", "--json", *ON_SLURM, "--", "bash", "-c", script)
    done = aorta(
        *("bisect", "--output-prefix", tmp_path / "out", *words),
        cwd=repository.path,
        env={**slurm_cluster.environ, "AORTA_CACHE_DIR": str(tmp_path / "cache")},
        timeout=300,
    )
    assert done.exit_code == 0, done.stderr
    [culprit] = done.json()["culprits"]
    assert culprit["bad"] == shas[5]


def test_a_run_killed_on_the_cluster_goes_on_and_runs_nothing_again_that_was_written_down(
    slurm_cluster: SlurmCluster, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    script = (
        'echo "$AORTA_TRIAL_DIR" >> "$LOG"; sleep 0.5; n=$(basename "$AORTA_TRIAL_DIR"); '
        "test $((10#${n##*-} % 3)) -ne 0"
    )
    words = ["run", "--trials", "9", "--results-dir", "out", "--executor", "slurm"]
    what = ["--", "bash", "-c", script]
    env = {**slurm_cluster.environ, "LOG": str(log)}
    with start_aorta(*words, "--jobs", "2", *what, cwd=tmp_path, env=env) as first:
        assert eventually(lambda: len(written(tmp_path)) >= 3)
        first.kill()
    kept, begun = written(tmp_path), len(log.read_text().split())
    (run_dir,) = (path.parent.parent for path in tmp_path.glob("out/**/journal.jsonl"))
    resumed = [*words, "--jobs", "4", "--resume", str(run_dir), "--json", *what]
    done = aorta(*resumed, cwd=tmp_path, env=env, timeout=300)
    assert done.json()["counts"] == {"reproduced": 3, "clean": 6, "other": 0, "error": 0}
    assert kept <= written(tmp_path), "a trial that was written down is gone"
    assert not {Path(place).name for place in log.read_text().split()[begun:]} & kept
    ran = len(log.read_text().split())
    assert aorta(*resumed, cwd=tmp_path, env=env, timeout=300).json() == {
        **done.json(),
        "resumed_trials": 9,
    }
    assert len(log.read_text().split()) == ran, "a finished run runs nothing"
    assert eventually(lambda: not slurm_cluster.queue()), "no job is left behind"


def written(where: Path) -> set[str]:
    """The trials in the journal, by the names of their directories."""
    journals = where.glob("out/**/journal.jsonl")
    return {Path(record.path).name for path in journals for record in read_records(path)}
