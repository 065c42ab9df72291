"""Containers under the local executor: they live exactly as long as their trial, whoever dies
first.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aorta.core.trial import Watch, WatchedPattern
from aorta.executors.local import LocalExecutor
from aorta.runtimes import containers
from support.aorta_cli import ROOT
from support.executor_contract import Bench
from support.services.engines import DockerEngine, Engine
from support.services.images import Rootfs
from support.waiting import eventually, patience

IMAGE = "aorta-test/busybox:1"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    executor = LocalExecutor(jobs=1, grace=2.0)
    yield Bench(executor, tmp_path)
    executor.close()


def test_a_trial_brings_back_its_exit_code_output_and_image(engine: Engine, bench: Bench) -> None:
    script = "echo out; echo err >&2; exit 3"
    end = bench.run("sh", "-c", script, environment=engine.environment(IMAGE))
    assert (end.exit_code, end.signal, end.lost) == (3, None, None)
    assert (end.stdout.tail, end.stderr.tail) == ("out\n", "err\n")
    assert (end.image_digest or "").startswith("sha256:")
    assert engine.containers() == []


def test_a_container_that_goes_over_its_memory_ends_by_its_own_fault(
    engine: Engine, bench: Bench
) -> None:
    small = engine.environment(IMAGE, "--memory=64m", "--memory-swap=64m")
    hog = bench.run("tail", "/dev/zero", environment=small)
    assert (hog.exit_code, hog.lost) == (137, None)
    assert engine.containers() == []


@pytest.mark.xdist_group("docker")
def test_docker_s_word_on_memory_is_asked_for(
    docker_engine: DockerEngine, busybox: Rootfs, bench: Bench
) -> None:
    docker_engine.import_image(busybox, IMAGE)
    there = docker_engine.argv[1:]
    small = docker_engine.environment(IMAGE, *there, "--memory=64m", "--memory-swap=64m")
    assert bench.run("tail", "/dev/zero", environment=small).out_of_memory
    plain = docker_engine.environment(IMAGE, *there)
    killed = bench.run("sh", "-c", "kill -9 $$", environment=plain)
    assert (killed.exit_code, killed.out_of_memory, killed.lost) == (137, False, None)


def test_a_container_that_did_not_start_says_why_nothing_is_known(
    engine: Engine, bench: Bench
) -> None:
    end = bench.run("true", environment=engine.environment(IMAGE, "--no-such-option"))
    assert end.lost is not None
    assert end.lost.startswith("the container did not start: ")
    assert "--no-such-option" in end.lost


def test_a_slots_gpus_are_let_into_its_containers_unless_others_are_named(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "gpu_options", lambda count, _: (f"--env=LET_IN={count}",))
    executor = LocalExecutor(1, gpus_per_trial=2, devices=["5", "6"])
    script = 'echo "$LET_IN $CUDA_VISIBLE_DEVICES"'
    try:
        bench = Bench(executor, tmp_path)
        given = bench.run("sh", "-c", script, environment=engine.environment(IMAGE))
        named = engine.environment(IMAGE, "--device=/dev/null")
        chosen = bench.run("sh", "-c", script, environment=named)
    finally:
        executor.close()
    assert given.stdout.tail == "2 5,6\n"
    assert chosen.stdout.tail == " 5,6\n"


def test_a_timeout_ends_the_container(engine: Engine, bench: Bench) -> None:
    end = bench.run("sleep", "600", timeout=patience(2.0), environment=engine.environment(IMAGE))
    assert end.timed_out
    assert engine.containers() == []


def test_a_container_that_ignores_the_signal_is_killed(engine: Engine, bench: Bench) -> None:
    script = "trap '' TERM; echo deaf; while :; do sleep 1; done"
    end = bench.run(
        "sh", "-c", script, timeout=patience(2.0), environment=engine.environment(IMAGE)
    )
    assert (end.timed_out, end.stdout.tail) == (True, "deaf\n")
    assert engine.containers() == []


def test_the_first_match_ends_the_container(engine: Engine, bench: Bench) -> None:
    watch = Watch(patterns=(WatchedPattern("loss is NaN"),))
    script = "echo loss is NaN; sleep 600"
    end = bench.run("sh", "-c", script, watch=watch, environment=engine.environment(IMAGE))
    assert [match.pattern for match in end.matches] == ["loss is NaN"]
    assert engine.containers() == []


def test_a_cancelled_trial_leaves_no_container(engine: Engine, bench: Bench) -> None:
    trial = bench.start("sleep", "600", environment=engine.environment(IMAGE))
    assert eventually(lambda: len(engine.containers()) == 1, every=0.1)
    bench.executor.cancel(trial.id)
    assert bench.end().cancelled
    assert engine.containers() == []


def test_closing_the_executor_leaves_no_container(engine: Engine, bench: Bench) -> None:
    bench.start("sleep", "600", environment=engine.environment(IMAGE))
    assert eventually(lambda: len(engine.containers()) == 1, every=0.1)
    bench.executor.close()
    assert engine.containers() == []


def test_a_killed_owner_leaves_no_container(engine: Engine, tmp_path: Path) -> None:
    program = (
        "from pathlib import Path\n"
        "from aorta.core.trial import Environment, RuntimeKind, TrialSpec\n"
        "from aorta.executors.local import LocalExecutor\n"
        f"box = Environment('box', RuntimeKind({str(engine.kind)!r}), {IMAGE!r},"
        f" options={engine.options!r})\n"
        f"here = Path({str(tmp_path)!r})\n"
        "executor = LocalExecutor()\n"
        "executor.start(TrialSpec(('sleep', '600'), here / 't1', here, 't1', environment=box))\n"
        "executor.wait()\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen((sys.executable, "-c", program), env=environ) as owner:
        assert eventually(lambda: len(engine.containers()) == 1, every=0.1)
        owner.kill()
    assert eventually(lambda: engine.containers() == [], every=0.1)
