"""Tiny images with git and repositories in them, for tests of what happens inside containers."""

import io
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

from support.services.images import Rootfs

_GIT = Path("/usr/bin/git")


def with_git(
    base: Rootfs,
    directory: Path,
    repositories: Mapping[str, Path],
    programs: Mapping[str, str] | None = None,
) -> Rootfs:
    """`base` with git itself, these repositories (path inside -> path here) and programs (path ->
    text).
    """
    directory.mkdir(parents=True, exist_ok=True)
    tarball = directory / "rootfs.tar"
    shutil.copyfile(base.tarball, tarball)
    with tarfile.open(tarball, "a") as archive:
        archive.add(_GIT.resolve(), "usr/bin/git")
        _link(archive, "usr/bin/git-upload-pack", "git")
        for library in _libraries(_GIT):
            archive.add(Path(library).resolve(), library[1:])
        for inside, path in repositories.items():
            archive.add(path, inside.lstrip("/"))
        for inside, text in (programs or {}).items():
            _program(archive, inside.lstrip("/"), text.encode())
    return Rootfs(tarball)


def _link(archive: tarfile.TarFile, name: str, target: str) -> None:
    link = tarfile.TarInfo(name)
    link.type = tarfile.SYMTYPE
    link.linkname = target
    archive.addfile(link)


def _program(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    program = tarfile.TarInfo(name)
    program.mode, program.size = 0o755, len(content)
    archive.addfile(program, io.BytesIO(content))


def _libraries(binary: Path) -> list[str]:
    listing = subprocess.run(("ldd", str(binary)), capture_output=True, text=True, check=True)
    words = [word for line in listing.stdout.splitlines() for word in line.split()]
    return [word for word in words if word.startswith("/")]
