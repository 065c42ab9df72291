"""A supervisor on another machine: it dials home, runs the one trial it is given there, and ends
with it.

Where the scheduler's own process there outlives the trial, the worker does too: it takes one trial
after another, each over a channel of its own, and keeps its warm hosts between them.

It is started by a scheduler, knows the addresses and the secret of its owner from two variables,
and nothing of the scheduler. When the channel home breaks, or the scheduler wants it gone, it ends
the whole tree of the trial first. Standard library only.
"""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aorta.core.errors import AortaError
from aorta.core.trial import TrialEnd, TrialSpec
from aorta.executors import channel, process_tree
from aorta.executors.channel import pack_trial_directory, unpack
from aorta.executors.framing import frame
from aorta.executors.messages import (
    end_to_json,
    order_for,
    trial_end,
    trial_from_json,
    without_place,
)
from aorta.executors.ranks import across_ranks
from aorta.executors.supervisor import OwnerGoneError, SupervisedTrial, Supervisor
from aorta.runtimes.launch import Launch, launch_for

if TYPE_CHECKING:
    from aorta.executors.warm import WarmStarts

CHANNEL_VARIABLE = "AORTA_CHANNEL"
TICKET_VARIABLE = "AORTA_TICKET"
PARENT_VARIABLE = "AORTA_DIES_WITH"  # the pid of a parent that it must not outlive
NODE_VARIABLE = (
    "AORTA_NODE"  # what its scheduler calls the machine, where that is not the host's name
)
_LOG_CHUNK = 1 << 20
_DISMISSAL_SECONDS = 1.0
_ENDING = (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP)


class Worker(Supervisor):
    """A supervisor whose socket leads to another machine, and whose scheduler may dismiss it."""

    def __init__(self, control: socket.socket, warm_starts: "WarmStarts | None" = None) -> None:
        super().__init__(control)
        self._warm_starts = warm_starts  # None: every trial starts cold

    def serves(self, control: socket.socket) -> None:
        super().serves(control)
        self.dismissed = False
        signal.signal(signal.SIGTERM, self._dismiss)

    def _dismiss(self, *_: object) -> None:
        self.dismissed = True

    def poll_message(self, timeout: float | None) -> dict[str, Any] | None:
        if self.dismissed:
            return {"op": "cancel"}
        return super().poll_message(timeout)

    def await_message(self) -> dict[str, Any]:
        while (found := super().poll_message(None)) is None:
            pass
        return found

    def send(self, content: Mapping[str, Any], pack: bytes = b"") -> None:
        try:
            self.control.sendall(frame(content, pack))
        except OSError:
            raise OwnerGoneError from None

    def run_order(self) -> None:
        """One trial, wherever its files are, from the order to the report."""
        order = self.await_message()
        trial = trial_from_json(order["trial"])
        learned = None
        with ExitStack() as stack:
            if (trial.trial_dir / order["marker"]).is_file() and trial.cwd.is_dir():
                end, pack = self._tried(trial, order, {}, self._warm_starts), b""
                learned = self._warm_starts.ended(end) if self._warm_starts else None
            elif not order["ships"]:
                end, pack = _invisible(trial), b""
            else:
                shipped = stack.enter_context(self._shipped(trial))
                end = self._tried(shipped, order, self._mirrors())
                if end.result is not None:  # its working directory was a copy of its own
                    end = replace(end, result=without_place(end.result))
                pack = pack_trial_directory(shipped.trial_dir)
            ended = {"op": "ended", "dismissed": self.dismissed, "end": end_to_json(end)}
            self.send({**ended, "imports": learned}, pack)

    def _tried(
        self,
        trial: TrialSpec,
        order: Mapping[str, Any],
        mirrors: Mapping[str, Callable[[bytes], None]],
        warm_starts: "WarmStarts | None" = None,
    ) -> TrialEnd:
        try:
            launch = across_ranks(launch_for(trial), trial, order["srun"])
        except AortaError as wrong:
            return _lost(trial, str(wrong))
        what = order_for(trial, launch, grace=order["grace"], max_log_bytes=order["max_log_bytes"])
        if warm_starts is not None:
            for found in order["imports"]:
                warm_starts.learn(found)
            what |= warm_starts.instructions(trial, launch, what["env"])
        facts = SupervisedTrial(self, what, mirrors).run()
        if _looks_ended(facts):
            self._await_dismissal()
        return trial_end(trial, launch, facts, _host())

    def _await_dismissal(self) -> None:
        """A scheduler that ends a job signals all of its processes: the trial's may be gone before
        we hear of it.
        """
        deadline = time.monotonic() + _DISMISSAL_SECONDS
        while not self.dismissed and time.monotonic() < deadline:
            time.sleep(0.02)

    def _mirrors(self) -> dict[str, Callable[[bytes], None]]:
        return {name: partial(self._send_log, name) for name in ("stdout", "stderr")}

    def _send_log(self, stream: str, data: bytes) -> None:
        for start in range(0, len(data), _LOG_CHUNK):
            self.send({"op": "log", "stream": stream}, data[start : start + _LOG_CHUNK])

    @contextmanager
    def _shipped(self, trial: TrialSpec) -> Iterator[TrialSpec]:
        """The trial in directories of this machine that hold what the owner's held."""
        import tempfile

        self.send({"op": "ship"})
        with tempfile.TemporaryDirectory(prefix="aorta-shipped-") as scratch:
            places = {"cwd": Path(scratch) / "cwd", "trial_dir": Path(scratch) / "trial"}
            for place in places.values():
                unpack(self.await_message().get("payload", b""), place)
            yield moved(trial, places["cwd"], places["trial_dir"])


def moved(trial: TrialSpec, cwd: Path, trial_dir: Path) -> TrialSpec:
    """The trial with its two directories elsewhere, wherever its command and variables name
    them.
    """
    # The trial's directory first: it often lies inside the working directory.
    places = ((str(trial.trial_dir), str(trial_dir)), (str(trial.cwd), str(cwd)))

    def there(text: str) -> str:
        for old, new in places:
            text = text.replace(old, new)
        return text

    return replace(
        trial,
        argv=tuple(there(word) for word in trial.argv),
        env={name: there(value) for name, value in trial.env.items()},
        cwd=cwd,
        trial_dir=trial_dir,
    )


def _looks_ended(facts: Mapping[str, Any]) -> bool:
    """By a signal with which schedulers end jobs, and not by the kernel for want of memory."""
    if facts.get("out_of_memory"):
        return False
    number = facts.get("signal") or (facts.get("exit_code") or 0) - 128
    return number in _ENDING


def _lost(trial: TrialSpec, why: str) -> TrialEnd:
    return trial_end(
        trial, Launch(trial.argv, trial.cwd), {"started_at": time.time(), "lost": why}, _host()
    )


def _invisible(trial: TrialSpec) -> TrialEnd:
    return _lost(
        trial,
        f"{trial.trial_dir} or {trial.cwd} cannot be seen on {_host()}; both must lie on a file "
        "system that "
        "every node shares",
    )


def _host() -> str:
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def main() -> None:
    """Entered by whatever a cluster starts; says on stderr why it could not, and exits with 1."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if parent := os.environ.pop(PARENT_VARIABLE, ""):
        process_tree.die_with_parent(int(parent), signal.SIGTERM)
    try:
        control = _dialled()
    except channel.NoChannelError as wrong:
        sys.exit(f"aorta: {wrong}")
    with control, suppress(OwnerGoneError, ConnectionError):
        Worker(control).run_order()


def main_of_many() -> None:
    """Entered where the parent outlives a trial: a line with the variables of each, and a line when
    it is over.

    What it says is why there was no trial, or nothing. It ends with its parent.
    """
    from aorta.executors.warm import WarmStarts

    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    process_tree.die_with_parent(int(os.environ.pop(PARENT_VARIABLE)), signal.SIGTERM)
    worker: Worker | None = None
    warm_starts = WarmStarts()
    for line in sys.stdin:
        os.environ.clear()
        os.environ.update(json.loads(line))
        said = ""
        try:
            with _dialled() as control, suppress(OwnerGoneError, ConnectionError):
                if worker is None:
                    worker = Worker(control, warm_starts)
                else:
                    worker.serves(control)
                worker.run_order()
        except channel.NoChannelError as wrong:
            said = f"aorta: {wrong}"
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        print(json.dumps(said), flush=True)


def _dialled() -> socket.socket:
    """The channel home, from variables that the trial does not see."""
    given = json.loads(os.environ.pop(CHANNEL_VARIABLE))
    ticket = os.environ.pop(TICKET_VARIABLE)
    about = {"host": _host(), "node": os.environ.pop(NODE_VARIABLE, "") or _host()}
    addresses = [(str(host), int(port)) for host, port in given["addresses"]]
    return channel.dial(addresses, ticket, given["secret"], about)
