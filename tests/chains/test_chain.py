"""The verbs chain: what one writes, the next takes as it is."""

from pathlib import Path

import pytest

from support.aorta_cli import Finished, aorta
from support.reductions import numeric, reduce_spec, write_spec

TRAIN = """\
import os

shapes = open(os.environ.get("SHAPES_FILE", "shapes.txt")).read().split()
if "wide" in shapes and int(os.environ.get("NUM_STEPS", "500")) >= 137:
    print("NaN detected at step 137")
"""


@pytest.fixture(scope="module")
def reduced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real reduction, with code and data of its own, that can be taken away."""
    place = tmp_path_factory.mktemp("site")
    spec = write_spec(
        place / "work", "",
        [numeric("NUM_STEPS", 500, 50), {"name": "SHAPES_FILE", "kind": "file_subset", "initial": "shapes.txt"}],
        workload={"command": "python3 train.py", "cwd": "./"},
        oracle={"kind": "regex", "pattern": "(?m)NaN detected at step", "stream": "stdout"},
    )  # fmt: skip
    (place / "work/train.py").write_text(TRAIN)
    (place / "work/shapes.txt").write_text("narrow\nwide\ndeep\n")
    done = aorta("reduce", "--spec", spec, "--output", place / "reduce/GPU-7", "--json", "-q")
    assert done.exit_code == 0, done.stderr
    assert [axis["final"] for axis in done.json()["axes"]] == [137, 1]
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


def test_a_run_directory_becomes_a_page(reduced: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    ok(aorta("report", reduced, "-o", page))
    assert "NUM_STEPS" in page.read_text()


# It loses another feeder each time; where there is no licence it fails too, and also with 1.
FEEDS = """\
[ -n "$NO_LICENCE" ] && { echo "there is no licence for this machine" >&2; exit 1; }
[ "${ROWS:-40}" -lt 7 ] && exit 0
echo "lost contact with feeder $(date +%N | tr 0-9 a-j) while sending" >&2
exit 1
"""


def test_what_was_learned_of_a_failure_is_known_where_its_recipe_is_run(tmp_path: Path) -> None:
    work = tmp_path / "work"
    spec = write_spec(
        work, FEEDS, [numeric("ROWS", 40, 1)], oracle={"kind": "exit_code"}, budget={}
    )
    result = ok(reduce_spec(spec)).json()
    assert [axis["final"] for axis in result["axes"]] == [7]
    assert result["failure"]["words"] == ["lost contact with feeder <*> while sending"]
    bundle = ok(aorta("bundle", result["run_dir"], "--output", tmp_path / "ship", "--json")).json()
    ok(aorta("bundle", "unpack", bundle["path"], tmp_path / "elsewhere"))
    (recipe,) = (tmp_path / "elsewhere").rglob("recipe.resolved.yaml")

    def baseline(**env: str) -> tuple[int, int]:
        command = ("triage", "run", "--recipe", recipe, "--json", "-q")
        cells = ok(aorta(*command, cwd=tmp_path, env=env)).json()["cells"]
        (cell,) = [cell for cell in cells if cell["name"] == "baseline"]
        return cell["failed_count"], cell["other_count"]

    failed, other = baseline()
    assert failed > 0
    assert other == 0
    failed, other = baseline(NO_LICENCE="1")
    assert failed == 0
    assert other > 0
