"""The verbs as functions: `aorta.reduce(spec=...)` makes the request of the room `aorta.reduce` and
answers it.

Every room of a verb has the same door, `aorta.<room>.request`: a dataclass `<Verb>Request` and a
function `<verb>`. A verb and the package of its room share a name, so the package itself is made
callable.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

Fields = ParamSpec("Fields")
RequestT = TypeVar("RequestT")
ReportT = TypeVar("ReportT")

_ROOMS = {"attribute": "attribution"}  # where a room is not called like its verb


class _CallableModule(ModuleType):
    def __call__(self, **fields: Any) -> Any:
        return call(self.__name__.rpartition(".")[2], fields)


def make_callable(package: str) -> None:
    """For the package of a verb's room to say in its `__init__`, with its own name."""
    sys.modules[package].__class__ = _CallableModule


def request_of(verb: str) -> type[Any]:
    """The dataclass that says what may be asked of a verb."""
    request: type[Any] = getattr(_door(verb), f"{verb.capitalize()}Request")
    return request


def call(verb: str, fields: dict[str, Any]) -> Any:
    from aorta.core.documents import validated_arguments

    request = validated_arguments(request_of(verb), fields, where=f"aorta.{verb}")
    return getattr(_door(verb), verb)(request)


def _door(verb: str) -> ModuleType:
    return import_module(f"aorta.{_ROOMS.get(verb, verb)}.request")


def verb(
    request: Callable[Fields, RequestT],
    answer: Callable[[RequestT], ReportT],
) -> Callable[Fields, ReportT]:
    """How a type checker sees it: the arguments are the fields of the request."""

    def called(*args: Fields.args, **kwargs: Fields.kwargs) -> ReportT:
        return answer(request(*args, **kwargs))

    return called
