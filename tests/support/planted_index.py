"""A package index with planted releases: tiny wheels, in a directory of files or served as a simple
repository.
"""

import base64
import hashlib
import html
import http.server
import json
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path


@dataclass
class PlantedIndex:
    """`directory` is what --find-links takes."""

    directory: Path
    yanked: set[str] = field(default_factory=set)
    uploaded: dict[str, str] = field(default_factory=dict)  # by the name of a file

    def release(
        self,
        name: str,
        version: str,
        code: str = "",
        *,
        needs: Sequence[str] = (),
        python: str | None = None,
        yanked: bool = False,
        uploaded: str | None = None,
    ) -> Path:
        """A wheel with one module of this name; it always knows its own version."""
        self.directory.mkdir(parents=True, exist_ok=True)
        module = name.replace("-", "_")
        file = self.directory / f"{module}-{version}-py3-none-any.whl"
        metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
        metadata += [f"Requires-Dist: {need}" for need in needs]
        metadata += [f"Requires-Python: {python}"] if python else []
        info = f"{module}-{version}.dist-info"
        content = {
            f"{module}.py": f"version = {version!r}\n{code}\n",
            f"{info}/METADATA": "\n".join(metadata) + "\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: planted\nRoot-Is-Purelib: true\nTag: "
            "py3-none-any\n",
        }
        record = "".join(f"{path},{_digest(text)},{len(text)}\n" for path, text in content.items())
        with zipfile.ZipFile(file, "w") as wheel:
            for path, text in {**content, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
                wheel.writestr(zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0)), text)
        if yanked:
            self.yanked.add(file.name)
        if uploaded:
            self.uploaded[file.name] = uploaded
        return file

    def releases(self, name: str, versions: Sequence[str], broken_from: str | None = None) -> None:
        """Versions in their order; from one of them on the module says that it is broken."""
        broken = False
        for version in versions:
            broken = broken or version == broken_from
            self.release(name, version, f"broken = {broken}")

    def simple(self) -> Iterator[tuple[str, list[Path]]]:
        names = sorted({file.name.split("-")[0] for file in self.directory.glob("*.whl")})
        for name in names:
            yield name.replace("_", "-"), sorted(self.directory.glob(f"{name}-*.whl"))

    def write_simple(self, root: Path, kind: str) -> Path:
        """The repository as static files, in HTML or in JSON."""
        for name, files in self.simple():
            page = root / "simple" / name
            page.mkdir(parents=True, exist_ok=True)
            for file in files:
                (page / file.name).write_bytes(file.read_bytes())
            text = self._json(name, files) if kind == "json" else self._html(files)
            (page / "index.html").write_text(text)
        return root

    def _html(self, files: Sequence[Path]) -> str:
        links = []
        for file in files:
            yanked = ' data-yanked="taken back"' if file.name in self.yanked else ""
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            links.append(
                f'<a href="{html.escape(file.name)}#sha256={digest}"{yanked}>{file.name}</a>'
            )
        return "<!DOCTYPE html><html><body>" + "<br/>".join(links) + "</body></html>"

    def _json(self, name: str, files: Sequence[Path]) -> str:
        listed = [
            {
                "filename": file.name,
                "url": file.name,
                "hashes": {"sha256": hashlib.sha256(file.read_bytes()).hexdigest()},
                "size": file.stat().st_size,
                "yanked": "taken back" if file.name in self.yanked else False,
                "upload-time": self.uploaded.get(file.name, "2026-01-01T00:00:00Z"),
            }
            for file in files
        ]
        versions = sorted({str(file["filename"]).split("-")[1] for file in listed})
        meta = {"api-version": "1.1"}
        return json.dumps({"meta": meta, "name": name, "files": listed, "versions": versions})


def _digest(text: str) -> str:
    raw = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
    return f"sha256={raw.decode()}"


class _Pages(http.server.SimpleHTTPRequestHandler):
    kind = "html"
    asked: list[str]

    def __init__(self, *args: object, kind: str, asked: list[str], directory: str) -> None:
        self.kind, self.asked = kind, asked
        super().__init__(*args, directory=directory)  # type: ignore[arg-type]

    def guess_type(self, path: object) -> str:
        if str(path).endswith("index.html") or str(path).endswith("/"):
            return "application/vnd.pypi.simple.v1+json" if self.kind == "json" else "text/html"
        return "application/octet-stream"

    def do_GET(self) -> None:
        self.asked.append(self.headers.get("Authorization", ""))
        super().do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing on the test's own stderr."""


@dataclass(frozen=True)
class Served:
    url: str
    authorizations: Sequence[str]


@contextmanager
def served(index: PlantedIndex, root: Path, kind: str = "html") -> Iterator[Served]:
    index.write_simple(root, kind)
    asked: list[str] = []
    handler = partial(_Pages, kind=kind, asked=asked, directory=str(root))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Served(f"http://127.0.0.1:{server.server_address[1]}/simple", asked)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def frozen(path: Path, versions: Mapping[str, str]) -> Path:
    """What `pip freeze` would have written."""
    path.write_text("".join(f"{name}=={version}\n" for name, version in versions.items()))
    return path
