"""What a customer is promised, one by one, on the shipped example."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.aorta_cli import ROOT, aorta, environ
from support.reductions import finals, trace_of, with_trials

SPEC = ROOT / "examples" / "half_nan" / "aorta.yaml"
CAPTURED = '"captured_at"'


@pytest.fixture(scope="module")
def reduced(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """The example reduced once, with the seed's spec as it stands."""
    place = tmp_path_factory.mktemp("half_nan")
    done = aorta(
        "reduce", "--spec", SPEC, "--output", "reduce/MY-TICKET", "--json", "-q", "--jobs", "2",
        cwd=place,
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    report = done.json()
    return report, place / report["run_dir"]


pytestmark = pytest.mark.xdist_group("half_nan")


def _run(point: dict[str, str]) -> str:
    """The original script with these variables."""
    return subprocess.run(
        ["bash", SPEC.parent / "run_repro.sh"], env={**os.environ, **point},
        capture_output=True, text=True, check=False,
    ).stdout  # fmt: skip


def test_steps_shrink_to_the_minimum_with_a_bounded_number_of_trials(
    reduced: tuple[dict[str, Any], Path],
) -> None:
    report, run_dir = reduced
    assert report["schema"] == "aorta.reduce/1"
    assert report["status"] == "reduced"
    found = finals(report)
    assert found["NUM_STEPS"] < 250
    assert report["trials"] <= 70
    data = {"SHAPES_FILE": str(run_dir / "shrunken" / "shapes.txt")}
    at = {"BATCH_SIZE": str(found["BATCH_SIZE"]), **data}
    assert "NaN detected" in _run({"NUM_STEPS": str(found["NUM_STEPS"]), **at})
    assert "NaN detected" not in _run({"NUM_STEPS": str(found["NUM_STEPS"] - 1), **at})
    assert report["confirmed"]["reproduced"] == report["confirmed"]["of"] > 0


def test_the_directory_is_as_documented(reduced: tuple[dict[str, Any], Path]) -> None:
    _, run_dir = reduced
    present = {str(p.relative_to(run_dir)) for p in run_dir.rglob("*") if p.is_file()}
    shipped = present - {".aorta"}  # where the private state lies
    assert shipped == {
        "spec.yaml", "reduction_trace.jsonl", "SHIP.md", "result.json",
        "logs/stdout.log", "logs/stderr.log",
        "shrunken/run_repro.sh", "shrunken/aorta.yaml", "shrunken/env.json",
        "shrunken/recipe.resolved.yaml", "shrunken/shapes.txt",
        "shrunken/workload/run_repro.sh", "shrunken/workload/train.py",
    }  # fmt: skip
    assert (run_dir / "spec.yaml").read_bytes() == SPEC.read_bytes()
    assert "NaN detected at step" in (run_dir / "logs" / "stdout.log").read_text()


def test_the_script_fails_by_itself_from_anywhere(
    reduced: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    _, run_dir = reduced
    moved = tmp_path / "somewhere else"
    shutil.copytree(run_dir / "shrunken", moved)
    done = subprocess.run(
        ["bash", moved / "run_repro.sh"], cwd="/", capture_output=True, text=True, check=False
    )
    assert "NaN detected at step" in done.stdout
    assert done.returncode == 1


def test_the_recipe_runs_where_it_was_moved_to(
    reduced: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    _, run_dir = reduced
    moved = tmp_path / "moved"
    shutil.copytree(run_dir / "shrunken", moved)
    with_trials(moved / "recipe.resolved.yaml", 1)
    done = aorta(
        "triage", "run", "--recipe", "moved/recipe.resolved.yaml", "--output-dir", "t", "--json", "-q",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    matrix = done.json()
    assert matrix["ticket"] == "MY-TICKET"
    assert matrix["cells"][0]["name"] == "baseline"
    assert len(matrix["cells"]) > 1
    assert {cell["failure_rate"] for cell in matrix["cells"]} == {1.0}


def test_the_final_spec_reduces_again_and_finds_nothing_more(
    reduced: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    report, run_dir = reduced
    shutil.copytree(run_dir / "shrunken", tmp_path / "again")
    done = aorta(
        "reduce", "--spec", "again/aorta.yaml", "--output", "out", "--json", "-q", cwd=tmp_path
    )
    assert done.exit_code == 3
    again = done.json()
    assert again["status"] == "not_reduced"
    assert finals(again) == finals(report)


def test_env_json_is_what_env_probe_says_of_the_shrunken_point(
    reduced: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    report, run_dir = reduced
    shrunken = {name: str(value) for name, value in finals(report).items()}
    done = aorta("env", "probe", "-o", "env.json", cwd=tmp_path, env=shrunken)
    assert done.exit_code == 0

    def without_time(path: Path) -> list[str]:
        return [line for line in path.read_text().splitlines() if CAPTURED not in line]

    assert without_time(run_dir / "shrunken" / "env.json") == without_time(tmp_path / "env.json")


def test_the_trace_holds_every_candidate_with_its_evidence(
    reduced: tuple[dict[str, Any], Path],
) -> None:
    report, run_dir = reduced
    lines = trace_of(run_dir)
    assert [line["candidate"] for line in lines] == list(range(1, len(lines) + 1))
    assert sum(line["purpose"] == "probe" for line in lines) == report["candidates"]
    assert {line["accepted"] for line in lines} == {True, False}
    for line in lines:
        assert len(line["outcomes"]) == len(line["durations_sec"]) == len(line["trials"])
        assert len(line["env_fingerprint"]) == 16
        assert line["rate"]["of"] >= line["rate"]["reproduced"]
    in_trace = sum(len(line["trials"]) for line in lines)
    assert report["trials"] >= in_trace > 0


def test_a_finished_run_resumed_runs_nothing_and_says_so(
    reduced: tuple[dict[str, Any], Path],
) -> None:
    report, run_dir = reduced
    done = aorta("reduce", "--resume", run_dir)
    assert done.exit_code == 0
    assert "nothing was run" in done.stdout
    assert f"NUM_STEPS    5000     {finals(report)['NUM_STEPS']}" in done.stdout
    assert "next       aorta triage run --recipe" in done.stdout


def test_the_directory_bundles_as_it_is_and_fails_where_it_is_unpacked(
    reduced: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    _, run_dir = reduced
    packed = aorta("bundle", run_dir, "--output", tmp_path / "ship", "--json")
    assert packed.exit_code == 0, packed.stderr
    aorta("bundle", "unpack", packed.json()["path"], tmp_path / "there")
    (script,) = (tmp_path / "there").glob("*/shrunken/run_repro.sh")
    done = subprocess.run(["bash", script], capture_output=True, text=True, check=False)
    assert "NaN detected at step" in done.stdout


def test_a_registered_workload_needs_no_spec_and_its_reproducer_an_aorta(tmp_path: Path) -> None:
    done = aorta(
        "reduce", "--workload", "half_nan", "--output", "out", "--json", "-q", cwd=tmp_path
    )
    assert done.exit_code == 0, done.stderr
    report = done.json()
    axis = next(axis for axis in report["axes"] if axis["name"] == "SHAPES_FILE")
    assert (axis["initial"], axis["final"]) == (8, 1)
    script = tmp_path / report["run_dir"] / "shrunken" / "run_repro.sh"
    ran = subprocess.run(
        ["bash", script], env=environ({"PYTHON": sys.executable}),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 1
    assert "NaN detected" in ran.stderr
    assert json.loads((tmp_path / report["run_dir"] / "result.json").read_text()) == {**report}
    ship = (tmp_path / report["run_dir"] / "SHIP.md").read_text()
    assert "it needs a Python with aorta and the workload 'half_nan'" in ship
    without = subprocess.run(
        ["bash", script], env={**os.environ, "PYTHON": "/bin/false"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert without.returncode == 127  # not taken for the failure
    assert "it needs aorta" in without.stderr
