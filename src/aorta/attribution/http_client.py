"""The one HTTP client of this program's services: JSON both ways, credentials that go nowhere else.

Credentials in an address (`http://user:password@host`) are sent as they should be and never shown. Redirects are not
followed: they would carry a token to whoever answers there.
"""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

from aorta.runtimes.http_get import credentials_in, without_credentials

_LARGEST_ANSWER = 8 << 20


class HttpError(Exception):
    """No usable answer. `status` is None where none came at all."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


class JsonClient:
    """Speaks to one service. `url` is its base, and what may be shown of it."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        find_token: Callable[[str], str | None] | None = None,
    ) -> None:
        """`find_token` is asked at every call, where neither a token nor credentials are given: a server may have come since."""
        self.url = without_credentials(url).rstrip("/")
        self._given = f"Bearer {token}" if token else credentials_in(url)
        self._find_token = find_token
        self._opener = urllib.request.build_opener(_NoRedirect)

    def call(
        self, method: str, path: str, timeout: float, body: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any]:
        """The JSON object that is answered; whatever else happens is an `HttpError`."""
        where = f"{method} {path.split('?', maxsplit=1)[0]}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, method=method)  # noqa: S310 - checked to be http(s)
        request.add_header("Content-Type", "application/json")
        if authorization := self._authorization():
            request.add_unredirected_header("Authorization", authorization)
        try:
            with self._opener.open(request, timeout=timeout) as response:
                answer = json.loads(response.read(_LARGEST_ANSWER))
        except urllib.error.HTTPError as refused:
            refused.close()
            raise HttpError(f"{where}: HTTP {refused.code}", refused.code) from None
        except TimeoutError:
            raise HttpError(f"no answer within {timeout:g} s") from None
        except (OSError, http.client.HTTPException) as unreachable:
            reason = getattr(unreachable, "reason", unreachable)
            if isinstance(reason, TimeoutError):
                raise HttpError(f"no answer within {timeout:g} s") from None
            raise HttpError(f"unreachable: {reason}") from None
        except (ValueError, RecursionError):
            raise HttpError(f"{where}: the answer is not JSON") from None
        if not isinstance(answer, Mapping):
            raise HttpError(f"{where}: the answer is not a JSON object")
        return answer

    def _authorization(self) -> str | None:
        found = self._find_token(self.url) if self._find_token and not self._given else None
        return f"Bearer {found}" if found else self._given
