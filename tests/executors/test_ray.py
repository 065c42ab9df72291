"""Trials on a real Ray cluster: the contract, machines that share no files, and nodes that die."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from aorta.core.errors import InfrastructureError, UsageError
from aorta.core.trial import Resources, TrialSpec
from aorta.executors.ray import RayExecutor, moved
from support.aorta_cli import aorta, start_aorta
from support.executor_contract import Bench, ExecutorContract, looking_for, pid_in
from support.processes import wait_until_gone, wait_until_no_process_has
from support.reductions import finals, numeric, write_spec
from support.services.ray_cluster import CPUS, RayCluster
from support.waiting import eventually, patience

pytestmark = pytest.mark.xdist_group("ray")


@pytest.fixture
def cluster(ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> RayCluster:
    for name, value in ray_cluster.environ.items():
        monkeypatch.setenv(name, value)
    return ray_cluster.with_nodes(1)


WHOLE_NODES = Resources(cpus=CPUS)


class OpenExecutors:
    """One of a kind for as many tests as leave it open: Ray takes seconds to start a driver and its
    first worker.
    """

    def __init__(self) -> None:
        self._open: dict[Resources, RayExecutor] = {}

    def on(self, cluster: RayCluster, wanted: Resources, jobs: int | None = None) -> RayExecutor:
        kept = self._open.get(wanted)
        if kept is None or not kept._drivers:
            kept = self._open[wanted] = RayExecutor(cluster.address, wanted, jobs, grace=0.5)
        return kept

    def close(self) -> None:
        for executor in self._open.values():
            executor.close()


@pytest.fixture(scope="module")
def executors() -> Iterator[OpenExecutors]:
    executors = OpenExecutors()
    yield executors
    executors.close()


class TestTasks(ExecutorContract):
    @pytest.fixture
    def executor(self, cluster: RayCluster, executors: OpenExecutors) -> RayExecutor:
        return executors.on(cluster, Resources(), jobs=2)


def test_slots_are_what_fits_on_the_nodes_that_live_and_one_that_sees_no_file_of_ours_gets_them(
    cluster: RayCluster, executors: OpenExecutors, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    (work / "data").mkdir(parents=True)
    (work / "data" / "shard.txt").write_text("forty-two")
    (work / "results" / ".aorta").mkdir(parents=True)
    (work / "results" / "old.log").write_text("of no interest")
    executor = executors.on(cluster, WHOLE_NODES)
    before = len(cluster.nodes)
    assert executor.slots == before
    bench = Bench(executor, tmp_path)
    for number in range(before):  # every node that sees our files is taken
        bench.start("bash", "-c", f"echo $$ > {tmp_path}/{number}.pid; sleep 300")
        pid_in(tmp_path / f"{number}.pid")
    cluster.add_node(cpus=2 * CPUS, hides=tmp_path)
    assert eventually(lambda: executor.slots == before + 2)
    script = (
        "cat data/shard.txt; ls results 2>/dev/null; ls $0 >&2; "
        'echo \'{"failure_count": 1}\' > "$AORTA_TRIAL_DIR/result.json"; mkdir '
        "$AORTA_TRIAL_DIR/deep; "
        'echo kept > "$AORTA_TRIAL_DIR/deep/file"; echo done; sleep 300'
    )
    place = str(work / "data")
    end = bench.run("bash", "-c", script, place, cwd=work, watch=looking_for("done"))
    for number in range(before):
        executor.cancel(f"t{number + 1}")
        assert bench.end().cancelled
    assert end.stdout.path.read_text() == "forty-twodone\n"
    assert end.stderr.path.read_text() == "shard.txt\n"
    assert (end.result, [m.line for m in end.matches]) == ({"failure_count": 1}, ["forty-twodone"])
    assert (end.stdout.path.parent / "deep" / "file").read_text() == "kept\n"


def test_a_node_killed_in_the_middle_of_a_reduction_takes_its_slots_and_changes_neither_the_answer_nor_that_stdout_is_one_document(
    cluster: RayCluster, executors: OpenExecutors, tmp_path: Path
) -> None:
    executor = executors.on(cluster.with_nodes(2), WHOLE_NODES)
    before = executor.slots
    nodes = tmp_path / "nodes"
    script = (
        f'echo "$AORTA_TEST_RAY_NODE" >> {nodes}; until [ -e {nodes}.lost ]; do sleep 0.05; done; '
        '[ "$N" -ge 13 ] && echo BOOM\n'
    )
    spec = write_spec(tmp_path, script, [numeric("N", 40, 5)])
    process = start_aorta(
        "reduce", "--spec", spec, "--output", tmp_path / "out", "--json", "-q",
        "--executor", "ray", "--ray-address", cluster.address, "--jobs", "2", cwd=tmp_path,
    )  # fmt: skip
    try:
        assert eventually(lambda: nodes.exists() and nodes.read_text().endswith("\n"))
        where = nodes.read_text().split()[0]
        cluster.kill_node(next(node for node in cluster.nodes if str(node.directory) == where))
    finally:
        nodes.with_name("nodes.lost").touch()
        out, err = process.communicate(timeout=patience())
    assert process.returncode == 0, (out, err)
    assert out.count(b"\n") == 1, out
    assert finals(json.loads(out)) == {"N": 13}
    journals = [path.read_text() for path in tmp_path.rglob("journal.jsonl")]
    assert any('"outcome":"error"' in journal for journal in journals), journals
    assert eventually(lambda: 0 < executor.slots < before)


def test_killing_the_owner_ends_its_trials(cluster: RayCluster, tmp_path: Path) -> None:
    script = f"setsid sleep 300 & echo $! > {tmp_path}/pid; wait"
    process = start_aorta(
        "run", "--executor", "ray", "--ray-address", cluster.address, "--", "bash", "-c", script,
        cwd=tmp_path,
    )  # fmt: skip
    runaway = pid_in(tmp_path / "pid")
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    wait_until_gone(runaway)


def test_without_an_address_ray_is_started_here_and_gone_afterwards(tmp_path: Path) -> None:
    one_worker = {"RAY_worker_maximum_startup_concurrency": "1"}
    mark = {"AORTA_TEST_MARK": str(tmp_path), "RAY_AUTH_MODE": "disabled", **one_worker}
    done = aorta(
        "run", "--executor", "ray", "--trials", "2", "--jobs", "1", "--json", "--", "true",
        cwd=tmp_path, env=mark,
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert done.json()["counts"]["clean"] == 2
    wait_until_no_process_has(f"AORTA_TEST_MARK={tmp_path}")


def test_a_directory_that_moves_takes_nothing_with_it_whose_name_only_begins_alike() -> None:
    trial = TrialSpec(
        ("python", "/data/proj2/train.py", "--out=/data/proj/out", "cat /data/proj/a /data/proj"),
        Path("/data/proj/run/t1"),
        Path("/data/proj"),
        env={"F": "/data/proj/run/t1/f.txt", "G": "/data/proj.old/x"},
    )
    there = moved(trial, Path("/tmp/c"), Path("/tmp/t"))
    assert there.argv == (
        "python",
        "/data/proj2/train.py",
        "--out=/tmp/c/out",
        "cat /tmp/c/a /tmp/c",
    )
    assert there.env == {"F": "/tmp/t/f.txt", "G": "/data/proj.old/x"}


def test_more_than_any_node_has_is_one_line(cluster: RayCluster) -> None:
    with pytest.raises(InfrastructureError, match="99 CPUs and 0 GPUs each; no node of Ray"):
        RayExecutor(cluster.address, Resources(cpus=99))


def test_ranks_are_left_to_the_command(cluster: RayCluster) -> None:
    with pytest.raises(UsageError, match="a task of Ray runs on one node"):
        RayExecutor(cluster.address, Resources(nodes=2))
