"""The switchboard: one thread that holds the lines to all supervisors of a cluster executor.

A trial waits as a ticket. The scheduler starts an worker for it somewhere; the worker dials home, shows its ticket and
gets the trial, and from then on early stop, cancel, logs and the end go over that line. The scheduler is asked only what
no line can tell: why a ticket never showed up, and why a line broke.
"""

import json
import os
import queue
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aorta.core.errors import InfrastructureError
from aorta.core.trial import Resources, StreamEnd, TrialEnd, TrialSpec
from aorta.executors.channel import Line, pack_trial_directory, pack_working_directory, unpack
from aorta.executors.messages import end_from_json, trial_to_json
from aorta.executors.scheduler import Batch, Scheduler
from aorta.executors.worker import CHANNEL_VARIABLE

_TOGETHER = 0.02  # trials started within this time are asked for together
_LOOK_EVERY = 0.5
_EXPLANATION_SECONDS = 5.0  # how long a scheduler may take to say why a line broke
_STRANGER_SECONDS = 30.0
_CLOSE_PATIENCE = 20.0


@dataclass(frozen=True)
class Limits:
    grace: float
    max_log_bytes: int


@dataclass
class _Held:
    """A trial that was started and has not ended, and how far it has come."""

    trial: TrialSpec
    marker: Path
    ticket: str = ""
    line: Line | None = None
    cancelled: bool = False
    broke_at: float | None = None
    doubted_at: float | None = None  # the scheduler says it is over, and the line is up
    node: str = ""


class Switchboard(threading.Thread):
    """Everything but the three public methods runs on its own thread, so nothing here needs a lock."""

    def __init__(self, scheduler: Scheduler, limits: Limits) -> None:
        super().__init__(name="aorta-switchboard", daemon=True)
        self.ends: queue.SimpleQueue[TrialEnd | BaseException] = queue.SimpleQueue()
        self.slots = scheduler.slots()
        self._scheduler = scheduler
        self._limits = limits
        self._secret = secrets.token_hex(32)
        self._commands: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._batches = 0
        self._queued: list[_Held] = []
        self._queued_at = 0.0
        self._held: dict[str, _Held] = {}  # by ticket
        self._withdrawn: list[str] = []
        self._strangers: set[Line] = set()
        self._looked_at = 0.0
        self._closing: float | None = None  # when to stop waiting for the last ends
        self._wake, self._waker = os.pipe()
        self._selector = selectors.DefaultSelector()
        self._listener = _listening(scheduler.ports())
        self._selector.register(self._wake, selectors.EVENT_READ, self._heed_commands)
        self._selector.register(self._listener, selectors.EVENT_READ, self._welcome)
        if scheduler.channel is not None:
            self._selector.register(scheduler.channel, selectors.EVENT_READ, self._look)

    # -- what other threads may call ---------------------------------------------------------------

    def start_trial(self, trial: TrialSpec) -> None:
        """Its directory gets a marker by which a worker can tell whether it sees the same directory."""
        marker = trial.trial_dir / f".aorta-{secrets.token_hex(8)}"
        marker.touch()
        self._command("start", _Held(trial, marker))

    def cancel_trial(self, trial_id: str) -> None:
        self._command("cancel", trial_id)

    def finish(self) -> None:
        """Cancel everything, wait for the last ends, leave nothing in the scheduler's queue."""
        self._command("close", None)
        self.join()

    def _command(self, name: str, about: Any) -> None:
        self._commands.put((name, about))
        with suppress(OSError):  # the thread has ended
            os.write(self._waker, b"x")

    # -- the thread --------------------------------------------------------------------------------

    def run(self) -> None:
        try:
            while not self._may_stop():
                for key, _ in self._selector.select(self._patience()):
                    key.data()
                if self._queued and time.monotonic() - self._queued_at >= _TOGETHER:
                    self._ask_for_places()
                if time.monotonic() - self._looked_at >= _LOOK_EVERY:
                    self._look()
                if self._withdrawn:
                    tickets, self._withdrawn = self._withdrawn, []
                    self._scheduler.withdraw(tickets)
        except BaseException as wrong:  # noqa: BLE001 - raised again where somebody waits for a trial
            self.ends.put(wrong)
        finally:
            self._leave()

    def _may_stop(self) -> bool:
        if self._closing is None:
            return False
        return not self._held or time.monotonic() > self._closing

    def _patience(self) -> float:
        return _TOGETHER if self._queued else _LOOK_EVERY

    def _leave(self) -> None:
        for held in (*self._queued, *self._held.values()):
            held.marker.unlink(missing_ok=True)
        for line in (*self._strangers, *(held.line for held in self._held.values() if held.line)):
            line.close()  # its supervisor ends whatever it still holds, then itself
        self._scheduler.close()
        self._selector.close()
        self._listener.close()
        waker, self._waker = self._waker, -1
        os.close(waker)
        os.close(self._wake)

    def _heed_commands(self) -> None:
        os.read(self._wake, 4096)
        with suppress(queue.Empty):
            while True:
                match self._commands.get_nowait():
                    case "start", held:
                        self._queued.append(held)
                        self._queued_at = time.monotonic()
                    case "cancel", trial_id:
                        self._cancel([h for h in self._everybody() if h.trial.id == trial_id])
                    case "close", _:
                        self._closing = time.monotonic() + self._limits.grace + _CLOSE_PATIENCE
                        self._cancel(self._everybody())

    def _everybody(self) -> list[_Held]:
        return [*self._queued, *self._held.values()]

    def _cancel(self, unwanted: Sequence[_Held]) -> None:
        for held in unwanted:
            if not held.cancelled:
                held.cancelled = True
                if held.line is not None:
                    held.line.send({"op": "cancel"})
                else:
                    self._end(held, _end(held, cancelled=True))

    def _ask_for_places(self) -> None:
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
            self._scheduler.submit(batch, {CHANNEL_VARIABLE: self._invitation()})

    def _invitation(self) -> str:
        port = self._listener.getsockname()[1]
        addresses = [(host, port) for host in self._scheduler.addresses()]
        return json.dumps({"addresses": addresses, "secret": self._secret})

    # -- lines -------------------------------------------------------------------------------------

    def _welcome(self) -> None:
        channel, _ = self._listener.accept()
        line = Line(channel, self._secret)
        self._strangers.add(line)
        self._selector.register(channel, selectors.EVENT_READ, lambda: self._hear(line))

    def _hear(self, line: Line) -> None:
        going_on = line.receive()
        try:
            for message in line.messages():
                if line.ticket is None:
                    going_on = line.introduce(message) and self._recognise(line)
                else:
                    self._heed(self._held[line.ticket], message)
                if line.channel.fileno() < 0 or not going_on:
                    break
        except ValueError:  # not our language
            going_on = False
        if not going_on:
            self._hang_up(line)

    def _recognise(self, line: Line) -> bool:
        """Give the bearer of a ticket its trial; one that nobody waits for any more is sent away."""
        self._strangers.discard(line)
        held = self._held.get(line.ticket or "")
        if held is None or held.cancelled or held.line is not None:
            return False
        held.line, held.node = line, str(line.about["node"])
        line.send(
            {
                "op": "run",
                "trial": trial_to_json(held.trial),
                "marker": held.marker.name,
                "ships": self._scheduler.ships,
                "srun": self._scheduler.srun(held.trial),
                "grace": self._limits.grace,
                "max_log_bytes": self._limits.max_log_bytes,
            }
        )
        return True

    def _heed(self, held: _Held, message: dict[str, Any]) -> None:
        directory = held.trial.trial_dir
        match message["op"]:
            case "log":
                with (directory / f"{message['stream']}.log").open("ab") as log:
                    log.write(message.get("pack", b""))
            case "ship":
                self._ship(held)
            case "ended" if message["dismissed"] and not held.cancelled:
                self._hang_up(held.line)
            case "ended":
                if "pack" in message:
                    unpack(message["pack"], directory)
                for name in ("stdout.log", "stderr.log"):  # a silent trial has empty logs, not none
                    (directory / name).touch()
                end = end_from_json(message["end"], held.trial)
                if end.lost:
                    self._scheduler.avoid(held.node)
                self._end(held, replace(end, cancelled=held.cancelled))

    def _ship(self, held: _Held) -> None:
        if held.line is None:
            return
        try:
            packs = [
                pack_working_directory(held.trial.cwd),
                pack_trial_directory(held.trial.trial_dir),
            ]
        except InfrastructureError as wrong:
            self._end(held, _end(held, lost=str(wrong)))
            return
        for pack in packs:
            held.line.send({"op": "pack", "size": len(pack)}, pack)

    def _hang_up(self, line: Line | None) -> None:
        """The line of a trial that has not ended is a question for the scheduler."""
        if line is None:
            return
        with suppress(KeyError, ValueError):
            self._selector.unregister(line.channel)
        line.close()
        self._strangers.discard(line)
        held = self._held.get(line.ticket or "")
        if held is not None and held.line is line:
            held.line, held.broke_at = None, time.monotonic()
            if held.cancelled:
                self._end(held, _end(held, cancelled=True))

    # -- the scheduler's word ----------------------------------------------------------------------

    def _look(self) -> None:
        now = self._looked_at = time.monotonic()
        self.slots = self._scheduler.slots()
        for line in [one for one in self._strangers if now - one.opened > _STRANGER_SECONDS]:
            self._hang_up(line)
        doubtful = [ticket for ticket, held in self._held.items() if held.broke_at is not None]
        found = dict(self._scheduler.look(list(self._held), doubtful))
        for ticket in doubtful:
            broke_at = self._held[ticket].broke_at
            if broke_at is not None and now - broke_at > _EXPLANATION_SECONDS:
                found.setdefault(ticket, "the line to its supervisor broke")
        for ticket, why in found.items():
            held = self._held[ticket]
            if (
                held.line is not None
            ):  # its report may be on the way; a machine without power sends none
                held.doubted_at = held.doubted_at or now
                if now - held.doubted_at < _EXPLANATION_SECONDS:
                    continue
                self._hang_up(held.line)
            where = f" (on {held.node})" if held.node else ""
            if held.node:
                self._scheduler.avoid(held.node)
            self._end(held, _end(held, lost=f"{why}{where}"))

    def _end(self, held: _Held, end: TrialEnd) -> None:
        held.marker.unlink(missing_ok=True)
        if held in self._queued:
            self._queued.remove(held)
        if self._held.pop(held.ticket, None) is not None and held.line is None:
            self._withdrawn.append(held.ticket)
        if held.line is not None:
            line, held.line = held.line, None
            self._hang_up(line)
        self.ends.put(end)


def _end(held: _Held, *, lost: str | None = None, cancelled: bool = False) -> TrialEnd:
    """The end of a trial that could not speak for itself."""
    directory = held.trial.trial_dir
    return TrialEnd(
        held.trial.id,
        StreamEnd(directory / "stdout.log"),
        StreamEnd(directory / "stderr.log"),
        lost=lost,
        cancelled=cancelled,
        started_at=time.time(),
        host=held.node,
    )


def _listening(ports: Sequence[int]) -> socket.socket:
    for port in ports or (0,):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.bind(("", port))
        except OSError:
            listener.close()
            continue
        listener.listen(1024)
        return listener
    raise InfrastructureError(
        f"no port of {ports[0]}-{ports[-1]}, the SrunPortRange of this cluster, is free on this machine"
    )
