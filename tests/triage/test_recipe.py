"""A recipe is read strictly: what is wrong in it is said in one line that names the place."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from aorta.core.documents import dump_yaml
from aorta.core.errors import RegistryError, SpecError
from aorta.triage.recipe import (
    Cell,
    Confound,
    InlineImage,
    RecipeFile,
    load_recipe,
    resolved_yaml,
)
from support.aorta_cli import ROOT
from support.triage_runs import BASELINE, FIXED, cell, document, loaded, written


def refused(folder: Path, content: dict[str, Any]) -> str:
    with pytest.raises((SpecError, RegistryError)) as caught:
        load_recipe(written(folder, content))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_yaml_and_json_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(dump_yaml(document()))
    (tmp_path / "r.other").write_text(dump_yaml(document()))
    as_json = load_recipe(written(tmp_path, document()))
    assert load_recipe(tmp_path / "r.yaml").content == as_json.content
    assert load_recipe(tmp_path / "r.other").content == as_json.content


def test_the_recipe_knows_its_file_and_its_digest(tmp_path: Path) -> None:
    path = written(tmp_path, document())
    recipe = load_recipe(path)
    assert recipe.source == path
    assert recipe.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("version", [2, 0, "1", True, 1.0, None])
def test_another_schema_version_is_refused(tmp_path: Path, version: object) -> None:
    assert "recipe.json: schema_version: " in refused(tmp_path, document(schema_version=version))


@pytest.mark.parametrize("key", ["schema_version", "workload", "trials", "cells"])
def test_a_missing_key_is_named(tmp_path: Path, key: str) -> None:
    content = document()
    del content[key]
    assert f"{key}: " in refused(tmp_path, content)


def test_a_workload_needs_steps_and_a_command_does_not(tmp_path: Path) -> None:
    content = document(workload="half_nan", workload_config={})
    assert "the key steps is required" in refused(tmp_path, content)
    assert load_recipe(written(tmp_path, document())).content.steps is None


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"trails": 3}, "recipe.json: trails: unknown key 'trails'"),
        ({"trials": 0}, "recipe.json: trials: found 0"),
        ({"trials": True}, "recipe.json: trials: found True"),
        ({"steps": -1}, "recipe.json: steps: found -1"),
        ({"ticket": ""}, "recipe.json: ticket: "),
        ({"workload": ""}, "recipe.json: workload: "),
        ({"cells": []}, "recipe.json: cells: Value should have at least 1 item"),
        ({"confound": {"treshold": 2}}, "recipe.json: confound.treshold: unknown key"),
        ({"confound": {"baseline_cell": "nobody"}}, "confound.baseline_cell names no cell"),
        ({"workload_config": {"steps": 3}}, "recipe.json: workload_config: the key 'steps'"),
        ({"workload_config": {"_aorta_x": 3}}, "recipe.json: workload_config: the key '_aorta_x'"),
        ({"extra_env": {"1A": "x"}}, "recipe.json: extra_env: '1A' is not a variable name"),
        ({"extra_env": {"A": 1}}, "recipe.json: extra_env.A: "),
        ({"timeout": "soon"}, "is not a duration"),
        ({"warm": "yes"}, "recipe.json: warm: "),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    tmp_path: Path, keys: dict[str, Any], words: str
) -> None:
    assert words in refused(tmp_path, document(**keys))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (cell("x", mitigation=["none"]), "cells[1].mitigation: unknown key"),
        ({"name": "x", "environment": "local"}, "cells[1].mitigations: this key is required"),
        (
            {"name": "x", "mitigations": [], "environment": "local"},
            "cells[1].mitigations: Value should have at least 1 item",
        ),
        (cell("x", "tf32_of"), "cells[1]: cell 'x': unknown mitigation 'tf32_of'; did you mean"),
        (cell("x", environment="nowhere"), "cells[1]: cell 'x': unknown environment 'nowhere'"),
        (cell("x", environment={"docker": ""}), "cells[1].environment.docker: "),
        (
            cell("x", environment={"docker": "a", "gpus": "all"}),
            "cells[1].environment.gpus: unknown key 'gpus'",
        ),
        (cell("x", environment=3), "cells[1].environment: found a int, expected string"),
        (cell("x" * 201), "letters, digits, _ . and -, at most 200 of them"),
        (cell("x", environment={"podman": "a"}), "cells[1].environment"),
        (cell("x", trials=0), "cells[1].trials: found 0"),
        (cell("baseline-local"), "the name 'baseline-local' stands twice"),
    ],
)
def test_what_is_wrong_in_a_cell_is_said_with_its_place(
    tmp_path: Path, wrong: dict[str, Any], words: str
) -> None:
    assert words in refused(tmp_path, document(BASELINE, wrong))


@pytest.mark.parametrize("threshold", [0, -1, -0.5])
def test_a_threshold_that_flags_everything_is_refused(tmp_path: Path, threshold: float) -> None:
    message = refused(tmp_path, document(confound={"threshold": threshold}))
    assert "recipe.json: confound.threshold: " in message


@pytest.mark.parametrize(
    "name",
    [
        "../escape",
        "a/b",
        "..",
        ".",
        "matrix.md",
        "matrix.json",
        "-dash",
        "a b",
        "",
        ".hidden",
        "a\n",
    ],
)
def test_a_cell_name_that_is_no_harmless_directory_is_refused(tmp_path: Path, name: str) -> None:
    assert "cells[1].name: " in refused(tmp_path, document(BASELINE, cell(name)))


def test_an_ordinary_cell_name_is_accepted(tmp_path: Path) -> None:
    recipe = loaded(tmp_path, cell("PROJ_1.fix-cell"))
    assert recipe.content.cells[0].name == "PROJ_1.fix-cell"


def test_an_inline_image_is_named_by_its_digest() -> None:
    assert InlineImage(docker="rocm/pytorch:nightly").environment_name == "_inline_5ed7b51f"


def sidecar(folder: Path) -> Path:
    content = {
        "version": 1,
        "mitigations": {"one": {"A": "1", "B": "1"}, "two": {"A": "2"}, "same": {"A": "1"}},
        "environments": {"box": {"docker": "img:1"}},
    }
    return written(folder, content, "more.json")


def test_stacked_mitigations_that_disagree_are_refused_by_cell_and_variable(tmp_path: Path) -> None:
    path = written(tmp_path, document(BASELINE, cell("both", "one", "two")))
    with pytest.raises(SpecError) as caught:
        load_recipe(path, [sidecar(tmp_path)])
    for word in ("cell 'both'", "'one'", "'two'", " A ", "cells[1]"):
        assert word in str(caught.value)


def test_stacked_mitigations_that_agree_are_accepted(tmp_path: Path) -> None:
    path = written(tmp_path, document(BASELINE, cell("both", "one", "same")))
    assert load_recipe(path, [sidecar(tmp_path)]).content.cells[1].mitigations == ("one", "same")


def test_extra_env_over_a_mitigation_is_silent(tmp_path: Path) -> None:
    path = written(tmp_path, document(BASELINE, cell("over", "one", extra_env={"A": "9"})))
    assert load_recipe(path, [sidecar(tmp_path)]).content.cells[1].extra_env == {"A": "9"}


def test_a_sidecar_named_twice_is_taken_once_and_stays_with_the_recipe(tmp_path: Path) -> None:
    more = sidecar(tmp_path)
    path = written(tmp_path, document(BASELINE, cell("boxed", environment="box")))
    recipe = load_recipe(path, [more, tmp_path / "." / "more.json"])
    assert [p.resolve() for p in recipe.sidecars] == [more.resolve()]


def test_what_is_wrong_with_the_files_is_said_of_them_and_of_no_cell(tmp_path: Path) -> None:
    one, two = (written(tmp_path, SITE, f"{name}.json") for name in ("one", "two"))
    (tmp_path / "more").mkdir()
    again = written(tmp_path / "more", SITE, "one.json")
    path = written(tmp_path, document(BASELINE))
    for files, where, said in (
        ([one, two], "sidecar:two.json", "'mine' is defined twice, by sidecar:one.json and by"),
        ([one, again], str(again), "has the same file name as"),
    ):
        with pytest.raises(RegistryError, match=said) as refused:
            load_recipe(path, files)
        assert refused.value.where == where


SITE: dict[str, Any] = {"version": 1, "mitigations": {"mine": {"A": "1"}}}
EVERY_KEY: dict[str, Any] = {
    "ticket": "T/1",
    "steps": 7,
    "extra_env": {"A": "1", "B": "on"},
    "timeout": 90.5,
    "confound": {"threshold": 1.3, "baseline_cell": "baseline-local"},
}


def test_every_key_survives_the_resolved_recipe(tmp_path: Path) -> None:
    cells = [
        BASELINE,
        cell("img", environment={"docker": "a/b:1"}, trials=3, steps=2, extra_env={"C": "x, y"}),
        cell("conf", "tf32_off", "xnack", workload_config={"cwd": "/tmp"}),
    ]
    recipe = loaded(tmp_path, *cells, **EVERY_KEY)
    again_path = tmp_path / "again" / "recipe.resolved.yaml"
    again_path.parent.mkdir()
    again_path.write_text(resolved_yaml(recipe))
    again = load_recipe(again_path)
    config = {**recipe.content.workload_config, "cwd": str(tmp_path)}
    assert again.content == recipe.content.model_copy(update={"workload_config": config})
    assert again.content.cells[1].environment_name == recipe.content.cells[1].environment_name
    assert resolved_yaml(again) == resolved_yaml(recipe)


def test_the_resolved_recipe_holds_keys_of_a_recipe_alone(tmp_path: Path) -> None:
    text = resolved_yaml(loaded(tmp_path, BASELINE, FIXED))
    (tmp_path / "r.yaml").write_text(text)
    assert load_recipe(tmp_path / "r.yaml").content.cells[1].extra_env == {"FIXED": "1"}
    assert "trials: 6" in text
    assert text.count("trials") == 1, (
        "a cell's own number of trials stands there only if it has one"
    )


def test_secrets_in_a_recipe_are_not_echoed(tmp_path: Path) -> None:
    message = refused(tmp_path, document(extra_env={"TOKEN": ["hunter2"]}))
    assert "hunter2" not in message
    assert "extra_env.TOKEN" in message


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("a: [1\nb: }")
    with pytest.raises(SpecError, match="is not valid YAML"):
        load_recipe(path)
    with pytest.raises(SpecError, match="there is no such file"):
        load_recipe(tmp_path / "none.yaml")
    path.write_text(json.dumps([1]))
    with pytest.raises(SpecError, match="expected a mapping"):
        load_recipe(path)


def test_the_reference_names_every_key() -> None:
    reference = (ROOT / "examples/triage/README.md").read_text()
    for model in (RecipeFile, Cell, Confound):
        for key in model.model_fields:
            assert f"`{key}`" in reference or re.search(rf"[{{,\s]{key}[:,}}]", reference), key
    assert "keeps names as names" in reference
