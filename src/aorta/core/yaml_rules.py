"""PyYAML taught the core schema of YAML 1.2, for reading and for writing, so that a file survives a round trip."""

import re
from collections.abc import Callable
from typing import Any

import yaml

_TAG = "tag:yaml.org,2002:"

# Tag, pattern of the plain text, first characters it can have.
_CORE_SCHEMA: tuple[tuple[str, str, str], ...] = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
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
            problem = _problem_of(key, seen)
            if problem:
                raise yaml.constructor.ConstructorError(
                    problem=problem, problem_mark=key.start_mark
                )
            seen.add(key.value)
        return node


def _problem_of(key: yaml.Node, seen: set[str]) -> str | None:
    if not isinstance(key, yaml.ScalarNode):
        return "a key is a list or a mapping, expected text"
    if (key.value == "<<" and key.style is None) or key.tag == f"{_TAG}merge":
        return "merge keys (<<) belong to YAML 1.1; write the keys out"
    if key.value in seen:
        return f"the key {key.value!r} stands twice; keep one"
    return None


def _int_of(text: str) -> int:
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    return int(text[2:] if base != 10 else text, base)


def _float_of(text: str) -> float:
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


def _bool_of(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _constructor(noun: str, convert: Callable[[str], object]) -> Callable[[Loader, Any], object]:
    def construct(loader: Loader, node: Any) -> object:
        try:
            return convert(str(loader.construct_scalar(node)))
        except (ValueError, KeyError):
            raise yaml.constructor.ConstructorError(
                problem=f"the value is tagged or written as {noun}, and is none",
                problem_mark=node.start_mark,
            ) from None

    return construct


Loader.add_constructor(f"{_TAG}int", _constructor("an integer", _int_of))
Loader.add_constructor(f"{_TAG}float", _constructor("a number", _float_of))
Loader.add_constructor(f"{_TAG}bool", _constructor("a boolean", _bool_of))


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
