"""A real OCI registry on the loopback interface, with a store of its own."""

import functools
import hashlib
import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.services.guarded import Guarded, private_directory
from support.waiting import patience

_CONFIGURATION = """\
version: 0.1
log: {{level: info}}
storage:
  filesystem: {{rootdirectory: {directory}/store}}
  delete: {{enabled: true}}
http: {{addr: "127.0.0.1:0"}}
"""
_OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_MANIFESTS = (
    "application/vnd.docker.distribution.manifest.v2+json",
    _OCI_MANIFEST,
    "application/json",
)
_LISTENING = re.compile(r"listening on (127\.0\.0\.1:\d+)")


@dataclass(frozen=True)
class Registry:
    """`address` is HOST:PORT, the first part of an image's reference; engines take the loopback
    without TLS.
    """

    kept: Guarded
    held: dict[str, str] = field(default_factory=dict)  # a repository that has this blob

    @property
    def address(self) -> str:
        match = _LISTENING.search(self.kept.log)
        assert match, "it does not listen"
        return match[1]

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(self._request(path), timeout=patience()) as answer:
            body: bytes = answer.read()
        return body

    def digest(self, repository: str, tag: str) -> str:
        """What the registry itself calls the image behind a tag."""
        request = self._request(f"/v2/{repository}/manifests/{tag}")
        with urllib.request.urlopen(request, timeout=patience()) as answer:
            return str(answer.headers["Docker-Content-Digest"])

    def push(
        self, repository: str, tag: str, layers: Sequence[Path], env: Sequence[str] = ()
    ) -> str:
        """An image made of tar files, lowest first, through the registry's own API; returns its
        reference.
        """
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin", *env]},
            "rootfs": {"type": "layers", "diff_ids": [_digest_of(layer) for layer in layers]},
        }
        about = json.dumps(config).encode()
        manifest = {
            "schemaVersion": 2,
            "mediaType": _OCI_MANIFEST,
            "config": self._upload(repository, _CONFIG, _digest(about), lambda: about),
            "layers": [
                self._upload(repository, _LAYER, _digest_of(layer), layer.read_bytes)
                for layer in layers
            ],
        }
        headers = {"Content-Type": _OCI_MANIFEST}
        self._send(
            "PUT", f"/v2/{repository}/manifests/{tag}", json.dumps(manifest).encode(), headers
        )
        return f"{self.address}/{repository}:{tag}"

    def remove(self, repository: str, tag: str) -> None:
        """The manifest itself: the tag stays listed for a while, and cannot be pulled."""
        self._send("DELETE", f"/v2/{repository}/manifests/{self.digest(repository, tag)}")

    def _upload(
        self, repository: str, kind: str, digest: str, read: Callable[[], bytes]
    ) -> dict[str, Any]:
        """What another repository of this registry has is taken from there."""
        try:
            found = self._send("HEAD", f"/v2/{repository}/blobs/{digest}")
        except urllib.error.HTTPError:
            other = f"?mount={digest}&from={self.held[digest]}" if digest in self.held else ""
            place = self._send("POST", f"/v2/{repository}/blobs/uploads/{other}")["Location"]
            if not other:
                separator = "&" if "?" in place else "?"
                headers = {"Content-Type": "application/octet-stream"}
                self._send("PUT", f"{place}{separator}digest={digest}", read(), headers)
            found = self._send("HEAD", f"/v2/{repository}/blobs/{digest}")
        self.held[digest] = repository
        return {"mediaType": kind, "size": int(found["Content-Length"]), "digest": digest}

    def _send(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Mapping[str, str]:
        url = path if path.startswith("http") else f"http://{self.address}{path}"
        request = urllib.request.Request(url, body, dict(headers or {}), method=method)
        with urllib.request.urlopen(request, timeout=patience()) as answer:
            return dict(answer.headers)

    def _request(self, path: str) -> urllib.request.Request:
        accepted = {"Accept": ", ".join(_MANIFESTS)}
        return urllib.request.Request(f"http://{self.address}{path}", headers=accepted)

    def stop(self) -> None:
        self.kept.stop()


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _digest_of(layer: Path) -> str:
    about = layer.stat()
    return _digest_of_content(layer, about.st_mtime_ns, about.st_size)


@functools.cache
def _digest_of_content(layer: Path, *_: int) -> str:
    """Of a file that is as old and as long as it was: the layers of an image are those of many
    others.
    """
    return _digest(layer.read_bytes())


def start_registry() -> Registry:
    directory = private_directory("registry")
    configuration = directory / "config.yml"
    configuration.write_text(_CONFIGURATION.format(directory=directory))
    kept = Guarded(directory, ("docker-registry", "serve", str(configuration)))
    kept.wait_until(lambda: bool(_LISTENING.search(kept.log)), "docker-registry")
    return Registry(kept)
