"""Finds the files that ship and reads them, refusing whatever is not simply a file of this
directory.
"""

import os
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from aorta.bundle.layouts import Policy, is_log, matches
from aorta.bundle.manifest import RefusedError
from aorta.bundle.source import RunSource
from aorta.engine.rundir import PRIVATE


@dataclass(frozen=True)
class Member:
    """One file that ships. `path` is relative, with `/`, as it is called here."""

    path: str
    file: Path
    executable: bool
    binary: bool  # leaves as it is, because the policy says so
    ours: bool  # a document that a verb wrote
    identity: tuple[int, ...]
    cut: int = 0  # so many bytes in the middle of a log stay here


@dataclass
class Collected:
    members: list[Member] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


FIRST, LAST = 1 << 20, 7 << 20
"""Bytes of each log that ship; nobody reads a gigabyte of one."""


def collect(
    source: RunSource, policy: Policy, *, whole_logs: bool = False, allow_binary: bool = False
) -> Collected:
    """Everything that ships, everything that does not, and a line for everything that must not."""
    found = Collected()
    links = Counter[tuple[int, int]]()
    left: dict[str, tuple[int, int]] = {}
    total = 0
    for path, file, status in _walk(source.root, found.problems):
        inode = (status.st_dev, status.st_ino)
        links[inode] += 1
        if not source.layout.ships(path, policy, allow_binary=allow_binary):
            left[path] = inode
            continue
        cut = 0 if whole_logs or not is_log(path) else max(0, status.st_size - FIRST - LAST)
        size = status.st_size - cut
        if size > policy.max_file_mib * 2**20:
            found.problems.append(
                f"{path}: is larger than {policy.max_file_mib} MiB; exclude it, or raise "
                "max_file_mib in a policy"
            )
        total += size
        executable = bool(status.st_mode & stat.S_IXUSR)
        is_binary = matches(path, policy.binary)
        ours = matches(path, source.layout.ours)
        found.members.append(
            Member(path, file, executable, is_binary, ours, _identity(status), cut)
        )
    packed = {member.identity[:2] for member in found.members}
    found.left_out = [path for path, inode in left.items() if inode not in packed]
    found.problems.extend(_outside_links(found.members, links))
    if total > policy.max_total_mib * 2**20:
        found.problems.append(
            f"the files are larger than {policy.max_total_mib} MiB together; exclude some, or "
            "raise max_total_mib in a policy"
        )
    if not found.members and not found.problems:
        found.problems.append("the directory holds no file that ships")
    return found


def read_member(member: Member) -> Iterator[bytes]:
    """The bytes of a file that did not change since it was found, some whole lines at a time."""
    try:
        handle = os.open(member.file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            before = _identity(os.fstat(handle))
            if member.cut:
                yield from _ends(file, member)
            while lines := file.readlines(1 << 20):
                yield b"".join(lines)
            after = _identity(os.fstat(handle))
    except OSError as wrong:
        raise RefusedError([f"{member.path}: {wrong.strerror}"], where=member.path) from None
    if not member.identity == before == after:
        raise RefusedError(
            [f"{member.path}: changed while it was being packed; wait for the run to end"],
            where=member.path,
        )


def _ends(file: IO[bytes], member: Member) -> Iterator[bytes]:
    """The first lines of a log and a word on what is left out; its last lines are read next."""
    yield b"".join(file.readlines(FIRST))
    left_at = file.tell()
    file.seek(max(left_at, member.identity[2] - LAST))
    file.readline()
    yield b"[... %d bytes of this log stay at its site ...]\n" % (file.tell() - left_at)


def _walk(root: Path, problems: list[str]) -> Iterator[tuple[str, Path, os.stat_result]]:
    real_root = root.resolve()
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as wrong:
            problems.append(f"{_inside(folder, root)}: {wrong.strerror}")
            continue
        for entry in entries:
            path = Path(entry.path)
            if entry.name == PRIVATE:
                continue  # of the run, of a stage, of a trial: never part of what ships
            name = _inside(path, root)
            if entry.is_symlink():
                target = _followed(path, name, real_root, problems)
                if target is None or path.absolute().is_relative_to(target):
                    continue  # refused above, or a way back to where it stands
                if target.is_dir():
                    waiting.append(path)  # its files ship under the name that the run gave them
                    continue
                path = target
            status = path.lstat()
            if stat.S_ISDIR(status.st_mode):
                waiting.append(path)
            elif stat.S_ISREG(status.st_mode):
                yield name, path, status
            else:
                problems.append(f"{name}: is a {_special(status.st_mode)}, expected a file")


def _followed(link: Path, name: str, real_root: Path, problems: list[str]) -> Path | None:
    try:
        target = link.resolve(strict=True)
    except (OSError, RuntimeError):
        problems.append(f"{name}: is a link to nothing; remove it")
        return None
    if not target.is_relative_to(real_root):
        problems.append(
            f"{name}: is a link that leaves the directory; replace it by the file itself"
        )
        return None
    if PRIVATE in target.relative_to(real_root).parts:
        problems.append(f"{name}: is a link into the private state of the run; remove it")
        return None
    return target


def _outside_links(members: list[Member], links: Counter[tuple[int, int]]) -> Iterator[str]:
    for member in members:
        device, inode, *_rest, count = member.identity
        if count > links[device, inode]:
            yield (
                f"{member.path}: is a hard link to a file outside the directory; replace it by "
                "a copy"
            )


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_nlink)


def _inside(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def _special(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "named pipe"
    if stat.S_ISSOCK(mode):
        return "socket"
    return "device"
