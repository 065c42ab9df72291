"""Tiny images made from what Debian already put on this machine; nothing is downloaded."""

import io
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_PYTHON = "/usr/bin/python3"
_BASH = "/bin/bash"
_LEFT_OUT = {"dist-packages", "test", "idlelib", "tkinter", "ensurepip", "lib2to3", "distutils"}
_TO_BUILD = "config-"  # 25 MB of libraries for those who build an interpreter


@dataclass(frozen=True)
class Rootfs:
    """The file system of an image, as one tar file."""

    tarball: Path


def busybox_rootfs(directory: Path) -> Rootfs:
    """A shell and the usual small programs: 2 MB."""
    tarball = directory / "busybox.tar"
    with tarfile.open(tarball, "w") as archive:
        _add_busybox(archive)
    return Rootfs(tarball)


def python_rootfs(directory: Path) -> Rootfs:
    """The same with Debian's python3 and its standard library, compiled as it is on a machine: else
    each start compiles it.
    """
    tarball = directory / "python.tar"
    with tarfile.open(tarball, "w") as archive:
        _add_busybox(archive)
        _add_python(archive)
    return Rootfs(tarball)


def bash_layer(directory: Path) -> Path:
    """Bash, which other images than these have, and what it needs."""
    path = directory / "bash.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(Path(_BASH).resolve(), "bin/bash")
        for library in _shared_libraries([Path(_BASH)]):
            archive.add(Path(library).resolve(), library[1:])
    return path


def _add_busybox(archive: tarfile.TarFile) -> None:
    for name in ("bin", "etc", "proc", "root", "sys", "tmp", "usr", "usr/bin", "var"):
        _add_directory(archive, name)
    archive.add("/usr/bin/busybox", "bin/busybox")
    applets = subprocess.run(("busybox", "--list"), capture_output=True, text=True, check=True)
    for applet in applets.stdout.split():
        if applet != "busybox":
            _add_link(archive, f"bin/{applet}", "busybox")
    _add_text(archive, "etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
    _add_text(archive, "etc/group", "root:x:0:\n")


def _add_python(archive: tarfile.TarFile) -> None:
    binary = Path(_PYTHON).resolve()
    library = Path(f"/usr/lib/{binary.name}")
    extensions = sorted((library / "lib-dynload").glob("*.so"))
    archive.add(binary, "usr/bin/python3")
    archive.add(library, str(library)[1:], filter=_wanted)
    for path in _shared_libraries((binary, *extensions)):
        archive.add(Path(path).resolve(), path[1:])


def _wanted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    parts = Path(member.name).parts
    unwanted = _LEFT_OUT.intersection(parts) or any(part.startswith(_TO_BUILD) for part in parts)
    return None if unwanted else member


def _shared_libraries(binaries: Iterable[Path]) -> list[str]:
    listed = subprocess.run(("ldd", *binaries), capture_output=True, text=True, check=False)
    return sorted(set(_paths(listed.stdout)))


def _paths(listing: str) -> Iterator[str]:
    """The absolute paths of `ldd`: `name => /path (address)`, or `/path (address)` for the
    loader.
    """
    for line in listing.splitlines():
        path = line.rpartition("=>")[2].partition("(")[0].strip()
        if path.startswith("/") and "(" in line:
            yield path


def _add_directory(archive: tarfile.TarFile, name: str) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
    archive.addfile(member)


def _add_link(archive: tarfile.TarFile, name: str, target: str) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    archive.addfile(member)


def _add_text(archive: tarfile.TarFile, name: str, text: str) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(text.encode())
    archive.addfile(member, io.BytesIO(text.encode()))
