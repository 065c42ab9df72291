"""The one reader of files that users write: what it refuses, where it says the fault is, and what
survives a round trip.
"""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta.core.documents import dump_yaml
from aorta.core.errors import SpecError
from aorta.registry.documents import MAX_BYTES, load_document


def document(directory: Path, text: str | bytes, name: str = "spec.yaml") -> Path:
    path = directory / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1e-3", {"a": 0.001}),
        ("a: 12:30:45", {"a": "12:30:45"}),
        ("a: 2026-01-31", {"a": "2026-01-31"}),
        ("on: off", {"on": "off"}),
        ("a: no", {"a": "no"}),
        ("a: 0123", {"a": 123}),
        ("a: 0o17", {"a": 15}),
        ("a: 0x1F", {"a": 31}),
        ("a: 1_000", {"a": "1_000"}),
        ("a: true\nb: ~\nc:", {"a": True, "b": None, "c": None}),
        ("a: .5\nb: -.inf", {"a": 0.5, "b": float("-inf")}),
        ("a: &x [1]\nb: *x", {"a": [1], "b": [1]}),
        ("\ufeffa: 1", {"a": 1}),
        ("'<<': 1", {"<<": 1}),
        ("", None),
    ],
)
def test_yaml_is_read_by_the_rules_of_version_1_2(
    tmp_path: Path, text: str, expected: object
) -> None:
    assert load_document(document(tmp_path, text)) == expected


HOSTILE_YAML = {
    "doubled key": ("a: 1\nb: 2\na: 3", ":3:1", "'a' stands twice"),
    "doubled key inside": ("a:\n  b: 1\n  b: 2", ":3:3", "'b' stands twice"),
    "open list": ("a: [1,\n", ":2:1", "YAML"),
    "tab as indentation": ("a:\n\tb: 1", ":2:1", "YAML"),
    "second document": ("a: 1\n---\nb: 2", ":2:1", "another document"),
    "python object": ("a: !!python/object/apply:os.system ['true']", ":1:4", "constructor"),
    "date by tag": ("a: !!timestamp 2026-01-31", ":1:4", "constructor"),
    "boolean by tag": ("a: !!bool hunter2", "", "not of its type"),
    "merge key": ("a: &x {b: 1}\nc:\n  <<: *x", ":3:3", "merge keys"),
    "mapping as key": ("{{a: 1}: 2}", ":1:2", "expected text"),
    "number as key": ("a:\n  1: x", ": a", "key 1 is not text"),
    "null as key": ("~: x", "", "key None is not text"),
    "endless number": ("a: " + "9" * 5000, "", "not of its type"),
    "control character": ("a: 1\nb: \x01", "", "#x0001"),
    "unknown alias": ("a: *nowhere", ":1:4", "alias"),
    "alias of itself": ("a: &a [*a]", "", "nested deeper"),
    "deep nesting": ("[" * 5000, "", "nested deeper"),
    "exponential aliases": (
        "a: &a [1,1,1,1,1,1,1,1,1,1]\n"
        + "\n".join(
            f"{c}: &{c} [{','.join(['*' + p] * 10)}]"
            for p, c in zip("abcdef", "bcdefg", strict=True)
        ),
        "",
        "values",
    ),
}


@pytest.mark.parametrize("case", HOSTILE_YAML)
def test_hostile_yaml_is_refused_in_one_line_that_says_where(tmp_path: Path, case: str) -> None:
    text, place, said = HOSTILE_YAML[case]
    path = document(tmp_path, text)
    with pytest.raises(SpecError) as refused:
        load_document(path)
    assert str(refused.value).startswith(f"{path}{place}: ")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "hunter2" not in str(refused.value)


HOSTILE_JSON = {
    "doubled key": ('{"a": {"b": 1, "b": 2}}', "", "'b' stands twice"),
    "missing comma": ('{"a": 1\n"b": 2}', ":2:1", "JSON"),
    "comment": ("// no\n{}", ":1:1", "JSON"),
    "nothing": ("", ":1:1", "JSON"),
    "two values": ("{} {}", ":1:4", "JSON"),
    "not a number": ('{"a": NaN}', "", "NaN"),
    "endless number": ("9" * 5000, "", "JSON"),
    "half a surrogate pair": ('{"a": ["\\ud800"]}', ": a[0]", "surrogate"),
    "half a surrogate pair as key": ('{"a": {"\\udfff": 1}}', ": a", "surrogate"),
    "deep nesting": ("[" * 100_000, "", "nested deeper"),
}


@pytest.mark.parametrize("case", HOSTILE_JSON)
def test_hostile_json_is_refused_in_one_line_that_says_where(tmp_path: Path, case: str) -> None:
    text, place, said = HOSTILE_JSON[case]
    path = document(tmp_path, text, "spec.json")
    with pytest.raises(SpecError) as refused:
        load_document(path)
    assert str(refused.value).startswith(f"{path}{place}: ")
    assert said in str(refused.value)


def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    fifo = tmp_path / "pipe.yaml"
    os.mkfifo(fifo)
    (tmp_path / "directory.yaml").mkdir()
    loop = tmp_path / "loop.yaml"
    loop.symlink_to(loop)
    for path, said in {
        tmp_path / "absent.yaml": "no such file",
        tmp_path / "directory.yaml": "directory",
        fifo: "not a regular file",
        loop: "cannot be read",
        document(tmp_path, b"a: \xff", "latin.yaml"): "not UTF-8",
        document(tmp_path, "a: 1", "spec.toml"): ".yaml, .yml or .json",
        document(tmp_path, "a" * (MAX_BYTES + 1), "big.yaml"): "larger than",
    }.items():
        with pytest.raises(SpecError, match=said) as refused:
            load_document(path)
        assert str(refused.value).startswith(str(path))


def test_the_format_can_be_said_where_the_name_does_not_say_it(tmp_path: Path) -> None:
    assert load_document(document(tmp_path, '{"a": 1}', "snapshot"), "json") == {"a": 1}


plain_text = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12) | st.sampled_from(
    [
        "1e-3",
        "on",
        "no",
        "0x1f",
        "0o7",
        "2026-01-31",
        "12:30",
        "null",
        "~",
        "",
        "<<",
        "=",
        "1_0",
        ".inf",
    ]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | plain_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(plain_text, inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_what_is_written_as_yaml_is_read_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, value: object
) -> None:
    directory = tmp_path_factory.getbasetemp()
    path = directory / "round-trip.yaml"
    path.write_text(dump_yaml(value), encoding="utf-8")
    assert load_document(path) == value
