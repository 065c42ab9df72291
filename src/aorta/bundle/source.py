"""The site, the run directory to pack, and which plain files of it ship; all else is refused."""

import getpass
import os
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from aorta.bundle.archive import MAX_TICKET, RefusedError
from aorta.bundle.layouts import Layout, Policy, is_log, layout_of, matches
from aorta.core.errors import UsageError
from aorta.engine.rundir import PRIVATE, STAMP, RunDir
from aorta.executors.evidence import json_object
from aorta.runtimes.owner import Owner
from aorta.scrub.scrubber import Identity
from aorta.scrub.vocabulary import announces_secret, is_secret_value


def secret_values() -> tuple[str, ...]:
    named = ((name, value) for name, value in os.environ.items() if announces_secret(name))
    return tuple(value for name, value in named if is_secret_value(name, value))


def this_site(run_dir: Path) -> Identity:
    home = os.path.expanduser("~")  # noqa: PTH111 - what cannot be expanded stays
    roots = [home, str(Path.cwd()), str(run_dir.absolute()), str(run_dir.resolve())]
    hosts = [socket.gethostname()]
    result = json_object(run_dir / "result.json") or {}
    if str(result.get("schema", "")).startswith("aorta.isolate/"):
        # It placed its runs on these; devices have numbers, which are no names.
        names = (node["name"] for node in result.get("nodes", []))
        hosts += [name for name in names if not name.isdigit()]
    return Identity(
        users=tuple(dict.fromkeys(name for name in (_user(), Path(home).name) if name.strip("~"))),
        hosts=tuple(dict.fromkeys(name for name in hosts if name)),
        roots=tuple(dict.fromkeys(root for root in roots if root != "/")),
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user need not be in the password file
        return ""


@dataclass(frozen=True)
class RunSource:
    root: Path
    layout: Layout
    ticket: str
    created: str | None  # when the run began; the only time inside a bundle
    reproduces: bool = False  # the run itself saw what ships fail

    def private_documents(self) -> list[dict[str, Any]]:
        """What the run was asked for: it does not ship, but it may name secrets that do."""
        names = ("request.json", "run.json", "known.json")
        found = (json_object(RunDir(self.root).private / name) for name in names)
        return [document for document in found if document]


def open_source(run_dir: Path, ticket: str | None) -> RunSource:
    """The run, described by its own metadata; a ticket on the command line wins."""
    if not run_dir.is_dir():
        raise UsageError("there is no such directory; expected a run directory", where=str(run_dir))
    about, known = RunDir(run_dir).about(), layout_of(run_dir)
    if known is None:
        raise UsageError(
            "this is no run directory; expected one of reduce, triage, bisect, run or launch",
            where=str(run_dir),
        )
    layout, document = known
    named = _text(about, "ticket") or _text(document, "ticket")
    place = run_dir.absolute()  # `reduce --output reduce/TICKET` has no other place for it
    if layout.verb == "reduce" and STAMP.match(place.name):
        named = named or place.parent.name
    found = ticket or named
    if not found:
        raise UsageError("the run names no ticket; give one with --ticket", where=str(run_dir))
    if len(found) > MAX_TICKET or not found.isprintable():
        raise UsageError(f"the ticket is no line of at most {MAX_TICKET}; give one with --ticket")
    _refuse_running(RunDir(run_dir))
    shipped = (json_object(reduction_in(run_dir) / "result.json") or {}).get("shipped_copy")
    reproduces = isinstance(shipped, dict) and shipped.get("self_contained") is True
    created = _text(about, "created") or None
    return RunSource(run_dir, layout, found, created, reproduces)


def reduction_in(root: Path) -> Path:
    """Of a run, or of one that was unpacked: itself, or the stage of a solve whose copy ships."""
    reproducer = (json_object(root / "solve.json") or {}).get("reproducer") or {}
    return root / Path(str(reproducer.get("path", ""))).parent.name


def _refuse_running(run: RunDir) -> None:
    try:
        owner = Owner.from_label(run.lock.read_text())
    except OSError:
        return
    if owner is not None and not owner.is_gone():
        raise RefusedError(
            ["the run is not over; wait for its end, or stop it with Ctrl-C"], where=str(run.path)
        )


def _text(document: dict[str, Any], key: str) -> str:
    value = document.get(key)
    return value.strip() if isinstance(value, str) else ""


@dataclass(frozen=True)
class Member:
    path: str
    file: Path
    executable: bool
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
    for path, file, status in _walk(source.root, found.problems):
        if not source.layout.ships(path, policy, allow_binary=allow_binary):
            found.left_out.append(path)
            continue
        cut = 0 if whole_logs or not is_log(path) else max(0, status.st_size - FIRST - LAST)
        executable = bool(status.st_mode & stat.S_IXUSR)
        ours = matches(path, source.layout.ours)
        found.members.append(Member(path, file, executable, ours, _identity(status), cut))
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
            while piece := file.read(1 << 20):
                yield piece + file.readline()
            after = _identity(os.fstat(handle))
    except OSError as wrong:
        raise RefusedError([f"{member.path}: {wrong.strerror}"], where=member.path) from None
    if not member.identity == before == after:
        problem = f"{member.path}: changed while it was being packed; wait for the run to end"
        raise RefusedError([problem], where=member.path)


def _ends(file: IO[bytes], member: Member) -> Iterator[bytes]:
    """The first lines of a log and a word on what is left out; its last lines are read next."""
    yield file.read(FIRST) + file.readline()
    left_at = file.tell()
    file.seek(max(left_at, member.identity[2] - LAST))
    file.readline()
    yield b"[... %d bytes of this log stay at its site ...]\n" % (file.tell() - left_at)


def _walk(root: Path, problems: list[str]) -> Iterator[tuple[str, Path, os.stat_result]]:
    """A link that stays inside ships as what it leads to."""
    real_root = root.resolve()

    def unreadable(wrong: OSError) -> None:
        problems.append(f"{wrong.filename}: {wrong.strerror}")

    for place, folders, names in os.walk(root, onerror=unreadable, followlinks=True):
        folder = Path(place)
        inside = [name for name in sorted(folders) if name != PRIVATE]
        folders[:] = [name for name in inside if _is_inside(folder / name, real_root, problems)]
        for path in (folder / name for name in sorted(names) if name != PRIVATE):
            if not _is_inside(path, real_root, problems):
                continue
            status = path.stat()
            if stat.S_ISREG(status.st_mode):
                yield path.relative_to(root).as_posix(), path.resolve(), status
            else:
                problems.append(f"{path}: is a pipe, a socket or a device, expected a file")


def _is_inside(path: Path, real_root: Path, problems: list[str]) -> bool:
    """False: a link to where it stands itself, or one that is refused."""
    if not path.is_symlink():
        return True
    target = Path(os.path.realpath(path))  # never fails, as `resolve` does in a circle
    is_there = target.is_relative_to(real_root) and path.exists()
    if not is_there or PRIVATE in target.relative_to(real_root).parts:
        problems.append(f"{path}: is a link that leaves the directory or leads nowhere")
        return False
    return not path.absolute().is_relative_to(target)


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
