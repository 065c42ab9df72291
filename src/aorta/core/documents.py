"""The one strict reader of the documents users write, YAML 1.2 or JSON, and the writer of the same.

`on`, `12:30` and dates are text, `1e-3` is a number. Keys are text and stand once; unknown ones are
refused, nothing is coerced. Errors say where, in one line. Files are opened elsewhere.
"""

import dataclasses
import difflib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
)

from aorta.core.durations import parse_duration
from aorta.core.errors import AortaError, SpecError, UsageError
from aorta.core.names import check_variable, path_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_UNKNOWN_KIND = "unknown_kind"  # of pydantic's errors: the key `kind` says which of several models
MAX_DEPTH = 60
MAX_VALUES = 200_000  # aliases can make a small file stand for a very large one

Format = Literal["yaml", "json"]
ModelT = TypeVar("ModelT", bound="StrictModel")
ArgumentsT = TypeVar("ArgumentsT", bound="DataclassInstance")

_SURROGATE = re.compile("[\ud800-\udfff]")
_EXPECTED = re.compile(
    r"Input (?:should be|is not) (?:a valid |a (?=dict))?(.+?)"
    r"(?: for <.*| or (?:an )?instance of .*|, unable to parse .*)?\Z"
)
_OURS = {
    **dict.fromkeys(("tuple", "list"), "a list"),
    **dict.fromkeys(("path", "an instance of Path"), "a path"),
    "dictionary": "a mapping",
}
_SECRET_WORDS = ("env", "token", "password", "secret", "key")


def parse_document(text: str, format: Format, *, where: str) -> object:  # noqa: A002
    """What the text says, in dicts, lists, strings, numbers, booleans and None."""
    try:
        document = _from_json(text, where) if format == "json" else _from_yaml(text, where)
        _check(document, where)
    except RecursionError:
        raise SpecError(f"is nested deeper than {MAX_DEPTH} levels", where=where) from None
    return document


def dump_yaml(document: object) -> str:
    """YAML that `parse_document` reads back as the same values. Keys keep their order."""
    return yaml.dump(document, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)


# -- what its keys mean ---------------------------------------------------------------------------


class StrictModel(BaseModel):
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, arbitrary_types_allowed=True, defer_build=True
    )


class DocumentModel(StrictModel):
    """A part of a file that users write. Its lists become tuples."""

    @field_validator("*", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value


def _duration(value: object) -> object:
    return parse_duration(value) if isinstance(value, (str, int, float)) else value


def _variables(value: dict[str, str]) -> dict[str, str]:
    return {name: check_variable(name, text, where="") for name, text in value.items()}


Count = Annotated[int, Field(ge=1)]
Text = Annotated[str, Field(min_length=1)]
Seconds = Annotated[float | None, BeforeValidator(_duration)]  # or a duration in words
Variables = Annotated[dict[str, str], AfterValidator(_variables)]


def by_kind(*kinds: str) -> Discriminator:
    """Which of several models it is, each with the tag `tag:KIND`, by the key `kind`."""

    def tag(value: object) -> str:
        kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
        return f"tag:{kind}"

    expected = f"expected {', '.join(kinds[:-1])} or {kinds[-1]}"
    return Discriminator(tag, custom_error_type=_UNKNOWN_KIND, custom_error_message=expected)


def validated(model: type[ModelT], data: object, *, file: str, at: str = "") -> ModelT:
    """`data` as `model`, or one SpecError with file, path, what was found and expected."""
    if not isinstance(data, Mapping):
        raise SpecError(
            f"found {_kind(data)}, expected a mapping of keys to values", where=_where(file, at)
        )
    try:
        return model.model_validate(data)
    except ValidationError as wrong:
        raise _as_spec_error(wrong, data, file, at, model.model_fields) from None


def validated_arguments(
    kind: type[ArgumentsT], given: Mapping[str, object], *, where: str
) -> ArgumentsT:
    """The dataclass `kind` from keyword arguments, written as a document would write them."""
    known = {field.name for field in dataclasses.fields(kind)}
    unknown = sorted(given.keys() - known)
    if unknown:
        raise UsageError(
            f"unknown argument {unknown[0]!r}; expected some of: {', '.join(sorted(known))}",
            where=where,
        )
    try:
        return TypeAdapter(kind).validate_python(given)
    except ValidationError as wrong:
        said = _as_spec_error(wrong, given, where, "")
        raise UsageError(said.message, where=said.where) from None


def _as_spec_error(
    wrong: ValidationError,
    data: Mapping[str, object],
    file: str,
    at: str,
    known: Iterable[str] = (),
) -> SpecError:
    """`known`: the keys at the top of the document."""
    problems: list[Any] = [
        {**problem, "loc": _place_in(data, problem["loc"], problem["type"])}
        for problem in wrong.errors(include_url=False)
    ]
    # Of a value that may be of several types each has its say: the one that got furthest is meant.
    first = problems[0]["loc"]
    same = [p for p in problems if p["loc"][: len(first)] == first[: len(p["loc"])]]
    furthest = max((p["loc"] for p in same), key=len)
    elsewhere = [p for p in problems if p not in same]
    message = _message([p for p in same if p["loc"] == furthest], elsewhere, known)
    inside = path_of(furthest)
    place = f"{at}.{inside}" if at and inside and not inside.startswith("[") else at + inside
    return SpecError(message, where=_where(file, place))


def _place_in(data: object, location: Sequence[int | str], problem: str) -> tuple[int | str, ...]:
    """Where a problem stands in what was given. Pydantic puts names of its own between, of a type
    that it tried: what was given has no such key.
    """
    place: list[int | str] = []
    for number, part in enumerate(location, 1):
        if isinstance(data, Mapping) and part in data:
            data = data[part]
        elif isinstance(data, (list, tuple)) and isinstance(part, int):
            data = data[part] if part < len(data) else None
        elif number < len(location) or problem != "missing":
            continue
        place.append(part)
    return tuple(place)


def _message(here: Sequence[Any], elsewhere: Sequence[Any], known: Iterable[str]) -> str:
    """`here`: what the one place was found not to be."""
    problem = here[0]
    if problem["type"] == "extra_forbidden":
        unknown = [path_of(p["loc"]) for p in elsewhere if p["type"] == "extra_forbidden"]
        also = f"; unknown too: {', '.join(unknown)}" if unknown else ""
        name = str(problem["loc"][-1])
        near = difflib.get_close_matches(name, known, 1, 0.7) if len(problem["loc"]) == 1 else []
        what = f"did you mean {near[0]!r}?" if near else "remove it, or check its spelling"
        return f"unknown key {name!r}; {what}{also}"
    if problem["type"] == _UNKNOWN_KIND:
        given = problem["input"]
        kind = given.get("kind") if isinstance(given, Mapping) else given
        found = "the key kind is missing" if kind is None else f"unknown kind {_kind(kind)}"
        return f"{found}; {problem['msg']}"
    if problem["type"] == "missing":
        return "this key is required and is missing"
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, AortaError):
        return cause.message
    others = {p["loc"] for p in elsewhere}
    more = f" (and {len(others)} more)" if others else ""
    expected = [said[1] for p in here if (said := _EXPECTED.match(p["msg"]))]
    if expected:
        words = " or ".join(dict.fromkeys(_OURS.get(one, one) for one in expected))
        inside = ".".join(str(part).lower() for part in problem["loc"])
        value, may_be_secret = problem["input"], any(word in inside for word in _SECRET_WORDS)
        found = f"a {type(value).__name__}" if may_be_secret else _kind(value)
        return f"found {found}, expected {words}{more}"
    said = problem["msg"].removeprefix("Value error, ").partition(" after validation")[0]
    return f"{said.replace('Tuple should', 'Value should')}{more}"


def _kind(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, (Mapping, list, tuple)):
        return "a mapping" if isinstance(value, Mapping) else "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _where(file: str, place: str) -> str:
    return f"{file}: {place}" if place else file


# -- JSON and YAML --------------------------------------------------------------------------------


def object_of(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A JSON object whose keys stand once; `ValueError` for another."""
    doubled = doubled_key(pairs)
    if doubled is not None:
        raise ValueError(f"the key {doubled!r} stands twice; keep one")
    return dict(pairs)


def doubled_key(pairs: Sequence[tuple[str, object]]) -> str | None:
    """A key of a JSON object that stands twice."""
    counts = Counter(key for key, _ in pairs)
    return next((key for key, count in counts.items() if count > 1), None)


def _no_constant(name: str) -> object:
    raise ValueError(f"it holds {name}")


def _from_json(text: str, where: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=object_of, parse_constant=_no_constant)
    except json.JSONDecodeError as wrong:
        place = f"{where}:{wrong.lineno}:{wrong.colno}"
        raise SpecError(f"is not valid JSON: {wrong.msg}", where=place) from None
    except ValueError as wrong:
        raise SpecError(f"is not valid JSON: {wrong}", where=where) from None


def _from_yaml(text: str, where: str) -> object:
    try:
        return yaml.load(text, Loader=Loader)  # noqa: S506 - derived from SafeLoader
    except yaml.MarkedYAMLError as wrong:
        said, mark = wrong.problem or "cannot be parsed", wrong.problem_mark
        place = f"{where}:{mark.line + 1}:{mark.column + 1}" if mark else where
        raise SpecError(f"is not valid YAML: {said}", where=place) from None
    except (yaml.YAMLError, ValueError, KeyError) as wrong:
        # The words of other errors quote the value, which may be a secret.
        said = str(wrong) if isinstance(wrong, yaml.YAMLError) else "a value is not of its type"
        raise SpecError(f"is not valid YAML: {said}", where=where) from None


def _check(document: object, where: str) -> None:
    """Refuse what no reader of a document should have to think about, naming its place."""
    left: list[tuple[tuple[str | int, ...], object]] = [((), document)]
    count = 0
    while left:
        place, value = left.pop()
        count += 1
        if count > MAX_VALUES:
            raise SpecError(f"stands for more than {MAX_VALUES} values", where=where)
        if len(place) > MAX_DEPTH:
            raise SpecError(f"is nested deeper than {MAX_DEPTH} levels", where=where)
        problem = _problem(value)
        if problem:
            inside = path_of(place)
            raise SpecError(problem, where=f"{where}: {inside}" if inside else where)
        if isinstance(value, dict):
            left.extend(((*place, key), item) for key, item in reversed(value.items()))
        elif isinstance(value, list):
            left.extend(((*place, index), item) for index, item in reversed([*enumerate(value)]))


def _problem(value: object) -> str | None:
    keys = [*value] if isinstance(value, dict) else []
    odd = [key for key in keys if not isinstance(key, str)]
    if odd:
        return f"the key {odd[0]!r} is not text; put it in quotes"
    if any(isinstance(text, str) and _SURROGATE.search(text) for text in (value, *keys)):
        return "half of a surrogate pair is not text"
    return None


# -- YAML 1.2 -------------------------------------------------------------------------------------

_TAG = "tag:yaml.org,2002:"

# Tag, pattern of the plain text, first characters it can have.
_CORE_SCHEMA: tuple[tuple[str, str, str], ...] = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        (
            r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|"
            r"\.(?:nan|NaN|NAN)"
        ),
        "-+.0123456789",
    ),
)
_CONSTRUCTED = ("null", "bool", "int", "float", "str", "seq", "map")


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    table: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for name, pattern, first_characters in _CORE_SCHEMA:
        rule = (_TAG + name, re.compile(f"(?:{pattern})\\Z"))
        for character in first_characters:
            table.setdefault(character.replace("\0", ""), []).append(rule)
    return table


class Loader(yaml.SafeLoader):
    """Text, numbers, booleans, null, lists and mappings; no dates, bytes, sets or merge keys."""

    yaml_implicit_resolvers = _resolvers()
    yaml_constructors = {  # noqa: RUF012 - PyYAML reads it as a class attribute
        tag: construct
        for tag, construct in yaml.SafeLoader.yaml_constructors.items()
        if tag is None or tag.removeprefix(_TAG) in _CONSTRUCTED
    }

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            problem = _problem_of_key(key, seen)
            if problem:
                raise yaml.constructor.ConstructorError(
                    problem=problem, problem_mark=key.start_mark
                )
            seen.add(key.value)
        return node


def _problem_of_key(key: yaml.Node, seen: set[str]) -> str | None:
    if not isinstance(key, yaml.ScalarNode):
        return "a key is a list or a mapping, expected text"
    if key.value == "<<" and key.style is None:
        return "merge keys (<<) belong to YAML 1.1; write the keys out"
    if key.value in seen:
        return f"the key {key.value!r} stands twice; keep one"
    return None


class Dumper(yaml.SafeDumper):
    """Quotes what either version of YAML would take for something else than text."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML reads it as a class attribute
        character: [
            *_resolvers().get(character, []),
            *yaml.SafeDumper.yaml_implicit_resolvers.get(character, []),
        ]
        for character in {*_resolvers(), *yaml.SafeDumper.yaml_implicit_resolvers}
    }

    def ignore_aliases(self, _data: Any) -> bool:
        return True  # people read these files
