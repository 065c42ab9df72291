"""Where trials on other machines are held together: who waits for a place, who has dialled home,
who is lost.

A trial waits as a ticket. The scheduler starts a worker for it somewhere; the worker dials home,
shows its ticket and gets the trial, and from then on early stop, cancel, logs and the end go over
that channel. The scheduler is asked only what no channel can tell: why a ticket never showed up,
and why a channel broke.

All channels live on one asyncio loop in a thread of their own, so that a trial goes on while nobody
waits for it. Nothing on that loop blocks: the scheduler's commands and the files are left to a
thread each.
"""

import asyncio
import json
import queue
import secrets
import signal
import tarfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from aorta.core.errors import InfrastructureError
from aorta.core.trial import Resources, Start, StreamEnd, TrialEnd, TrialSpec
from aorta.executors import channel
from aorta.executors.channel_server import BlockingThread, Connection, listening
from aorta.executors.framing import FrameError
from aorta.executors.messages import MAX_LOG_BYTES, SharedMetrics, end_from_json, trial_to_json
from aorta.executors.scheduler import Batch, Gone, Scheduler
from aorta.executors.warm import WarmStarts
from aorta.executors.worker import CHANNEL_VARIABLE

_TOGETHER = 0.02  # trials started within this time are asked for together
_LOOK_EVERY = 0.5
_EXPLANATION_SECONDS = 5.0  # how long a scheduler may take to say why a channel broke
_CLOSE_PATIENCE = 10.0  # how long workers may take to report, beyond the grace of their trials
_FAREWELL_SECONDS = 8.0  # and how long the scheduler may, to take its queue back


_T = TypeVar("_T")


@dataclass(eq=False)
class _Held:
    """A trial that was started and has not ended, and how far it has come."""

    trial: TrialSpec
    marker: Path
    ticket: str = ""
    connection: Connection | None = None
    cancelled_at: float | None = None
    broke_at: float | None = None
    doubted_at: float | None = None  # the scheduler says it is over, and the channel is up
    node: str = ""

    @property
    def cancelled(self) -> bool:
        return self.cancelled_at is not None


class Coordinator(threading.Thread):
    """Everything but the four public methods runs on its own loop, so nothing here needs a lock."""

    def __init__(self, scheduler: Scheduler, grace: float, warm: WarmStarts | None) -> None:
        super().__init__(name="aorta-cluster", daemon=True)
        self.ends: queue.SimpleQueue[TrialEnd | BaseException] = queue.SimpleQueue()
        self.slots = scheduler.slots()
        self._scheduler = scheduler
        self._grace = grace
        self._warm = warm
        self._imports: list[Mapping[str, Any]] = []  # of commands, as the first workers saw them
        self._secret = secrets.token_hex(32)
        self._addresses = scheduler.addresses()
        self._listener = listening(scheduler.ports())
        self._loop = asyncio.new_event_loop()
        self._asking = BlockingThread("aorta-scheduler")
        self._files = BlockingThread("aorta-files")
        self._metrics = SharedMetrics()
        self._batches = 0
        self._queued: list[_Held] = []
        self._held: dict[str, _Held] = {}  # by ticket
        self._withdrawn: list[str] = []
        self._connections: set[Connection] = set()
        # Something was queued or withdrawn, or the scheduler has something to say.
        self._news = asyncio.Event()
        self._ended = asyncio.Event()
        self._closing = False

    # -- what other threads may call ---------------------------------------------------------------

    def start_trial(self, trial: TrialSpec) -> None:
        """Its directory gets a marker by which a worker can tell whether it sees the same
        directory.
        """
        marker = trial.trial_dir / f".aorta-{secrets.token_hex(8)}"
        marker.touch()
        self._call(lambda: self._queue(_Held(trial, marker)))

    def cancel_trial(self, trial_id: str) -> None:
        self._call(lambda: self._cancel([h for h in self._everybody() if h.trial.id == trial_id]))

    def finish(self) -> None:
        """Cancel everything, wait for the last ends, leave nothing in the scheduler's queue."""
        self._call(self._begin_to_close)
        self.join()

    def _call(self, what: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(what)

    # -- the loop ----------------------------------------------------------------------------------

    def run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as wrong:  # noqa: BLE001 - raised again where somebody waits for a trial
            self.ends.put(wrong)
        finally:
            self._leave()

    async def _serve(self) -> None:
        if self._scheduler.news is not None:
            self._loop.add_reader(self._scheduler.news, self._news.set)
        server = await asyncio.start_server(self._welcome, sock=self._listener)
        talking = asyncio.create_task(self._talk_to_the_scheduler())
        closing = asyncio.create_task(self._until_closed())
        try:
            await asyncio.wait([talking, closing], return_when=asyncio.FIRST_COMPLETED)
            if talking.done():
                talking.result()
        finally:
            if self._scheduler.news is not None:
                self._loop.remove_reader(self._scheduler.news)
            server.close()
            for task in (talking, closing):
                task.cancel()
            for connection in list(self._connections):
                connection.close()  # its worker ends whatever it still holds, then itself
            await self._farewell()

    async def _until_closed(self) -> None:
        while not self._closing:
            await self._ended.wait()
            self._ended.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._grace + _CLOSE_PATIENCE):
                while self._held or self._queued:
                    await self._ended.wait()
                    self._ended.clear()

    async def _farewell(self) -> None:
        """Behind whatever the scheduler is being asked; one that does not answer keeps nobody."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await self._asking.do(self._scheduler.close)
            return
        threading.Thread(target=self._scheduler.close, daemon=True).start()

    def _leave(self) -> None:
        for held in self._everybody():
            held.marker.unlink(missing_ok=True)
        self._asking.end()
        self._files.end()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        with suppress(asyncio.CancelledError, RuntimeError):
            self._loop.run_until_complete(asyncio.sleep(0))
        self._listener.close()
        self._loop.close()

    def _queue(self, held: _Held) -> None:
        self._metrics.started(held.trial)
        self._queued.append(held)
        self._news.set()

    def _begin_to_close(self) -> None:
        self._closing = True
        self._cancel(self._everybody())
        self._ended.set()

    def _everybody(self) -> list[_Held]:
        return [*self._queued, *self._held.values()]

    def _cancel(self, unwanted: Sequence[_Held]) -> None:
        for held in unwanted:
            if not held.cancelled:
                held.cancelled_at = time.monotonic()
                if held.connection is not None:
                    held.connection.send({"op": "cancel"})
                else:
                    self._end(held, _end(held, cancelled=True))

    def _end(self, held: _Held, end: TrialEnd) -> None:
        held.marker.unlink(missing_ok=True)
        if held in self._queued:
            self._queued.remove(held)
        if self._held.pop(held.ticket, None) is not None and held.connection is None:
            self._withdrawn.append(held.ticket)
            self._news.set()
        if held.connection is not None:
            held.connection.close()
            held.connection = None
        self.ends.put(self._metrics.ended(end))
        self._ended.set()

    # -- channels ----------------------------------------------------------------------------------

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        self._connections.add(connection)
        try:
            if await connection.introduced(self._secret):
                held = self._recognised(connection)
                if held is not None:
                    await self._listen(connection, held)
        except (FrameError, OSError):  # not our language, or gone
            pass
        except (AttributeError, KeyError, TypeError, ValueError) as wrong:
            # It knows the secret and speaks another version of our language.
            self._reject(connection, f"its worker sent what cannot be understood: {wrong}")
        finally:
            self._connections.discard(connection)
            self._broken(connection)

    def _recognised(self, connection: Connection) -> _Held | None:
        """Give the bearer of a ticket its trial; one that nobody waits for any more is sent
        away.
        """
        held = self._held.get(connection.ticket)
        if held is None or held.cancelled or held.connection is not None:
            return None
        held.connection, held.node = connection, str(connection.about.get("node", ""))
        held.broke_at = None
        trial = held.trial if self._warm else replace(held.trial, start=Start.COLD)
        connection.send(
            {
                "op": "run",
                "trial": trial_to_json(trial),
                "imports": self._imports,
                "marker": held.marker.name,
                "ships": self._scheduler.ships,
                "srun": self._scheduler.srun(held.trial),
                "grace": self._grace,
                "max_log_bytes": MAX_LOG_BYTES,
            }
        )
        return held

    async def _listen(self, connection: Connection, held: _Held) -> None:
        while (message := await connection.receive()) is not None:
            match message["op"]:
                case "log":
                    await self._on_disk(
                        held, partial(channel.append_log, held.trial.trial_dir, message)
                    )
                case "ship":
                    await self._ship(connection, held)
                case "ended" if message["dismissed"] and not held.cancelled:
                    return  # the scheduler says why
                case "ended":
                    await self._on_disk(
                        held, partial(channel.keep_files, held.trial.trial_dir, message)
                    )
                    end = end_from_json(message["end"], held.trial)
                    self._learn(message.get("imports"))
                    if end.lost and held.node:
                        self._scheduler.avoid(held.node)
                    self._end(held, replace(end, cancelled=held.cancelled))
                    return

    def _learn(self, imports: Mapping[str, Any] | None) -> None:
        if imports is not None and self._warm is not None:
            self._warm.learn(imports)
            if all(imports["key"] != one["key"] for one in self._imports):
                self._imports.append(imports)

    async def _ship(self, connection: Connection, held: _Held) -> None:
        for pack in (
            partial(channel.pack_working_directory, held.trial.cwd),
            partial(channel.pack_trial_directory, held.trial.trial_dir),
        ):
            connection.send({"op": "pack"}, await self._on_disk(held, pack))
            await connection.sent()

    async def _on_disk(self, held: _Held, what: Callable[[], _T]) -> _T:
        """Done on another thread; a disk that refuses loses this trial and no other."""
        try:
            return await self._files.do(what)
        except InfrastructureError as wrong:
            reason = str(wrong)
        except (OSError, tarfile.TarError) as wrong:
            reason = f"{held.trial.trial_dir}: {getattr(wrong, 'strerror', None) or wrong}"
        self._end(held, _end(held, lost=reason))
        raise ConnectionAbortedError(reason)

    def _reject(self, connection: Connection, why: str) -> None:
        held = self._held.get(connection.ticket)
        if held is not None and held.connection is connection:
            self._end(held, _end(held, lost=why))

    def _broken(self, connection: Connection) -> None:
        """The channel of a trial that has not ended is a question for the scheduler."""
        connection.close()
        held = self._held.get(connection.ticket)
        if held is not None and held.connection is connection:
            held.connection, held.broke_at = None, time.monotonic()
            if held.cancelled:
                self._end(held, _end(held, cancelled=True))
            self._news.set()

    # -- the scheduler -----------------------------------------------------------------------------

    async def _talk_to_the_scheduler(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY):
                    await self._news.wait()
            self._news.clear()
            if self._queued:
                await self._ask_for_places()
            await self._look()
            if self._withdrawn:
                tickets, self._withdrawn = self._withdrawn, []
                await self._asking.do(partial(self._scheduler.withdraw, tickets))

    async def _ask_for_places(self) -> None:
        count = 0
        while count != len(self._queued):
            count = len(self._queued)
            await asyncio.sleep(_TOGETHER)
        queued, self._queued = self._queued, []
        wants: dict[Resources, list[_Held]] = {}
        for held in queued:
            wants.setdefault(held.trial.resources, []).append(held)
        for resources, group in wants.items():
            self._batches += 1
            batch = Batch(str(self._batches), [held.trial for held in group], resources)
            for index, held in enumerate(group):
                held.ticket = batch.ticket(index)
                self._held[held.ticket] = held
            variables = {CHANNEL_VARIABLE: self._invitation()}
            await self._asking.do(partial(self._scheduler.submit, batch, variables))

    def _invitation(self) -> str:
        port = self._listener.getsockname()[1]
        addresses = [(host, port) for host in self._addresses]
        return json.dumps({"addresses": addresses, "secret": self._secret})

    async def _look(self) -> None:
        tickets = list(self._held)
        doubtful = [ticket for ticket, held in self._held.items() if held.broke_at is not None]
        self.slots, told = await self._asking.do(
            lambda: (self._scheduler.slots(), dict(self._scheduler.look(tickets, doubtful)))
        )
        now = time.monotonic()
        for held in list(self._held.values()):
            since = now - (held.cancelled_at or now)
            if since > self._grace + _CLOSE_PATIENCE:  # told to stop, and silent
                self._end(held, _end(held, cancelled=True))
        for ticket in doubtful:
            broke_at = self._held[ticket].broke_at if ticket in self._held else None
            if broke_at is not None and now - broke_at > _EXPLANATION_SECONDS:
                told.setdefault(ticket, Gone("the channel to its worker broke"))
        for ticket, gone in told.items():
            if ticket in self._held:
                self._believe(self._held[ticket], gone, now)

    def _believe(self, held: _Held, gone: Gone, now: float) -> None:
        if held.connection is not None:
            # Its report may be on the way; a machine without power sends none.
            held.doubted_at = held.doubted_at or now
            if now - held.doubted_at < _EXPLANATION_SECONDS:
                return
            held.connection.close()
            held.connection = None
        if gone.out_of_memory:  # the job's own limit ended it: that is the program's end
            self._end(held, _end(held, signal=int(signal.SIGKILL), out_of_memory=True))
            return
        if held.node:
            self._scheduler.avoid(held.node)
        where = f" (on {held.node})" if held.node else ""
        self._end(held, _end(held, lost=f"{gone.why}{where}"))


def _end(held: _Held, **facts: Any) -> TrialEnd:
    """The end of a trial that could not speak for itself."""
    directory = held.trial.trial_dir
    return TrialEnd(
        held.trial.id,
        StreamEnd(directory / "stdout.log"),
        StreamEnd(directory / "stderr.log"),
        started_at=time.time(),
        host=held.node,
        **facts,
    )
