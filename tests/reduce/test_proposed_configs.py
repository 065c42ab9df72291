"""Numbers and lists of configurations are set in a copy of the file that says otherwise the
same.
"""

import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aorta.reduce.config_files import settings_in
from aorta.reduce.proposals import propose_files

READERS: dict[str, Callable[[str], Any]] = {
    "c.json": json.loads, "c.yaml": yaml.safe_load, "c.toml": tomllib.loads,
}  # fmt: skip


def written(directory: Path, name: str, text: str, values: Mapping[str, str]) -> Any:
    """What a program reads from the configuration where those settings have these values."""
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(text)
    places = {
        (axis["line"], axis.get("key")): values[str(axis["name"])]
        for axis in axes_of(directory / name).values()
    }
    for setting in reversed(settings_in(directory / name)):
        value = places.get((setting.line, setting.key)) or places[setting.line, None]
        text = setting.replaced(text, value)
    return READERS[name](text)


def axes_of(path: Path) -> dict[str, Mapping[str, Any]]:
    return {str(axis["name"]): axis for axis in propose_files([path.name], path.parent, [], None)}


@pytest.mark.parametrize(
    ("name", "text", "items"),
    [
        ("c.yaml", "layers: [4, 8, 15]\n", "4, 8, 15"),
        ("c.yaml", "net:\n  layers:\n    - 4\n    - 8\n  other: x\n", "4, 8"),
        ("c.yaml", "layers:\n- a\n- 'b c'\nseed: 3\n", "a, 'b c'"),
        ("c.json", '{"a": 1,\n "layers": [4, 8],\n "b": 2}', "4, 8"),
        ("c.json", '{\n  "layers": [\n    "x",\n    "y"\n  ],\n  "n2": 50\n}\n', '"x", "y"'),
        ("c.toml", "layers = [\n  4, 8,\n  15,\n]\nother = 1\n", "4, 8, 15"),
    ],
)
def test_a_list_keeps_what_it_is_told_to_keep(
    tmp_path: Path, name: str, text: str, items: str
) -> None:
    (tmp_path / name).write_text(text)
    axes = axes_of(tmp_path / name)
    assert axes["CONFIG_LAYERS"]["initial"] == items
    everything = {variable: str(axis["initial"]) for variable, axis in axes.items()}
    assert written(tmp_path, name, text, everything) == READERS[name](text)
    found = written(tmp_path, name, text, {**everything, "CONFIG_LAYERS": items.split(", ")[1]})
    found = found.get("net", found)
    assert found["layers"] == READERS["c.yaml"](f"[{items}]")[1:2]


@pytest.mark.parametrize(
    "text",
    [
        "layers: [[1, 2], [3, 4]]\n",
        "layers:\n  - a: 1\n  - b: 2\n",
        "layers:\n  - 1\n  - 2\n  - b: 2\n",
        "devices: [0, 1]\n",
        "layers: [one/two, three]\n",
        "layers: [4]\n",
    ],
)
def test_what_is_no_plain_list_is_left_alone(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    assert axes_of(tmp_path / "c.yaml") == {}


def test_values_that_share_a_line_of_json_are_told_apart_by_their_keys(tmp_path: Path) -> None:
    text = '{"net": {"width": 64, "depth": 8, "lr": 0.5}, "layers": ["a", "b"], "of": "\\"n\\": 4"}'
    (tmp_path / "c.json").write_text(text)
    axes = axes_of(tmp_path / "c.json")
    assert {name: axis["key"] for name, axis in axes.items()} == {
        "CONFIG_WIDTH": "width", "CONFIG_DEPTH": "depth", "CONFIG_LAYERS": "layers",
    }  # fmt: skip
    values = {"CONFIG_WIDTH": "7", "CONFIG_DEPTH": "1", "CONFIG_LAYERS": '"b"'}
    assert written(tmp_path, "c.json", text, values) == {
        **json.loads(text), "net": {"width": 7, "depth": 1, "lr": 0.5}, "layers": ["b"],
    }  # fmt: skip


@pytest.mark.parametrize(
    "text", ['{"n": 20, "rows": [{"len": 4}]}', '{"a": {"dim": 5}, "b": {"dim": 6}}']
)
def test_rows_of_data_and_keys_that_stand_twice_in_a_line_are_left_alone(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "c.json").write_text(text)
    assert axes_of(tmp_path / "c.json") == {}


scalars = st.one_of(st.integers(0, 999), st.sampled_from(["a", "b c", "x-1", "1.5e-3", ""]))
documents = st.dictionaries(
    st.sampled_from(["layers", "n2", "lr", "a.b", "names", "seed", "steps"]),
    st.one_of(scalars, st.lists(scalars, max_size=4), st.lists(st.lists(scalars, max_size=2))),
    min_size=1,
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(document=documents, indent=st.sampled_from([None, 2]), flow=st.sampled_from([None, False]))
def test_with_every_initial_value_the_configuration_says_what_it_said(
    document: dict[str, Any], indent: int | None, flow: bool | None, tmp_path_factory: Any
) -> None:
    directory = tmp_path_factory.getbasetemp() / "configs"
    for name, text in {
        "c.json": json.dumps(document, indent=indent),
        "c.yaml": yaml.safe_dump(document, default_flow_style=flow),
    }.items():
        directory.mkdir(exist_ok=True)
        (directory / name).write_text(text)
        values = {key: str(axis["initial"]) for key, axis in axes_of(directory / name).items()}
        assert written(directory, name, text, values) == document


def test_a_configuration_put_together_from_many_files_is_no_folder_of_data(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    names = [f"conf/{name}.yaml" for name in ("model", "data", "optimizer", "trainer")]
    for name in names:
        (tmp_path / name).write_text("layers: [1, 2]\nsteps: 9\n")
    found = propose_files(names, tmp_path, [], None)
    assert {str(axis["kind"]) for axis in found} == {"env", "list"}
    assert list(dict.fromkeys(axis["file"] for axis in found)) == sorted(names)
