"""A real OCI registry on the loopback interface, with a store of its own."""

import re
import urllib.request
from dataclasses import dataclass

from services.guarded import Guarded, private_directory

_CONFIGURATION = """\
version: 0.1
log: {{level: info}}
storage:
  filesystem: {{rootdirectory: {directory}/store}}
  delete: {{enabled: true}}
http: {{addr: "127.0.0.1:0"}}
"""
_MANIFESTS = (
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/json",
)
_LISTENING = re.compile(r"listening on (127\.0\.0\.1:\d+)")


@dataclass(frozen=True)
class Registry:
    """`address` is HOST:PORT, the first part of an image's reference; engines take the loopback without TLS."""

    address: str
    kept: Guarded

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(self._request(path), timeout=30) as answer:
            body: bytes = answer.read()
        return body

    def digest(self, repository: str, tag: str) -> str:
        """What the registry itself calls the image behind a tag."""
        request = self._request(f"/v2/{repository}/manifests/{tag}")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return str(answer.headers["Docker-Content-Digest"])

    def _request(self, path: str) -> urllib.request.Request:
        accepted = {"Accept": ", ".join(_MANIFESTS)}
        return urllib.request.Request(f"http://{self.address}{path}", headers=accepted)

    def stop(self) -> None:
        self.kept.stop()


def start_registry() -> Registry:
    directory = private_directory("registry")
    configuration = directory / "config.yml"
    configuration.write_text(_CONFIGURATION.format(directory=directory))
    kept = Guarded(directory, ("docker-registry", "serve", str(configuration)))
    kept.wait_until(lambda: bool(_LISTENING.search(kept.log)), "docker-registry")
    match = _LISTENING.search(kept.log)
    assert match
    return Registry(match[1], kept)
