"""The verbs chain: what one writes, the next takes as it is."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from support.aorta_cli import ROOT, Finished, aorta

EXAMPLE = ROOT / "src/aorta/workloads/half_nan"


@pytest.fixture(scope="module")
def reduced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real reduction of the shipped example, from a copy of it that can be taken away."""
    place = tmp_path_factory.mktemp("site")
    shutil.copytree(EXAMPLE, place / "work", ignore=shutil.ignore_patterns("__pycache__"))
    spec = place / "work/aorta.yaml"
    document = yaml.safe_load(spec.read_text())
    # Its failure is a certain one: a chain is not about how often one must look.
    document["budget"] |= {"trials_per_candidate": 1, "k_of_n_to_count_as_reproducing": 1}
    spec.write_text(yaml.safe_dump(document))
    done = aorta("reduce", "--spec", spec, "--output", place / "reduce/GPU-7", "--json", "-q")
    assert done.exit_code == 0, done.stderr
    return Path(done.json()["run_dir"])


def ok(done: Finished) -> Finished:
    assert done.exit_code == 0, done.stderr
    return done


def test_a_reduction_ships_and_runs_elsewhere_without_the_original(
    reduced: Path, tmp_path: Path
) -> None:
    bundle = ok(aorta("bundle", reduced, "--output", tmp_path / "ship", "--json")).json()
    site = reduced.parents[2]
    hidden = site.rename(site.with_name("hidden"))
    try:
        ok(aorta("bundle", "verify", bundle["path"]))
        ok(aorta("bundle", "unpack", bundle["path"], tmp_path / "elsewhere"))
        (recipe,) = (tmp_path / "elsewhere").rglob("recipe.resolved.yaml")
        matrix = ok(aorta("triage", "run", "--recipe", recipe, "--json", "-q", cwd=tmp_path)).json()
    finally:
        hidden.rename(site)
    (baseline,) = [cell for cell in matrix["cells"] if cell["name"] == "baseline"]
    assert baseline["failure_rate"] == 1.0
    answers = {cell["name"]: cell["call"] for cell in matrix["cells"] if cell is not baseline}
    assert "omp_one_thread" in answers  # the printed command answers something by itself
    assert set(answers.values()) == {"no effect"}
    assert str(site) not in "".join(
        path.read_text(errors="replace")
        for path in (tmp_path / "elsewhere").rglob("*")
        if path.is_file()
    )


def test_the_reduced_spec_reduces_again_to_itself(reduced: Path, tmp_path: Path) -> None:
    again = aorta(
        "reduce", "--spec", reduced / "shrunken/aorta.yaml", "--output", tmp_path, "--json", "-q",
        timeout=300,
    )  # fmt: skip
    assert again.exit_code in {0, 3}, again.stderr
    first = {
        axis["name"]: axis["final"]
        for axis in json.loads((reduced / "result.json").read_text())["axes"]
    }
    assert {axis["name"]: axis["final"] for axis in again.json()["axes"]} == first


def test_every_run_directory_becomes_a_page_and_is_listed(reduced: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    ok(aorta("report", reduced, "-o", page))
    assert "NUM_STEPS" in page.read_text()
    listed = ok(aorta("runs", reduced.parents[1])).stdout
    assert reduced.name in listed
