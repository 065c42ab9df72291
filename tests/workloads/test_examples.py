"""The shipped examples fail for real reasons, the same every time, and pass when the reason is
taken away.
"""

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from aorta.workloads.half_nan import HalfNan
from aorta.workloads.half_nan.train import SHAPES_FILE, TrainSettings, half, read_shapes, train

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SHARD_DIR = EXAMPLES / "bad_shard" / "shards"
ORIGINAL = TrainSettings(shapes=read_shapes(SHAPES_FILE))


def script(example: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The example as a customer has it: a script, a shell, and no aorta."""
    plain = {"PATH": "/usr/local/bin:/usr/bin:/bin", **env}
    command = ["bash", "run_repro.sh"]
    return subprocess.run(
        command, cwd=EXAMPLES / example, env=plain, capture_output=True, text=True
    )


def first_nan(settings: TrainSettings) -> int | None:
    return next((n for n, loss in enumerate(train(settings), start=1) if math.isnan(loss)), None)


@given(st.floats(allow_nan=False, width=16))
def test_a_half_stays_what_it_is(value: float) -> None:
    assert half([value]) == (value,)


@pytest.mark.parametrize(
    ("value", "stored"),
    [(65519.0, 65504.0), (65520.0, math.inf), (-1e9, -math.inf), (1e-9, 0.0), (2049.0, 2048.0)],
)
def test_half_rounds_to_nearest_and_overflows_to_infinity(value: float, stored: float) -> None:
    assert half([1.0, value]) == (1.0, stored)


def test_the_training_turns_to_nan_at_a_step_that_the_loop_itself_finds() -> None:
    step = first_nan(ORIGINAL)
    assert step is not None
    assert first_nan(replace(ORIGINAL, num_steps=step)) == step
    assert first_nan(replace(ORIGINAL, num_steps=step - 1)) is None


def test_the_nan_comes_later_with_a_small_batch_and_sooner_with_a_high_learning_rate() -> None:
    original = first_nan(ORIGINAL) or 0
    small_batch = first_nan(replace(ORIGINAL, batch_size=64)) or 0
    high_rate = first_nan(replace(ORIGINAL, learning_rate=0.2)) or 0
    assert 0 < high_rate < original < small_batch


def test_one_shape_alone_keeps_the_failure_and_no_other_has_it_at_that_step() -> None:
    step = first_nan(ORIGINAL)
    assert step is not None
    alone = {
        name: first_nan(replace(ORIGINAL, shapes={name: width}, num_steps=step))
        for name, width in ORIGINAL.shapes.items()
    }
    assert {name: found for name, found in alone.items() if found} == {"tower.wide": step}


def test_looking_for_overflow_repairs_the_training() -> None:
    assert first_nan(replace(ORIGINAL, num_steps=1000, check_overflow=True)) is None


def test_the_script_prints_the_step_and_fails_the_same_every_time() -> None:
    runs = [script("half_nan") for _ in range(2)]
    assert runs[0].stdout == runs[1].stdout
    assert runs[0].stdout.splitlines()[-1] == f"NaN detected at step {first_nan(ORIGINAL)}"
    assert [run.returncode for run in runs] == [1, 1]


def test_the_script_reads_its_settings_from_the_environment(tmp_path: Path) -> None:
    shapes = tmp_path / "shapes.txt"
    shapes.write_text("head.click 4\n\n")
    run = script("half_nan", NUM_STEPS="120", BATCH_SIZE="16", SHAPES_FILE=str(shapes))
    assert run.returncode == 0
    assert run.stdout.splitlines()[0] == "training 1 heads, batch 16"
    assert run.stdout.splitlines()[-1] == "training finished"


def test_the_flaky_variant_fails_for_some_data_and_not_for_other() -> None:
    flaky = replace(ORIGINAL, max_loss_scale=300.0, num_steps=900)
    found = [first_nan(replace(flaky, seed=seed)) for seed in range(4)]
    assert None in found
    assert len(set(found)) > 2


def test_a_random_seed_is_another_one_every_time() -> None:
    assert len({TrainSettings.from_env({"SEED": "random"}).seed for _ in range(3)}) == 3


def test_the_shards_in_the_repository_are_what_their_maker_writes(tmp_path: Path) -> None:
    maker = EXAMPLES / "bad_shard" / "make_shards.py"
    subprocess.run([sys.executable, maker, tmp_path], check=True)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    shipped = {path.name: path.read_bytes() for path in SHARD_DIR.iterdir()}
    assert made == shipped


def test_the_loader_dies_on_the_damaged_shard_and_on_no_other(tmp_path: Path) -> None:
    for shard in sorted(SHARD_DIR.iterdir()):
        folder = tmp_path / shard.name
        folder.mkdir()
        (folder / shard.name).write_bytes(shard.read_bytes())
        run = script("bad_shard", SHARD_DIR=str(folder))
        damaged = shard.name == "shard-07.jsonl.gz"
        assert (run.returncode == 1, "CRC check failed" in run.stderr) == (damaged, damaged)


def test_the_flaky_loader_meets_the_bad_shard_only_sometimes() -> None:
    statuses = {
        script("bad_shard", SEED=str(seed), SHARDS_PER_EPOCH="3").returncode for seed in range(8)
    }
    assert statuses == {0, 1}


def test_as_a_workload_it_reports_the_same_failure_as_its_script() -> None:
    workload = HalfNan({})
    workload.setup()
    result = workload.run()
    result.check()
    assert not result.passed
    assert result.first_failure_iteration is not None
    assert len(result.step_times_ms) == result.total_iterations
    assert all(predicate(result) for predicate in workload.predicates.values())
    assert result.failure_details[0]["hint"] in script("half_nan").stdout


def test_the_axes_in_python_are_the_axes_in_the_spec() -> None:
    spec = yaml.safe_load((EXAMPLES / "half_nan" / "aorta.yaml").read_text())
    declared = [dict(axis) for axis in HalfNan.axes]
    assert Path(declared[2]["initial"]).name == spec["axes"][2]["initial"]
    declared[2]["initial"] = spec["axes"][2]["initial"]
    assert declared == spec["axes"]
