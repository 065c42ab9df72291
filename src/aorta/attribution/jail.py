"""Which files may be read on behalf of others, and how. A refusal never repeats the path.

A path is looked at when it is reported and opened much later; between the two anybody who may write
there can put a link in its place. So the first look only refuses early: what keeps others' files
closed is that `open_straight` follows no link.
"""

import asyncio
import json
import os
import stat
import sys
import time
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO
from weakref import WeakValueDictionary

from aorta.attribution import path_look
from aorta.attribution.path_look import Seen
from aorta.core.errors import UsageError

_WALK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe must not hold us up


class PathRefusedError(UsageError):
    """`code` is for machines: `invalid_path` or `outside_root`."""

    kind = "path"

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class PathJail:
    """Log paths are served only from under the allowed roots, by their true name."""

    def __init__(self, roots: Sequence[Path]) -> None:
        given = [str(root.absolute()).rstrip("/") for root in roots]
        real = [os.path.realpath(root).rstrip("/") for root in roots]
        # A root may itself be a link, its owner chose it: both of its names open the same files.
        self._roots = tuple({*zip(given, real, strict=True), *zip(real, real, strict=True)})

    def admit(self, text: str) -> Path:
        """The path, if it is absolute, holds no `..` and no link, and lies under a root."""
        root, inside = self.check_name(text)
        if path_look.look(root, inside).is_link:
            raise PathRefusedError("outside_root", "a log path may not lead through a link")
        return Path(f"{root}/{inside}")

    def check_name(self, text: str) -> tuple[str, str]:
        """The root a path lies under by its name, and the rest of it. Looks at no file."""
        if "\0" in text or not text.startswith("/") or ".." in text.split("/"):
            raise PathRefusedError(
                "invalid_path", "a log path must be absolute and hold no '..' and no NUL"
            )
        path = os.path.normpath(text)
        for given, real in self._roots:
            if path == given or path.startswith(given + "/"):
                return real, path[len(given) + 1 :]
        raise PathRefusedError("outside_root", "the log lies outside the allowed roots")


def open_straight(path: Path) -> BinaryIO:
    """Open a regular file without following any link. Raises OSError for anything else."""
    *parents, name = path.parts[1:]
    directory = os.open("/", _WALK)
    try:
        for parent in parents:
            inner = os.open(parent, _WALK, dir_fd=directory)
            os.close(directory)
            directory = inner
        descriptor = os.open(name, _READ, dir_fd=directory)
    finally:
        os.close(directory)
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise OSError("not a regular file")
    return file


ADMISSION = 1.0  # seconds a caller waits for the look at the paths it names
LONGEST = 5.0  # seconds after which a path that does not answer is left out
_LONGEST_LINE = 64 << 20
_ADMITTED = 10_000  # paths
_ADMITTED_FOR = 5.0  # seconds for which a look need not be repeated


class SilentError(Exception):
    """The file system did not answer in time."""


class PathChecker:
    """Looks at paths in processes, with a deadline: a mount that hangs holds up all that look
    there, and a thread that waits there would keep the service from ending.

    A process that does not come back is left behind, and while it waits nobody else is sent to the
    same directory. Belongs to the event loop.
    """

    def __init__(self, jail: PathJail) -> None:
        self._jail = jail
        self._idle: list[Process] = []
        # directory -> one look at a time
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._left_behind: dict[str, Process] = {}  # directory -> who waits there
        self._admitted: dict[str, float] = {}  # path -> until when

    async def admit(self, paths: Iterable[str]) -> list[Seen]:
        """Refuse what may not be read. What does not answer is let in: it is opened without
        following a link, or not at all. Returns what was seen, of paths not seen a moment ago.
        """
        now, found = time.monotonic(), []
        unseen = [path for path in paths if self._admitted.get(path, 0.0) < now]
        for path in unseen:
            self._jail.check_name(path)
        for directory, inside in _by_directory(unseen).items():
            with suppress(SilentError):
                seen = await self.look(directory, inside, ADMISSION)
                if any(one.is_link for one in seen):
                    raise PathRefusedError("outside_root", "a log path may not lead through a link")
                found += seen
                if len(self._admitted) > _ADMITTED:
                    self._admitted.clear()
                self._admitted |= dict.fromkeys(inside, now + _ADMITTED_FOR)
        return found

    async def silent(self, paths: Iterable[str]) -> frozenset[str]:
        """Which of these paths do not answer: by directory, then one by one in silent ones."""
        groups = _by_directory(path for path in paths if self._is_allowed(path))
        doubtful = [path for place in await self._unanswered(groups) for path in groups[place]]
        return frozenset(await self._unanswered({path: [path] for path in doubtful}))

    def _is_allowed(self, path: str) -> bool:
        try:
            self._jail.check_name(path)
        except PathRefusedError:
            return False
        return True

    async def _unanswered(self, groups: dict[str, list[str]]) -> list[str]:
        looks = (self.look(place, paths, LONGEST) for place, paths in groups.items())
        told = await asyncio.gather(*looks, return_exceptions=True)
        return [
            place for place, seen in zip(groups, told, strict=True) if isinstance(seen, SilentError)
        ]

    async def look(self, place: str, paths: Iterable[str], patience: float) -> list[Seen]:
        """What these paths are; SilentError where they take longer than `patience` seconds, or hold
        somebody up already. One look at a place at a time: a whole cluster may report it at once.
        """
        asked = [self._jail.check_name(path) for path in paths]
        async with self._turns.setdefault(place, asyncio.Lock()):
            waiting = self._left_behind.get(place)
            if waiting is not None and waiting.returncode is None:
                raise SilentError
            process = self._idle.pop() if self._idle else await _started()
            try:
                async with asyncio.timeout(patience):
                    seen = await _answer_of(process, asked)
            except BaseException as wrong:
                with suppress(ProcessLookupError):
                    process.kill()
                if not isinstance(wrong, (TimeoutError, OSError, ValueError)):
                    raise
                self._left_behind[place] = process
                raise SilentError from None
            self._idle.append(process)
            return seen


async def _started() -> Process:
    command = (sys.executable, "-I", "-S", path_look.__file__)
    process = await create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, limit=_LONGEST_LINE)
    assert process.stdout is not None
    await process.stdout.readline()  # it is ready: from now on only the file system takes time
    return process


async def _answer_of(process: Process, asked: list[tuple[str, str]]) -> list[Seen]:
    """Raises OSError or ValueError where the process was killed."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(asked).encode() + b"\n")
    await process.stdin.drain()
    return [Seen(*seen) for seen in json.loads(await process.stdout.readline())]


def _by_directory(paths: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in dict.fromkeys(paths):
        found.setdefault(str(Path(path).parent), []).append(path)
    return found
