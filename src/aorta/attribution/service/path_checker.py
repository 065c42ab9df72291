"""Checks of paths, in processes with a deadline: a mount that hangs holds up all that look there,
and cannot be interrupted.

Not even the end of a process interrupts it: with a thread that waits there the service could not
end. A process that does not come back in time is left behind, and while it waits, nobody else is
sent to the same place.
"""

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from aorta.attribution import path_look
from aorta.attribution.jail import PathJail, PathRefusedError

ADMISSION = 1.0  # seconds a caller waits for the look at the paths it names
LONGEST = 5.0  # seconds after which a path that does not answer is left out
_MOST = 32  # processes that look at the same time
_LONGEST_LINE = 64 << 20
_SEEN = 10_000  # paths
_SEEN_FOR = 5.0  # seconds for which an admission need not be repeated


class SilentError(Exception):
    """The file system did not answer in time."""


class Seen(NamedTuple):
    what: str  # a word of `path_look`
    size: int


class PathChecker:
    """Belongs to the event loop."""

    def __init__(self, jail: PathJail) -> None:
        self._jail = jail
        self._idle: list[Process] = []
        self._free = asyncio.Semaphore(_MOST)
        self._left_behind: dict[str, Process] = {}  # place -> who waits there
        self._turns: dict[str, asyncio.Lock] = {}  # place -> one look at a time
        self._admitted: OrderedDict[str, float] = OrderedDict()  # path -> until when

    async def admit(self, paths: Iterable[str]) -> None:
        """Refuse what may not be read. What does not answer is let in: it is opened without
        following a link, or not at all.
        """
        unseen = [path for path in paths if not self.was_seen(path)]
        for path in unseen:
            self._jail.check_name(path)
        for directory, inside in _by_directory(unseen).items():
            with suppress(SilentError):
                for seen in await self.look(directory, inside, ADMISSION):
                    self._jail.check_seen(seen.what)
                self.remember(inside)

    def was_seen(self, what: str) -> bool:
        return self._admitted.get(what, 0) >= time.monotonic()

    def remember(self, paths: Iterable[str]) -> None:
        """Nobody need look there again for some seconds."""
        until = time.monotonic() + _SEEN_FOR
        for path in paths:
            self._admitted[path] = until
            self._admitted.move_to_end(path)
        while len(self._admitted) > _SEEN:
            self._admitted.popitem(last=False)

    async def silent(self, paths: Iterable[str]) -> frozenset[str]:
        """Which of these paths do not answer: by directory, then one by one in silent ones."""
        groups = _by_directory(paths)
        answers = await self._answers(groups)
        doubtful = [path for place, well in answers.items() if not well for path in groups[place]]
        alone = await self._answers({path: [path] for path in doubtful})
        return frozenset(path for path, well in alone.items() if not well)

    async def _answers(self, groups: Mapping[str, list[str]]) -> dict[str, bool]:
        told = await asyncio.gather(*(self._answer(*group) for group in groups.items()))
        return dict(zip(groups, told, strict=True))

    async def _answer(self, place: str, paths: list[str]) -> bool:
        try:
            await self.look(place, paths, LONGEST)
        except SilentError:
            return False
        except PathRefusedError:
            pass  # it is not looked at later either
        return True

    async def look(self, place: str, paths: Iterable[str], patience: float) -> list[Seen]:
        """What these paths are; SilentError where they take longer than `patience` seconds, or hold
        somebody up already. One look at a place at a time: a whole cluster may tell of it at once.
        """
        asked = [self._jail.check_name(path) for path in paths]
        turn = self._turns.setdefault(place, asyncio.Lock())
        try:
            async with turn:
                return await self._look(place, asked, patience)
        finally:
            if not turn.locked():
                self._turns.pop(place, None)

    async def _look(self, place: str, asked: list[tuple[str, str]], patience: float) -> list[Seen]:
        for other in [o for o, wait in self._left_behind.items() if wait.returncode is not None]:
            del self._left_behind[other]  # the mount answers again
        if place in self._left_behind:
            raise SilentError
        async with self._free:
            process = self._idle.pop() if self._idle else await _started()
            try:
                seen = await _answer_of(process, asked, patience)
            except BaseException as wrong:
                with suppress(ProcessLookupError):
                    process.kill()
                if isinstance(wrong, SilentError):
                    self._left_behind[place] = process
                raise
            self._idle.append(process)
            return seen


async def _started() -> Process:
    command = (sys.executable, "-I", "-S", path_look.__file__)
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, limit=_LONGEST_LINE
    )
    assert process.stdout is not None
    await process.stdout.readline()  # it is ready: from now on only the file system takes time
    return process


async def _answer_of(process: Process, asked: list[tuple[str, str]], patience: float) -> list[Seen]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(asked).encode() + b"\n")
    try:
        async with asyncio.timeout(patience):
            await process.stdin.drain()
            line = await process.stdout.readline()
    except (TimeoutError, OSError):
        raise SilentError from None
    if not line:  # it was killed
        raise SilentError
    return [Seen(*seen) for seen in json.loads(line)]


def _by_directory(paths: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in dict.fromkeys(paths):
        found.setdefault(str(Path(path).parent), []).append(path)
    return found
