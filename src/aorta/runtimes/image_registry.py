"""Tags and images of a repository through the OCI distribution API; nothing is pulled.

Credentials (docker's files) go to the registry and the token service it names, over TLS or loopback
only; they never reach a message.
"""

import json
import os
import re
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta.core.errors import InfrastructureError, UsageError
from aorta.runtimes.http_get import Answered, HttpRefusedError, HttpUnansweredError, read

_PAGE = 1000
_MOST_PAGES = 10_000
_LOOPBACK = re.compile(r"(?:localhost|127(?:\.\d+){3}|\[::1\])(?::\d+)?\Z")
_NEXT = re.compile(r'<([^>]+)>\s*;[^,]*\brel="?next"?')
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')
_ACCEPTED = ", ".join(
    (
        "application/json",
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_HUB = "registry-1.docker.io"
_HUB_KEY = "https://index.docker.io/v1/"


@dataclass(frozen=True)
class ImageRepository:
    """`host/name` of a reference; without a host it is the default registry's."""

    host: str
    name: str

    @classmethod
    def of(cls, reference: str) -> "ImageRepository":
        host, slash, rest = reference.partition("/")
        if slash and ("." in host or ":" in host or host == "localhost"):
            return cls(host, rest)
        return cls(_HUB, reference if slash else f"library/{reference}")


def split_reference(reference: str) -> tuple[str, str]:
    """`host/name` and the tag of a reference that has one."""
    name, colon, tag = reference.rpartition(":")
    if not colon or "/" in tag:
        raise UsageError(f"{reference!r} names no tag; expected such as host/name:{{date}}")
    return name, tag


def list_tags(repository: ImageRepository) -> list[str]:
    """Every tag, in the registry's order."""
    client = _Client(repository)
    path = f"/v2/{repository.name}/tags/list?n={_PAGE}"
    tags: list[str] = []
    for _ in range(_MOST_PAGES):
        answered = client.ask(path)
        tags += _object(answered.body).get("tags") or []
        following = _NEXT.search(answered.headers.get("Link", ""))
        if following is None:
            return tags
        parts = urllib.parse.urlsplit(urllib.parse.urljoin(path, str(following[1])))
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    raise InfrastructureError("the registry's list of tags has no end", where=repository.host)


def exists(reference: str) -> bool | None:
    """Whether the registry has the image, or a digest names it; None where it does not say."""
    if "@" in reference:
        return True
    try:
        name, tag = split_reference(reference)
        place = ImageRepository.of(name)
        _Client(place).ask(f"/v2/{place.name}/manifests/{tag}", "HEAD")
    except _NotThereError:
        return False
    except (InfrastructureError, UsageError):
        return None
    return True


class _NotThereError(InfrastructureError):
    """The registry knows no such thing."""


class _Client:
    def __init__(self, repository: ImageRepository) -> None:
        self._repository = repository
        self._scheme = "http" if _LOOPBACK.match(repository.host) else "https"
        self._authorization: str | None = None

    def ask(self, path: str, method: str = "GET") -> Answered:
        """Logs in once, if it is asked to."""
        url = f"{self._scheme}://{self._repository.host}{path}"
        try:
            return self._get(url, self._authorization, method)
        except HttpRefusedError as refused:
            if refused.code == 404:
                raise self._error(_about(refused), _NotThereError) from None
            if refused.code != 401 or self._authorization is not None:
                raise self._error(_about(refused)) from None
            self._authorization = self._answer_to(refused.headers.get("WWW-Authenticate", ""))
        return self.ask(path, method)

    def _answer_to(self, challenge: str) -> str:
        kind, _, rest = challenge.partition(" ")
        login = _credentials(self._repository.host)
        if kind.lower() == "basic":
            if login is None:
                raise self._error(f"it wants a login: docker login {self._repository.host}")
            return f"Basic {login}"
        if kind.lower() != "bearer":
            raise self._error("it asks for an unknown kind of login")
        return f"Bearer {self._token(dict(_PARAMETER.findall(rest)), login)}"

    def _token(self, wanted: dict[str, str], login: str | None) -> str:
        realm = wanted.pop("realm", "")
        parts = urllib.parse.urlsplit(realm)
        if parts.scheme != "https" and not _LOOPBACK.match(parts.netloc):
            raise self._error("its token service has no TLS, so no credentials are sent there")
        wanted.setdefault("scope", f"repository:{self._repository.name}:pull")
        query = urllib.parse.urlencode(
            {k: v for k, v in wanted.items() if k in {"service", "scope"}}
        )
        try:
            answered = self._get(f"{realm}?{query}", f"Basic {login}" if login else None)
        except HttpRefusedError as refused:
            raise self._error(f"it gives no token ({_about(refused)})") from None
        content = _object(answered.body)
        token = content.get("token") or content.get("access_token")
        if not isinstance(token, str):
            raise self._error("its token service answered without a token")
        return token

    def _get(self, url: str, authorization: str | None, method: str = "GET") -> Answered:
        try:
            return read(url, accept=_ACCEPTED, authorization=authorization, method=method)
        except HttpUnansweredError as wrong:
            raise self._error(f"it does not answer: {wrong}") from None

    def _error(
        self, words: str, kind: type[InfrastructureError] = InfrastructureError
    ) -> InfrastructureError:
        return kind(
            f"cannot list the tags of {self._repository.name}: {words}", where=self._repository.host
        )


def _credentials(host: str) -> str | None:
    """`user:password` in base64, from the files that container engines keep."""
    keys = (
        (_HUB_KEY, "docker.io", host)
        if host == _HUB
        else (host, f"https://{host}", f"https://{host}/v2/")
    )
    for path in _credential_files():
        try:
            content = _object(path.read_bytes())
        except (OSError, InfrastructureError):
            continue
        for key in keys:
            if known := content.get("auths", {}).get(key, {}).get("auth"):
                return str(known)
    return None


def _credential_files() -> Iterator[Path]:
    if given := os.environ.get("REGISTRY_AUTH_FILE"):
        yield Path(given)
    yield Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        yield Path(runtime) / "containers" / "auth.json"


def _object(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise InfrastructureError("found no JSON object where the registry or docker keeps one")
    return content


def _about(refused: HttpRefusedError) -> str:
    known = {
        401: "the login is not accepted",
        403: "it is forbidden",
        404: "there is no such repository",
    }
    return known.get(refused.code, f"HTTP {refused.code}")
