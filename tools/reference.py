"""Writes docs/reference.md: every key of a reduction spec and of a recipe, from the models that
read them. `python tools/reference.py` writes it; the test compares.
"""

import re
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from aorta.core.documents import StrictModel
from aorta.core.oracle import Oracle
from aorta.reduce.axis_spec import AxisSpec
from aorta.reduce.spec import BudgetSpec, Gate, ReduceSpec, WorkloadSpec
from aorta.triage.recipe import RecipeFile

PLACE = Path(__file__).resolve().parents[1] / "docs" / "reference.md"
_HEAD = """\
# Every key of a spec and of a recipe

Written by `python tools/reference.py` from the models that read these files; unknown keys are refused. A duration is a number of
seconds, or `30s`, `10m`, `4h`, `1h30m`.
"""
_MITIGATIONS = """\
## A `--mitigations-file`

```yaml
version: 1
mitigations:
  my_switch:          # a name
    MY_LIBRARY_MODE: "safe"   # the variables that it sets
```

Environments beside them, workload classes and packages that bring all three: [plugins.md](plugins.md).
"""


def text() -> str:
    parts = [_HEAD]
    parts += _section("`aorta.yaml`: the reduction spec", ReduceSpec)
    parts += _section("`workload`", WorkloadSpec)
    parts += _section("`budget`", BudgetSpec)
    parts += _section("`gate`", Gate)
    for title, union in (("`axes`", AxisSpec), ("`oracle`", Oracle)):
        for model in _models(union):
            kind = get_args(model.model_fields["kind"].annotation)[0]
            parts += _section(f"{title}, `kind: {kind}`", model)
    parts.append(
        "`oracle` of a spec and of a `command` workload also takes `ranks`: `any` (the default), "
        "`all`, or a rank such as `3`: whose failure decides.\n"
    )
    parts += _section("A recipe (`aorta triage run --recipe`)", RecipeFile)
    for part in _inner(RecipeFile):
        parts += _section(f"In a recipe: `{part.__name__}`", part)
    return "\n".join([*parts, _MITIGATIONS])


def _models(union: Any) -> list[type[StrictModel]]:
    return [get_args(member)[0] for member in get_args(get_args(union)[0])]


def _inner(model: type[BaseModel]) -> list[type[BaseModel]]:
    found: dict[str, type[BaseModel]] = {}
    for field in model.model_fields.values():
        for inside in _in(field.annotation):
            found.setdefault(inside.__name__, inside)
            for more in _inner(inside):
                found.setdefault(more.__name__, more)
    return list(found.values())


def _in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _in(argument)


def _section(title: str, model: type[BaseModel]) -> list[str]:
    said = " ".join((model.__doc__ or "").split())
    rows = [f"| `{name}` | {_kind(field)} | {_default(field)} |" for name, field in _fields(model)]
    head = ["| key | value | default |", "|---|---|---|"]
    return [f"## {title}\n\n{said}\n", "\n".join([*head, *rows]) + "\n"]


def _fields(model: type[BaseModel]) -> list[tuple[str, FieldInfo]]:
    fields = model.model_fields.items()
    return [(field.alias or name, field) for name, field in fields if name != "ranks"]


def _kind(field: FieldInfo) -> str:
    return _words(field.annotation).replace("|", "\\|")


def _words(kind: Any) -> str:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is type(None):
        return "nothing"
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin is typing.Annotated:
        return _words(arguments[0])
    if origin in {typing.Union, types.UnionType}:
        shown = [_words(one) for one in arguments if one is not type(None)]
        return " or ".join(dict.fromkeys(shown))
    if origin is tuple:
        return f"a list of {_words(arguments[0])}" if len(arguments) > 1 else "a list"
    if origin in {list, dict} or kind is dict:
        return (
            "a mapping" if origin is dict or kind is dict else f"a list of {_words(arguments[0])}"
        )
    plain = {str: "text", int: "whole number", float: "number", bool: "true or false"}
    if kind in plain:
        return plain[kind]
    name = getattr(kind, "__name__", str(kind))
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or isinstance(value, BaseModel) or value in ((), {}, []):
        return ""
    return f"`{value}`".replace("|", "\\|")


if __name__ == "__main__":
    PLACE.write_text(text(), encoding="utf-8")
