"""Checks of paths, in processes of their own: a mount that hangs holds up whoever looks there, and
cannot be interrupted.

Not even the end of a process interrupts it: with a thread that waits there the service could not
end. A process that does not come back in time is given up, and while it waits, nobody else is sent
to the same place.
"""

import asyncio
import json
import sys
import threading
import time
from asyncio.subprocess import PIPE, Process
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from aorta.attribution import path_look
from aorta.attribution.jail import PathJail, PathRefusedError

T = TypeVar("T")

DOOR = 1.0  # seconds a caller waits for the look at the paths it names
LONGEST = 5.0  # seconds after which a path that does not answer is left out
_ENOUGH, _MOST = 2, 32  # processes that look; more than enough only while some do not come back
_SOON = 1.0  # seconds
_LONGEST_LINE = 64 << 20
_SEEN = 10_000  # paths
_SEEN_FOR = 5.0  # seconds for which a look at the door need not be repeated


class SilentError(Exception):
    """The file system did not answer in time."""


class Seen(NamedTuple):
    what: str  # a word of `path_look`
    size: int


_Asked = tuple[list[tuple[str, str]], asyncio.Future[list[Seen]]]


class PathChecker:
    """Belongs to the event loop."""

    def __init__(self, jail: PathJail) -> None:
        self._jail = jail
        self._idle: asyncio.Queue[_CheckingProcess] = asyncio.Queue()
        self._lookers = 0
        self._lost: dict[str, Process] = {}  # place -> who waits there
        self._waiting: dict[
            tuple[str, float], list[_Asked]
        ] = {}  # where somebody looks -> who asks next
        self._tasks: set[asyncio.Task[None]] = set()
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
                for seen in await self.look(directory, inside, DOOR):
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
        """Which of these paths do not answer: asked directory by directory, and one by one where a
        directory has such a path.
        """
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
        """What these paths are; SilentError where one of them takes longer than `patience` seconds,
        or holds somebody up already.

        What is asked about a place while somebody looks there is one question, asked next: a whole
        cluster may tell of it at once.
        """
        question = [self._jail.check_name(path) for path in paths]
        answer: asyncio.Future[list[Seen]] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.get((place, patience))
        if waiting is not None:
            waiting.append((question, answer))
        else:
            self._waiting[place, patience] = [(question, answer)]
            task = asyncio.create_task(self._answer_all(place, patience))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await answer

    async def _answer_all(self, place: str, patience: float) -> None:
        while batch := self._waiting[place, patience]:
            self._waiting[place, patience] = []
            asked = [where for question, _ in batch for where in question]
            try:
                seen = iter(await self._look(place, asked, patience))
            except (SilentError, OSError):
                seen = None
            for question, answer in batch:
                told = None if seen is None else [next(seen) for _ in question]
                if answer.done():  # whoever asked is gone
                    continue
                if told is None:
                    answer.set_exception(SilentError())
                else:
                    answer.set_result(told)
        del self._waiting[place, patience]

    async def _look(
        self, place: str, question: list[tuple[str, str]], patience: float
    ) -> list[Seen]:
        looker = await self._free_looker()
        if self._is_waited_at(place):
            self._idle.put_nowait(looker)
            raise SilentError
        try:
            seen = await looker.ask(question, patience)
        except BaseException as wrong:
            looker.give_up()
            self._lookers -= 1
            if isinstance(wrong, SilentError):
                self._lost[place] = looker.process
            raise
        self._idle.put_nowait(looker)
        return seen

    async def _free_looker(self) -> "_CheckingProcess":
        """One that is free soon; else a new one, for those there are may wait for a mount that
        hangs.
        """
        if not self._idle.empty() or self._lookers >= _MOST:
            return await self._idle.get()
        if self._lookers >= _ENOUGH:
            with suppress(TimeoutError):
                return await asyncio.wait_for(self._idle.get(), _SOON)
        self._lookers += 1
        try:
            return await _CheckingProcess.start()
        except BaseException:
            self._lookers -= 1
            raise

    def _is_waited_at(self, place: str) -> bool:
        if place in self._lost and self._lost[place].returncode is not None:
            del self._lost[place]  # it came back: the mount answers again
        return place in self._lost


class _CheckingProcess:
    """One process that looks, one question at a time."""

    def __init__(self, process: Process) -> None:
        self.process = process
        assert process.stdin is not None
        assert process.stdout is not None
        self._asked, self._answers = process.stdin, process.stdout

    @classmethod
    async def start(cls) -> "_CheckingProcess":
        command = (sys.executable, "-I", "-S", path_look.__file__)
        looker = cls(
            await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, limit=_LONGEST_LINE
            )
        )
        await looker._answers.readline()  # it is ready: from now on only the file system takes time
        return looker

    async def ask(self, question: list[tuple[str, str]], patience: float) -> list[Seen]:
        self._asked.write(json.dumps(question).encode() + b"\n")
        try:
            async with asyncio.timeout(patience):
                await self._asked.drain()
                line = await self._answers.readline()
        except (TimeoutError, OSError):
            raise SilentError from None
        if not line:  # it was killed
            raise SilentError
        return [Seen(*seen) for seen in json.loads(line)]

    def give_up(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()


def in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """In a thread that is not waited for when the program ends, as those of a pool are."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def tell(how: Callable[[Any], None], what: object) -> None:
        if not future.done():  # whoever asked may be gone
            how(what)

    def run() -> None:
        try:
            told: tuple[Callable[[Any], None], object] = (future.set_result, work())
        except Exception as wrong:  # noqa: BLE001  # whoever asked hears of it
            told = (future.set_exception, wrong)
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, *told)

    threading.Thread(target=run, name="aside", daemon=True).start()
    return future


def _by_directory(paths: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in dict.fromkeys(paths):
        found.setdefault(str(Path(path).parent), []).append(path)
    return found
