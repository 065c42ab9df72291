"""Unpacks an image of a loopback registry into a directory: `import_image.py HOST#NAME:TAG
DIRECTORY`.
"""

import io
import json
import sys
import tarfile
import urllib.request
from typing import Any

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def main() -> None:
    reference, directory = sys.argv[1:]
    host, hash_sign, rest = reference.partition("#")
    name, colon, tag = rest.rpartition(":")
    if not hash_sign or not colon:
        raise SystemExit(f"{reference!r} is not HOST#NAME:TAG")
    try:
        manifest = json.loads(_get(f"http://{host}/v2/{name}/manifests/{tag}"))
    except OSError as wrong:
        raise SystemExit(f"cannot import {reference}: {wrong}") from None
    layers: list[dict[str, Any]] = manifest["layers"]
    for layer in layers:
        blob = _get(f"http://{host}/v2/{name}/blobs/{layer['digest']}")
        with tarfile.open(fileobj=io.BytesIO(blob)) as archive:
            archive.extractall(directory, filter="fully_trusted")


def _get(url: str) -> bytes:
    request = urllib.request.Request(url, headers={"Accept": _MANIFEST})
    with urllib.request.urlopen(request) as answer:  # whoever waits for the job has the deadline
        body: bytes = answer.read()
    return body


if __name__ == "__main__":
    main()
