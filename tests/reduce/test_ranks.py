"""Distributed jobs: torchrun's options are rewritten, ranks are told apart, and a real job
shrinks.
"""

from pathlib import Path

import pytest
import yaml

from aorta.core.errors import SpecError
from aorta.core.oracle import ExitCodeOracle, RegexOracle
from aorta.core.trial import Outcome, StreamEnd, TrialEnd
from aorta.reduce.launcher import is_launched, ranks_of, with_world_size
from aorta.workloads.ranks import RankedOracle, failed_ranks, rank_logs
from aorta.workloads.trial import WorkloadRequest, workload_experiment
from support.aorta_cli import Finished, aorta
from support.reductions import reduce_spec, run_dir_of, trace_of, write_spec

JOB = """
import os

rank, size = os.environ["RANK"], os.environ["WORLD_SIZE"]
print(f"rank {rank} of {size} is up", flush=True)
if rank == "1":
    print("BOOM on this rank", flush=True)
    raise SystemExit(3)
"""


ONE_THREAD = {"OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def four_ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Finished]:
    """A job of four that was reduced, and what was said of it."""
    place = tmp_path_factory.mktemp("ranks")
    (place / "job.py").write_text(JOB)
    command = "python -m torch.distributed.run --standalone --nproc-per-node 4 job.py"
    spec = write_spec(
        place, "", [{"name": "world", "kind": "world_size", "initial": 4, "floor": 2}],
        workload={"command": command},
        oracle={"kind": "regex", "pattern": "(?m)^BOOM on this rank", "ranks": "rank 1"},
    )  # fmt: skip
    return place, reduce_spec(spec, "--cold", timeout=500, env=ONE_THREAD)


@pytest.mark.xdist_group("four_ranks")
def test_a_job_of_four_ranks_shrinks_to_two_and_is_judged_by_the_rank_that_fails(
    four_ranks: tuple[Path, Finished],
) -> None:
    place, done = four_ranks
    assert done.exit_code == 0, done.stderr
    report = done.json()
    assert (report["axes"][0]["initial"], report["axes"][0]["final"]) == (4, 2)
    run_dir = run_dir_of(report, place)
    assert "--nproc-per-node 2 job.py" in (run_dir / "shrunken" / "run_repro.sh").read_text()
    assert "BOOM" in (run_dir / "logs" / "rank_1.out").read_text()
    assert "BOOM" not in (run_dir / "logs" / "rank_0.out").read_text()
    assert "failed on rank 1 of 2" in trace_of(run_dir)[-1]["trials"][0]["why"]


@pytest.mark.xdist_group("four_ranks")
def test_a_bundled_recipe_asks_the_same_rank_and_no_other(
    four_ranks: tuple[Path, Finished], tmp_path: Path
) -> None:
    place, done = four_ranks
    env = ONE_THREAD
    run_dir = run_dir_of(done.json(), place)
    words = ("bundle", run_dir, "--ticket", "T-1", "--output", tmp_path / "out")
    bundle = aorta(*words, "--no-check", "--json", env=env, timeout=300)
    assert bundle.exit_code == 0, bundle.stderr
    aorta("bundle", "unpack", bundle.json()["path"], tmp_path / "theirs")
    [recipe] = (tmp_path / "theirs").rglob("shrunken/recipe.resolved.yaml")
    content = yaml.safe_load(recipe.read_text())
    assert content["workload_config"]["oracle"] == {
        "kind": "regex", "pattern": "(?m)^BOOM on this rank", "ranks": 1,
    }  # fmt: skip
    failures = {}
    for rank in (1, 0):
        content["workload_config"]["oracle"]["ranks"] = rank
        content |= {"cells": content["cells"][:1], "trials": 1}
        recipe.write_text(yaml.safe_dump(content))
        again = ("triage", "run", "--recipe", recipe, "--output-dir", tmp_path / f"of_{rank}")
        ran = aorta(*again, "--json", env=env, timeout=300)
        assert ran.exit_code == 0, ran.stderr
        [cell] = ran.json()["cells"]
        failures[rank] = (cell["failed_count"], cell["trials"])
    assert failures == {1: (1, 1), 0: (0, 1)}


@pytest.mark.parametrize(
    ("ranks", "kind", "says"),
    [
        ("some", "regex", "expected any, all or the number of a rank"),
        (1, "hang", "needs an oracle of kind regex or exit_code"),
    ],
)
def test_a_recipe_with_ranks_that_mean_nothing_is_refused(
    ranks: object, kind: str, says: str
) -> None:
    keys = {"regex": {"pattern": "x"}, "hang": {"silent_for": "3s"}}[kind]
    config = {"command": "true", "oracle": {"kind": kind, **keys, "ranks": ranks}}
    with pytest.raises(SpecError, match=says):
        workload_experiment(WorkloadRequest("command", config, file="r.yaml"))


@pytest.mark.parametrize(
    ("command", "ranks", "expected"),
    [
        (("torchrun --nproc-per-node 8 t.py",), 2, ("torchrun --nproc-per-node 2 t.py",)),
        (("torchrun --nproc_per_node=8 t.py",), 3, ("torchrun --nproc_per_node=3 t.py",)),
        (("torchrun t.py",), 2, ("torchrun t.py",)),
        (
            ("torchrun", "--nnodes", "2", "--nproc-per-node", "8", "t.py"),
            4,
            ("torchrun", "--nnodes", "1", "--nproc-per-node", "4", "t.py"),
        ),
        (
            ("torchrun --nnodes=4 --nproc-per-node=8 t.py",),
            16,
            ("torchrun --nnodes=2 --nproc-per-node=8 t.py",),
        ),
        (("bash run.sh",), 2, ("bash run.sh",)),
        (
            ("bash -ec 'torchrun --nproc-per-node 8 t.py \"a b\"' > log",),
            2,
            ("bash -ec 'torchrun --nproc-per-node 2 t.py \"a b\"' > log",),
        ),
        (
            ("cd a && X='b c' torchrun --nproc_per_node=8 t.py >log 2>&1 | tee x",),
            2,
            ("cd a && X='b c' torchrun --nproc_per_node=2 t.py >log 2>&1 | tee x",),
        ),
        (
            ("env", "A=1", "torchrun", "--nproc-per-node", "8", "t.py", "a b"),
            2,
            ("env", "A=1", "torchrun", "--nproc-per-node", "2", "t.py", "a b"),
        ),
    ],
)
def test_the_number_of_ranks_is_rewritten_where_the_launcher_stands(
    command: tuple[str, ...], ranks: int, expected: tuple[str, ...]
) -> None:
    assert with_world_size(command, ranks) == expected


@pytest.mark.parametrize(
    "command",
    [
        ("torchrun t.py",),
        ("srun -N 1 /opt/bin/torchrun t.py",),
        ("cd a && X='b c' torchrun t.py",),
        ("/bin/bash", "-c", "exec torchrun t.py 'a b'"),
        ("python", "-m", "torch.distributed.run", "t.py"),
    ],
)
def test_the_launcher_is_found_where_it_stands(command: tuple[str, ...]) -> None:
    assert is_launched(command)


@pytest.mark.parametrize(
    "command",
    [
        ("bash run_torchrun.sh",),
        ("./torchrun.sh",),
        ("python train.py --launcher torchrun",),
        ("python", "train.py", "--launcher", "torchrun"),
        ("srun --job-name torchrun python t.py",),
        ("bash torchrunner.sh",),
    ],
)
def test_a_word_that_is_not_the_launcher_is_left_alone(command: tuple[str, ...]) -> None:
    assert not is_launched(command)
    assert ranks_of(command) is None
    assert with_world_size(command, 2) == command


def test_of_many_attempts_the_last_is_read(tmp_path: Path) -> None:
    for attempt in (1, 2, 9, 10):
        place = tmp_path / "run" / f"attempt_{attempt}" / "0"
        place.mkdir(parents=True)
    [log] = rank_logs(tmp_path)
    assert log.stdout.parent.parent.name == "attempt_10"


def _end(tmp_path: Path, said: dict[int, str], code: int = 1, report: str = "") -> TrialEnd:
    for rank, text in said.items():
        folder = tmp_path / "ranks" / "run_x" / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        (folder / "stdout.log").write_text(text)
        (folder / "stderr.log").write_text("")
    return TrialEnd(
        "t", StreamEnd(tmp_path / "stdout.log"), StreamEnd(tmp_path / "stderr.log", tail=report),
        exit_code=code,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("which", "said", "fires"),
    [
        ("any", {0: "ok", 1: "BOOM"}, True),
        ("any", {0: "ok", 1: "ok"}, False),
        ("all", {0: "BOOM", 1: "BOOM"}, True),
        ("all", {0: "ok", 1: "BOOM"}, False),
        (1, {0: "ok", 1: "BOOM"}, True),
        (0, {0: "ok", 1: "BOOM"}, False),
    ],
)
def test_a_pattern_is_asked_of_any_of_all_or_of_one_rank(
    which: str | int, said: dict[int, str], fires: bool, tmp_path: Path
) -> None:
    found = RankedOracle(RegexOracle(pattern="^BOOM"), which).judge_end(_end(tmp_path, said))
    assert (found is not None and found.outcome is Outcome.REPRODUCED) is fires


REPORT = """
Failures:
[1]:
  time      : 2026-11-15_06:00:00
  host      : vm
  rank      : 2 (local_rank: 2)
  exitcode  : -11 (pid: 12)
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : 3 (pid: 11)
"""


def test_exit_codes_of_ranks_come_from_the_report_of_the_launcher(tmp_path: Path) -> None:
    assert failed_ranks(REPORT) == {2: -11, 1: 3}
    end = _end(tmp_path, {0: "", 1: "", 2: ""}, report=REPORT)
    assert RankedOracle(ExitCodeOracle(), 1).judge_end(end) is not None
    assert RankedOracle(ExitCodeOracle(codes=(-11,)), 1).judge_end(end) is None
    assert RankedOracle(ExitCodeOracle(), "all").judge_end(end) is None
