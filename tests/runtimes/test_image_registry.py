"""The list of tags, from a real registry; tokens and logins, through a gate in front of it."""

import base64
import http.server
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aorta.core.errors import InfrastructureError
from aorta.runtimes.image_registry import ImageRepository, list_tags
from support.services.registry import Registry
from support.waiting import patience

_USER = base64.b64encode(b"ann:hunter2").decode()


def push_tags(registry: Registry, name: str, tags: list[str]) -> None:
    """The smallest manifest a registry takes, under many tags: no engine is needed."""
    config = _upload(registry, name, b"{}")
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": config,
                "size": 2,
            },
            "layers": [],
        }
    ).encode()
    for tag in tags:
        _send(
            f"http://{registry.address}/v2/{name}/manifests/{tag}",
            "PUT",
            manifest,
            "application/vnd.oci.image.manifest.v1+json",
        )


def _upload(registry: Registry, name: str, content: bytes) -> str:
    import hashlib

    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    place = _send(f"http://{registry.address}/v2/{name}/blobs/uploads/", "POST", b"")
    mark = "&" if "?" in place else "?"
    _send(f"{place}{mark}digest={digest}", "PUT", content, "application/octet-stream")
    return digest


def _send(url: str, method: str, body: bytes, kind: str = "application/json") -> str:
    request = urllib.request.Request(url, body, {"Content-Type": kind}, method=method)
    with urllib.request.urlopen(request, timeout=patience()) as answer:
        return str(answer.headers.get("Location", ""))


class _Gate(http.server.BaseHTTPRequestHandler):
    """Wants a token (or a login), gives tokens for the right login, and passes the rest on to the
    registry.
    """

    registry: str
    scheme: str
    seen: list[str]

    def do_GET(self) -> None:
        given = self.headers.get("Authorization", "")
        self.seen.append(given)
        if self.path.startswith("/token"):
            self._answer(200 if given == f"Basic {_USER}" else 401, b'{"token": "t0ken"}')
        elif given == (f"Basic {_USER}" if self.scheme == "Basic" else "Bearer t0ken"):
            with urllib.request.urlopen(f"http://{self.registry}{self.path}") as answer:
                self._answer(200, answer.read(), Link=answer.headers.get("Link"))
        else:
            here = self.headers["Host"]
            challenge = f'Bearer realm="http://{here}/token",service="registry"'
            self._answer(
                401, b"", **{"WWW-Authenticate": challenge if self.scheme == "Bearer" else "Basic"}
            )

    def _answer(self, code: int, body: bytes, **headers: str | None) -> None:
        self.send_response(code)
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Quiet."""


@contextmanager
def gate(registry: Registry, scheme: str) -> Iterator[str]:
    handler = type("Gate", (_Gate,), {"registry": registry.address, "scheme": scheme, "seen": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def login(directory: Path, host: str, auth: str, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(directory))


@pytest.mark.xdist_group("docker")
def test_every_page_of_tags_is_read(
    oci_registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    tags = [f"jax-2024-01-{day:02d}" for day in range(1, 24)]
    push_tags(oci_registry, "team/many", tags)
    monkeypatch.setattr("aorta.runtimes.image_registry._PAGE", 5)
    assert sorted(list_tags(ImageRepository.of(f"{oci_registry.address}/team/many"))) == tags


@pytest.mark.xdist_group("docker")
@pytest.mark.parametrize("scheme", ["Bearer", "Basic"])
def test_a_registry_that_wants_a_login_gets_the_one_docker_keeps(
    oci_registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    push_tags(oci_registry, "team/private", ["a", "b"])
    with gate(oci_registry, scheme) as host:
        repository = ImageRepository.of(f"{host}/team/private")
        login(tmp_path / "wrong", host, base64.b64encode(b"ann:wrong").decode(), monkeypatch)
        with pytest.raises(InfrastructureError) as refused:
            list_tags(repository)
        assert "wrong" not in str(refused.value)
        login(tmp_path / "right", host, _USER, monkeypatch)
        assert sorted(list_tags(repository)) == ["a", "b"]


@pytest.mark.xdist_group("docker")
def test_what_a_registry_does_not_have_is_said_in_one_line(oci_registry: Registry) -> None:
    with pytest.raises(InfrastructureError, match="no such repository"):
        list_tags(ImageRepository.of(f"{oci_registry.address}/team/none"))
    with pytest.raises(InfrastructureError, match="does not answer"):
        list_tags(ImageRepository.of("127.0.0.1:1/team/none"))


def test_a_reference_without_a_host_is_one_of_the_default_registry() -> None:
    assert ImageRepository.of("busybox").name == "library/busybox"
    assert ImageRepository.of("team/image").name == "team/image"
    assert ImageRepository.of("localhost:5000/x").host == "localhost:5000"
