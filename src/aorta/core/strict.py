"""The strict base of every file a user writes: unknown keys refused, nothing coerced, every message placed."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from aorta.core.errors import AortaError, SpecError
from aorta.core.names import path_of

__all__ = ["StrictModel", "path_of", "validated"]

ModelT = TypeVar("ModelT", bound="StrictModel")

_SECRET_WORDS = ("env", "token", "password", "secret", "key")


class StrictModel(BaseModel):
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, arbitrary_types_allowed=True
    )


def validated(model: type[ModelT], data: object, *, file: str, at: str = "") -> ModelT:
    """`data` as `model`, or one SpecError that names the file, the path, what was found and what was expected."""
    if not isinstance(data, Mapping):
        raise SpecError(
            f"found {_kind(data)}, expected a mapping of keys to values", where=_where(file, at)
        )
    try:
        return model.model_validate(data)
    except ValidationError as wrong:
        raise _as_spec_error(wrong, file, at) from None


def _as_spec_error(wrong: ValidationError, file: str, at: str) -> SpecError:
    problems = wrong.errors(include_url=False)
    first = problems[0]
    message = _message(first, problems)
    location = tuple(part for part in first["loc"] if not _is_union_tag(part, first))
    inside = path_of(location)
    place = f"{at}.{inside}" if at and inside and not inside.startswith("[") else at + inside
    return SpecError(message, where=_where(file, place))


def _message(problem: Any, problems: list[Any]) -> str:
    if problem["type"] == "extra_forbidden":
        return f"unknown key {str(problem['loc'][-1])!r}; remove it, or check its spelling"
    if problem["type"] == "missing":
        return "this key is required and is missing"
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, AortaError):
        return cause.message
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    said = problem["msg"].removeprefix("Value error, ")
    expected = said.removeprefix("Input should be ").removeprefix("a valid ")
    if said.startswith("Input should be "):
        return f"found {_found(problem)}, expected {expected}{more}"
    return f"{said}{more}"


def _found(problem: Any) -> str:
    inside = ".".join(str(p).lower() for p in problem["loc"] if not _is_union_tag(p, problem))
    value = problem["input"]
    if any(word in inside for word in _SECRET_WORDS):
        return f"a {type(value).__name__}"  # the value may be a secret
    return _kind(value)


def _kind(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, (Mapping, list, tuple)):
        return "a mapping" if isinstance(value, Mapping) else "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _is_union_tag(part: int | str, problem: Any) -> bool:
    """Pydantic puts the tag of a discriminated union into the path; the file has no such key."""
    return isinstance(part, str) and part.startswith("tag:") and problem is not None


def _where(file: str, place: str) -> str:
    return f"{file}: {place}" if place else file
