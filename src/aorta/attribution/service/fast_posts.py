"""The short way for what agents send ten thousand times: POSTs of one JSON document to a route of
the application.

The web framework takes 400 of the 570 microseconds of a report. This calls the same endpoint with
the same model, and the same handlers word what is refused: it has no rules of its own.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.routing import BaseRoute

from aorta.attribution.service.guard import Receive, Scope, Send

Handlers = Mapping[type[Exception], Callable[[Request, Exception], Awaitable[Response]]]

_JSON = "application/json"


class FastPosts:
    """ASGI: answers the POST requests for `routes`, which are those of `app`; `app` answers
    everything else.
    """

    def __init__(self, app: FastAPI, routes: Iterable[BaseRoute], handlers: Handlers) -> None:
        self._app, self._handlers = app, handlers
        self._refusals = tuple(handlers)
        self._routes = {
            route.path: (route, _body_model(route))
            for route in routes
            if isinstance(route, APIRoute) and "POST" in (route.methods or ())
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._routes.get(scope["path"]) if scope["type"] == "http" else None
        if found is None or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        response = await self._answer(*found, scope, receive)
        await response(scope, receive, send)

    async def _answer(
        self, route: APIRoute, model: type[BaseModel], scope: Scope, receive: Receive
    ) -> Response:
        try:
            _demand_json(scope)
            told = _validated(model, await _whole(receive))
            taken: BaseModel = await route.endpoint(told)
        except self._refusals as refused:
            handler = next(how for kind, how in self._handlers.items() if isinstance(refused, kind))
            return await handler(Request(scope), refused)
        return Response(taken.model_dump_json(), route.status_code or 200, media_type=_JSON)


def _body_model(route: APIRoute) -> type[BaseModel]:
    assert route.body_field is not None
    model: type[BaseModel] = route.body_field.field_info.annotation  # type: ignore[assignment]
    return model


def _demand_json(scope: Scope) -> None:
    """A web page may send any other type to the loopback interface without being asked for
    leave.
    """
    kinds = [value for name, value in scope["headers"] if name == b"content-type"]
    if not any(kind.lower().startswith(_JSON.encode()) for kind in kinds):
        raise _refused({"loc": (), "msg": f"expected a body of {_JSON}", "type": "content_type"})


def _validated(model: type[BaseModel], body: bytes) -> BaseModel:
    try:
        return model.model_validate_json(body)
    except ValidationError as wrong:
        raise _refused(*wrong.errors()) from None


def _refused(*problems: Any) -> RequestValidationError:
    return RequestValidationError(
        [{**problem, "loc": ("body", *problem["loc"])} for problem in problems]
    )


async def _whole(receive: Receive) -> bytes:
    """The body, which the guard has bounded; a caller that goes away leaves what there is."""
    message = await receive()
    body: bytes = message.get("body", b"")
    while message.get("more_body", False):
        message = await receive()
        body += message.get("body", b"")
    return body
