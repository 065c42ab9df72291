"""How this program's services are asked: JSON both ways, credentials that go nowhere else.

Credentials in an address (`http://user:password@host`) are sent as they should be and never shown.
Redirects are not followed: they would carry a token to whoever answers there.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from aorta.runtimes.http_get import (
    HttpRefusedError,
    HttpUnansweredError,
    credentials_in,
    read,
    without_credentials,
)

_LARGEST_ANSWER = 8 << 20


class HttpError(Exception):
    """No usable answer. `status` is None where none came at all."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class JsonClient:
    """Speaks to one service. `url` is its base, and what may be shown of it."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        find_token: Callable[[str], str | None] | None = None,
    ) -> None:
        """`find_token` is called at every request without credentials: a server may be new."""
        self.url = without_credentials(url).rstrip("/")
        self._given = f"Bearer {token}" if token else credentials_in(url)
        self._find_token = find_token

    def call(
        self, method: str, path: str, timeout: float, body: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any]:
        """The JSON object that is answered; whatever else happens is an `HttpError`."""
        where = f"{method} {path.split('?', maxsplit=1)[0]}"
        try:
            said = read(
                self.url + path,
                accept="application/json",
                authorization=self._authorization(),
                method=method,
                body=None if body is None else json.dumps(body).encode(),
                timeout=timeout,
                redirected=False,
                most=_LARGEST_ANSWER,
            )
            answer = json.loads(said.body)
        except HttpRefusedError as refused:
            raise HttpError(f"{where}: HTTP {refused.code}", refused.code) from None
        except HttpUnansweredError as silent:
            late = f"no answer within {timeout:g} s"
            raise HttpError(late if silent.timed_out else f"unreachable: {silent}") from None
        except (ValueError, RecursionError):
            raise HttpError(f"{where}: the answer is not JSON") from None
        if not isinstance(answer, Mapping):
            raise HttpError(f"{where}: the answer is not a JSON object")
        return answer

    def _authorization(self) -> str | None:
        found = self._find_token(self.url) if self._find_token and not self._given else None
        return f"Bearer {found}" if found else self._given
