"""Flag mode and recipe mode reach the same recipe, and never both at once."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from aorta.core.errors import AortaError
from aorta.triage.request import TriageRequest, recipe_of
from support.aorta_cli import aorta
from support.triage_runs import BASELINE, FIXED, document, written

WORKLOAD = [
    "--workload", "half_nan", "--mitigation-axis", "none", "--environment-axis", "local",
    "--trials", "2", "--steps", "5",
]  # fmt: skip


def flags(
    mitigations: Sequence[str] = ("none",),
    environments: Sequence[str] = ("local",),
    sidecars: Sequence[Path] = (),
    trials: int = 2,
    steps: int | None = 5,
    workload: str = "half_nan",
    ticket: str | None = None,
    threshold: float | None = None,
) -> TriageRequest:
    return TriageRequest(
        workload=workload,
        mitigation_axis=tuple(mitigations),
        environment_axis=tuple(environments),
        trials=trials,
        steps=steps,
        ticket=ticket,
        confound_threshold=threshold,
        mitigations_files=tuple(sidecars),
    )


def test_the_cells_are_the_product_of_the_axes() -> None:
    recipe = recipe_of(flags(["none", "xnack"], ["local", "image:a/b:1"]))
    names = [cell.name for cell in recipe.content.cells]
    inline = recipe.content.cells[1].environment_name
    assert names == ["none-local", f"none-{inline}", "xnack-local", f"xnack-{inline}"]
    assert recipe.content.confound.threshold == 1.15


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        (flags(trials=0), "trials"),
        (flags(trials=-1), "trials"),
        (flags(steps=0), "steps"),
        (flags(steps=-5), "steps"),
        (flags(workload=""), "workload"),
        (flags(ticket=""), "ticket"),
        (flags(threshold=0.0), "confound.threshold"),
        (flags(threshold=-1.0), "confound.threshold"),
        (flags(["tf32_of"]), "cells[0]"),
        (flags(environments=["image:"]), "image:"),
    ],
)
def test_flags_are_held_to_the_rules_of_a_recipe(wrong: TriageRequest, place: str) -> None:
    with pytest.raises(AortaError) as caught:
        recipe_of(wrong)
    assert place in str(caught.value)


def boxes(folder: Path, *names: str) -> Path:
    content = {"version": 1, "environments": {name: {"docker": "img:1"} for name in names}}
    return written(folder, content, "boxes.json")


def test_an_environment_whose_name_is_no_path_is_usable_in_both_modes(tmp_path: Path) -> None:
    sidecar = boxes(tmp_path, "rocm:6/a")
    recipe = recipe_of(flags(environments=["rocm:6/a"], sidecars=[sidecar]))
    cell = recipe.content.cells[0]
    assert (cell.name, cell.environment) == ("none-rocm_6_a", "rocm:6/a")


def test_flag_cells_that_would_share_a_directory_are_refused(tmp_path: Path) -> None:
    sidecar = boxes(tmp_path, "a/b", "a:b")
    with pytest.raises(AortaError, match="the name 'none-a_b' stands twice"):
        recipe_of(flags(environments=["a/b", "a:b"], sidecars=[sidecar]))


def test_what_a_recipe_says_cannot_be_said_beside_it(tmp_path: Path) -> None:
    given = {
        "--workload": "half_nan",
        "--mitigation-axis": "none",
        "--environment-axis": "local",
        "--trials": "2",
        "--steps": "3",
        "--ticket": "T",
        "--baseline-cell": "x",
        "--confound-threshold": "1.15",
    }
    path = written(tmp_path, document())
    words = [word for pair in given.items() for word in pair]
    done = aorta("triage", "run", "--recipe", path, *words, cwd=tmp_path)
    assert done.exit_code == 2
    assert f"{', '.join(given)} cannot stand beside --recipe" in done.stderr
    # The default of the threshold, said aloud, is still said.
    one = aorta("triage", "run", "--recipe", path, *words[-2:], cwd=tmp_path)
    assert "--confound-threshold cannot stand beside --recipe" in one.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["recipe.json"]


@pytest.mark.parametrize("output", ["--output-dir", "--output"])
def test_what_only_says_how_to_run_may_stand_beside_a_recipe(tmp_path: Path, output: str) -> None:
    path = written(tmp_path, document())
    more = written(tmp_path, {"version": 1}, "more.json")
    done = aorta(
        "triage", "run", "--recipe", path, "--mode", "matrix", output, tmp_path / "out",
        "--dry-run", "--mitigations-file", more, cwd=tmp_path,
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert f"results would go below {tmp_path / 'out'}" in done.stdout
    assert not (tmp_path / "out").exists()


def test_both_modes_reach_the_same_run(tmp_path: Path) -> None:
    by_flags = aorta(
        "triage", "run", "--mitigation-axis", "none", "--environment-axis", "local", "--trials", "2",
        "--json", "-q", "--", "false", cwd=tmp_path,
    ).json()  # fmt: skip
    resolved = tmp_path / by_flags["run_dir"] / "recipe.resolved.yaml"
    by_file = aorta("triage", "run", "--recipe", resolved, "--json", "-q", cwd=tmp_path).json()
    fixed = ("name", "mitigations", "environment", "trials", "failed_count", "call", "confound")
    assert [by_flags["cells"][0][key] for key in fixed] == [
        by_file["cells"][0][key] for key in fixed
    ]
    assert by_file["recipe_source"]["path"] == str(resolved)
    assert by_flags["recipe_source"] == {"path": None, "sha256": None}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give --recipe FILE, or either --workload NAME or a command"),
        ([*WORKLOAD, "--", "true"], "either --workload NAME or a command"),
        (["--workload", "half_nan"], "--steps, --mitigation-axis, --environment-axis, --trials"),
        ([*WORKLOAD, "--trials", "0"], "--trials"),
        ([*WORKLOAD, "--ticket", ""], "ticket"),
        ([*WORKLOAD, "--confound-threshold", "0"], "confound.threshold"),
        ([*WORKLOAD, "--baseline-cell", "nobody"], "confound.baseline_cell names no cell"),
        ([*WORKLOAD, "--mitigation-axis", " , "], "--mitigation-axis: found no name"),
        ([*WORKLOAD, "--workload", "half_nn"], "unknown workload 'half_nn'"),
        ([*WORKLOAD, "--mitigation-axis", "xnak"], "unknown mitigation 'xnak'"),
        ([*WORKLOAD, "--oracle", "exit_code"], "describe a command's failure"),
        (["--recipe", "none.yaml"], "none.yaml: there is no such file"),
        (["--mode", "sweep"], "'sweep' is not one of"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_2(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    done = aorta("triage", "run", *arguments, cwd=tmp_path)
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_command_behind_a_recipe_for_a_workload_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, document(workload="half_nan", steps=3, workload_config={}))
    done = aorta("triage", "run", "--recipe", path, "--", "true", cwd=tmp_path)
    assert done.exit_code == 2
    assert "recipe.json: workload: found 'half_nan' beside a command" in done.stderr


def test_a_command_is_wrapped_byte_for_byte(tmp_path: Path) -> None:
    content = document(BASELINE, FIXED, trials=1)
    del content["workload"], content["workload_config"]
    odd = ["a b", "", "--json", "$HOME", "'\"", "\n", "é", "*"]
    script = "import json, sys; print(json.dumps(sys.argv[1:]))"
    done = aorta(
        "triage", "run", "--recipe", written(tmp_path, content), "--json", "-q",
        "--", "python3", "-c", script, *odd, cwd=tmp_path,
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    matrix = done.json()
    for entry in matrix["cells"]:
        record = json.loads((tmp_path / matrix["run_dir"] / entry["trial_paths"][0]).read_text())
        assert json.loads((tmp_path / record["process"]["stdout"]).read_text()) == odd


@pytest.mark.parametrize("noun", ["mitigations", "environments"])
def test_the_lists_say_who_defines_what(tmp_path: Path, noun: str) -> None:
    content = {"version": 1, "mitigations": {"mine": {"A": "s"}}, "environments": {"box": {}}}
    sidecar = written(tmp_path, content, "more.json")
    done = aorta("triage", f"list-{noun}", "--mitigations-file", sidecar)
    head, *rows = done.stdout.splitlines()
    assert head.split()[:2] == ["NAME", "SOURCE"]
    assert rows == sorted(rows)
    assert any("sidecar:more.json" in row for row in rows)
    assert any(row.split()[1] == "aorta" for row in rows)


@pytest.mark.parametrize("noun", ["mitigations", "environments"])
def test_a_bad_sidecar_is_one_line_in_the_lists_too(tmp_path: Path, noun: str) -> None:
    sidecar = written(tmp_path, {"version": 2}, "bad.json")
    done = aorta("triage", f"list-{noun}", "--mitigations-file", sidecar)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert "bad.json: version: found 2, expected 1" in done.stderr
