"""What a document's keys mean: refused in words that name the place, what was found and what was
expected.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, Field, ValidationError

from aorta.core.documents import (
    StrictModel,
    dump_yaml,
    parse_document,
    validated,
    validated_arguments,
)
from aorta.core.errors import SpecError, UsageError


def _even(value: int) -> int:
    if value % 2:
        raise ValueError("an odd number")
    return value


Short = Annotated[str, Field(max_length=3)]


class Inner(StrictModel):
    n: int
    api_token: int = 0


class Outer(StrictModel):
    name: str
    parts: tuple[Inner, ...] = ()
    inner: Inner | None = None
    size: int | float | None = None
    place: Short | Inner | None = None
    words: str | list[Short] = ""
    path: Path | Inner | None = None
    pairs: dict[str, Annotated[int, AfterValidator(_even)] | Literal["all", "none"]] = Field(
        default_factory=dict
    )


def refusal(data: object, at: str = "") -> str:
    with pytest.raises(SpecError) as refused:
        validated(Outer, data, file="f.yaml", at=at)
    return str(refused.value)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([1], "f.yaml: found a list, expected a mapping of keys to values"),
        (None, "f.yaml: found nothing, expected a mapping of keys to values"),
        ("x", "f.yaml: found 'x', expected a mapping of keys to values"),
        ("y" * 58, f"f.yaml: found '{'y' * 58}', expected a mapping of keys to values"),
        ("y" * 59, f"f.yaml: found '{'y' * 56}..., expected a mapping of keys to values"),
        ({}, "f.yaml: name: this key is required and is missing"),
        ({"name": 3}, "f.yaml: name: found 3, expected string"),
        ({"name": {}}, "f.yaml: name: found a mapping, expected string"),
        (
            {"name": "a", "colour": 1},
            "f.yaml: colour: unknown key 'colour'; remove it, or check its spelling",
        ),
        ({"name": "a", "inner": {"n": "1"}}, "f.yaml: inner.n: found '1', expected integer"),
        ({"name": 3, "inner": {"n": "1"}}, "f.yaml: name: found 3, expected string (and 1 more)"),
        (
            {"name": "a", "inner": {"n": 1, "api_token": "hunter2"}},
            "f.yaml: inner.api_token: found a str, expected integer",
        ),
        (
            {"name": "a", "parts": ({"n": 1}, {"n": None})},
            "f.yaml: parts[1].n: found nothing, expected integer",
        ),
    ],
)
def test_what_does_not_fit_is_one_line_that_names_its_place(data: object, said: str) -> None:
    assert refusal(data) == said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"size": "x"}, "size: found 'x', expected integer or number"),
        ({"size": "x", "words": 3}, "size: found 'x', expected integer or number (and 1 more)"),
        ({"place": 3}, "place: found 3, expected string or a mapping"),
        ({"place": {"n": "x"}}, "place.n: found 'x', expected integer"),
        ({"place": {"n": 1, "m": 2}}, "place.m: unknown key 'm'; remove it, or check its spelling"),
        ({"place": {}}, "place.n: this key is required and is missing"),
        ({"words": ["a", 3]}, "words[1]: found 3, expected string"),
        ({"path": 3}, "path: found 3, expected a path or a mapping"),
        ({"pairs": {"int": "x"}}, "pairs.int: found 'x', expected integer or 'all' or 'none'"),
        ({"parts": ({"n": 1}, {"n": None})}, "parts[1].n: found nothing, expected integer"),
    ],
)
def test_what_fits_none_of_several_types_is_named_by_its_place_alone(
    given: dict[str, Any], said: str
) -> None:
    assert refusal({"name": "a", **given}) == f"f.yaml: {said}"


def test_a_place_inside_another_document_is_named_from_its_top() -> None:
    assert refusal({"name": 3}, at="cells[0]").startswith("f.yaml: cells[0].name: ")
    assert refusal([], at="cells[0]").startswith("f.yaml: cells[0]: found a list")


def test_a_model_is_as_it_was_written_for_good() -> None:
    found = validated(Outer, {"name": "a", "inner": {"n": 1}}, file="f.yaml")
    assert found == Outer(name="a", inner=Inner(n=1))
    with pytest.raises(ValidationError):
        setattr(found, "name", "b")  # noqa: B010 - as a type checker would not let it


@dataclass(frozen=True)
class Arguments:
    path: Path
    sizes: tuple[int, ...] = ()


def test_arguments_may_be_written_as_a_document_would() -> None:
    given = {"path": "/tmp", "sizes": [1, 2]}
    assert validated_arguments(Arguments, given, where="run") == Arguments(Path("/tmp"), (1, 2))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"path": "a", "size": 1},
            "run: unknown argument 'size'; expected some of: path, sizes",
        ),
        ({}, "run: path: this key is required and is missing"),
        ({"path": "a", "sizes": ["x"]}, "run: sizes[0]: found 'x', expected integer"),
    ],
)
def test_a_wrong_argument_is_named_with_what_was_expected(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        validated_arguments(Arguments, given, where="run")
    assert str(refused.value).startswith(said)


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.mark.parametrize("format", ["json", "yaml"])
def test_sixty_levels_are_read_and_one_more_is_refused(format: Any) -> None:  # noqa: A002
    assert parse_document(nested(61), format, where="f")
    with pytest.raises(SpecError, match="f: is nested deeper than 60 levels"):
        parse_document(nested(62), format, where="f")


def test_two_hundred_thousand_values_are_read_and_one_more_is_refused() -> None:
    def listed(values: int) -> str:
        return f"[{','.join(['1'] * values)}]"

    assert parse_document(listed(199_999), "json", where="f")
    with pytest.raises(SpecError, match="f: stands for more than 200000 values"):
        parse_document(listed(200_000), "json", where="f")


def test_people_read_what_is_written() -> None:
    """In its order, without marks for what stands twice, in its own letters."""
    twice = ["a"]
    text = dump_yaml({"z": twice, "a": twice, "ö": "ü" * 10})
    assert text == "z:\n- a\na:\n- a\nö: üüüüüüüüüü\n"
