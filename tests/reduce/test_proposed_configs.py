"""Numbers of configurations are set in a copy of the file that says otherwise the same."""

import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aorta.reduce.config_files import sizes_in
from aorta.reduce.proposals import propose_files

READERS: dict[str, Callable[[str], Any]] = {
    "c.json": json.loads, "c.yaml": yaml.safe_load, "c.toml": tomllib.loads,
}  # fmt: skip


def axes_of(path: Path) -> dict[str, Mapping[str, Any]]:
    return {str(axis["name"]): axis for axis in propose_files([path.name], path.parent, [], None)}


def written(directory: Path, name: str, text: str, values: Mapping[str, int]) -> Any:
    """What a program reads from the configuration where those settings have these values."""
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(text)
    said = {axis["key"]: values[str(axis["name"])] for axis in axes_of(directory / name).values()}
    for setting in reversed(sizes_in(directory / name) or []):
        text = setting.replaced(text, str(said[setting.key]))
    return READERS[name](text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.yaml", "net:  # of ours\n  depth: 8  # layers\n  lr: 0.5\nseed: 7\nname: '12'\n"),
        ("c.json", '{"net": {"depth": 8, "lr": 0.5}, "seed": 7, "name": "12"}'),
        (
            "c.json",
            '{\n\t"net": {\n\t\t"depth": 8, "lr": 0.5},\n\t"seed": 7, "name": "\\"n\\": 4"}',
        ),
        ("c.toml", 'seed = 7\nname = "12"\n\n[net]\nlr = 0.5\ndepth = 8  # layers\n'),
    ],
)
def test_a_number_is_named_by_its_keys_and_all_else_stays(
    tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    axes = axes_of(tmp_path / name)
    assert {n: (a["key"], a["initial"]) for n, a in axes.items()} == {
        "CONFIG_DEPTH": ("net.depth", 8),
    }
    before = READERS[name](text)
    after = {**before, "net": {**before["net"], "depth": 3}}
    assert written(tmp_path, name, text, {"CONFIG_DEPTH": 3}) == after


def test_two_numbers_of_one_name_are_told_apart_by_what_they_stand_below(tmp_path: Path) -> None:
    text = '{"a": {"dim": 5}, "b": {"dim": 6}}'
    (tmp_path / "c.json").write_text(text)
    assert [a["key"] for a in axes_of(tmp_path / "c.json").values()] == ["a.dim", "b.dim"]
    values = {"CONFIG_DIM": 2, "CONFIG_DIM_2": 3}
    assert written(tmp_path, "c.json", text, values) == {"a": {"dim": 2}, "b": {"dim": 3}}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.json", '{"n": 20,\n "rows": [{"len": 4}]}'),
        ("c.yaml", "n: 20\nrows:\n" + "".join(f"- {n}\n" for n in range(50))),
    ],
)
def test_rows_of_data_are_no_configuration(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    (axis,) = axes_of(tmp_path / name).values()
    assert (axis["kind"], axis["initial"]) == ("file_subset", name)


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
        axes = axes_of(directory / name)
        values = {key: axis["initial"] for key, axis in axes.items()}
        assert written(directory, name, text, values) == document


def test_a_configuration_put_together_from_many_files_is_no_folder_of_data(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    names = [f"conf/{name}.yaml" for name in ("model", "data", "optimizer", "trainer")]
    for name in names:
        (tmp_path / name).write_text("layers: 2\nsteps: 9\n")
    found = propose_files(names, tmp_path, [], None)
    assert {str(axis["kind"]) for axis in found} == {"env"}
    assert list(dict.fromkeys(axis["file"] for axis in found)) == sorted(names)
