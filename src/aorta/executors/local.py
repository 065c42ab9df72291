"""Trials as processes on this machine, one supervisor a slot: a trial costs a message and a fork.

Workers of Slurm and tasks of Ray run their trials with it too: standard library only.
"""

import json
import os
import selectors
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from aorta.core.errors import InfrastructureError
from aorta.core.trial import Match, Resources, Start, StreamEnd, TrialEnd, TrialSpec
from aorta.executors.process_tree import own_program
from aorta.executors.supervisor import clean_up
from aorta.runtimes.launch import Launch, launch_for, metric_file_of

GRACE_SECONDS = 5.0
MAX_LOG_BYTES = 256 * 1024 * 1024
_CLOSE_PATIENCE = 20.0
# What a response tells of a trial in the words of `TrialEnd`; what it does not mention is not so.
_FACTS = (
    *("exit_code", "signal", "timed_out", "hung", "cancelled", "lost", "started_at", "duration"),
    *("result", "out_of_memory", "saved"),
)
_LOOKS_FOR_A_PROCESS = 5  # that find none, a tenth of a second apart


@dataclass
class _Slot:
    """One supervisor process, its socket, and the trial it is running."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    responses: BinaryIO  # a line for each request
    devices: tuple[str, ...]
    running: tuple[TrialSpec, Launch] | None = None


class LocalExecutor:
    def __init__(
        self,
        jobs: int = 1,
        *,
        gpus_per_trial: int = 0,
        devices: Sequence[str] = (),
        grace: float = GRACE_SECONDS,
        max_log_bytes: int = MAX_LOG_BYTES,
        warm: bool | None = None,
        launch: Callable[[TrialSpec], Launch] = launch_for,
    ) -> None:
        """`warm`: trials may be forked from a process that has imported their libraries; False: it
        is only said of the first trial of a program what its imports took; None: nor that.
        """
        if gpus_per_trial and jobs * gpus_per_trial > len(devices):
            raise InfrastructureError(
                f"{jobs} trials of {gpus_per_trial} GPUs need {jobs * gpus_per_trial} devices; "
                f"this machine shows {len(devices)}: lower --jobs or --gpus-per-trial"
            )
        self._jobs = jobs
        self._grace = grace
        self._max_log_bytes = max_log_bytes
        self._launch = launch
        self._free_devices = [
            tuple(devices[i * gpus_per_trial : (i + 1) * gpus_per_trial]) for i in range(jobs)
        ]
        self.warm = warm
        if warm is not None:
            from aorta.executors.warm import WarmStarts

            self._warm_starts = WarmStarts()
        self._slots: list[_Slot] = []
        self._selector = selectors.DefaultSelector()
        self._ended: deque[TrialEnd] = deque()
        self._host = socket.gethostname()

    @property
    def slots(self) -> int:
        return self._jobs

    def start(self, trial: TrialSpec) -> None:
        slot = next((s for s in self._slots if s.running is None), None) or self._open_slot()
        if slot.devices:
            # Its variables show it these devices, and a container is given them.
            from aorta.runtimes.engine import shown_devices

            env, own = shown_devices(slot.devices), replace(trial.resources, gpus=len(slot.devices))
            trial = replace(trial, env={**trial.env, **env}, resources=own)
        trial.trial_dir.mkdir(parents=True, exist_ok=True)
        launch = self._launch(trial)
        request = request_for(trial, launch, grace=self._grace, max_log_bytes=self._max_log_bytes)
        if trial.start is not Start.COLD:
            request |= self._warm_starts.changes(trial, request, slot.process.pid)
        try:
            _send(slot, request)
        except OSError:
            slot.running = trial, launch
            self._supervisor_died(slot)
        else:
            # Only now: an interrupt before this leaves an idle slot, which ends with its socket.
            slot.running = trial, launch

    def wait(self, timeout: float | None = None) -> list[TrialEnd]:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._ended:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not any(slot.running for slot in self._slots):
                return []
            for key, _ in self._selector.select(left):
                self._receive(key.data)
            if deadline is not None and time.monotonic() >= deadline:
                break
        ended = list(self._ended)
        self._ended.clear()
        return ended

    def cancel(self, trial_id: str) -> None:
        for slot in self._slots:
            if slot.running is not None and slot.running[0].id == trial_id:
                with suppress(OSError):
                    _send(slot, {"op": "cancel"})

    def close(self) -> None:
        """TERM, grace, KILL for what runs. Interrupted again, the supervisors kill at once."""
        try:
            for slot in self._slots:
                if slot.running is not None:
                    self.cancel(slot.running[0].id)
            deadline = time.monotonic() + self._grace + _CLOSE_PATIENCE
            while any(slot.running for slot in self._slots) and time.monotonic() < deadline:
                self.wait(0.2)
        finally:
            while self._slots:
                self._close_slot(self._slots[-1])
            self._selector.close()

    def _open_slot(self) -> _Slot:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [*own_program("aorta.executors.supervisor"), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C on the terminal is for us alone
            )
        slot = _Slot(process, ours, ours.makefile("rb"), self._free_devices.pop(0))
        self._slots.append(slot)
        self._selector.register(ours, selectors.EVENT_READ, slot)
        return slot

    def _close_slot(self, slot: _Slot) -> None:
        self._slots.remove(slot)
        self._free_devices.append(slot.devices)
        with suppress(KeyError):
            self._selector.unregister(slot.control)
        slot.responses.close()
        slot.control.close()  # the supervisor ends whatever it still holds, then itself
        try:
            slot.process.wait(_CLOSE_PATIENCE)
        except subprocess.TimeoutExpired:
            slot.process.kill()
            slot.process.wait()

    def _receive(self, slot: _Slot) -> None:
        line = b""
        with suppress(ConnectionError):
            line = slot.responses.readline()
        if not line.endswith(b"\n"):
            self._supervisor_died(slot)
        elif slot.running is not None:
            self._end(*slot.running, json.loads(line))
            slot.running = None

    def _end(self, trial: TrialSpec, launch: Launch, response: Mapping[str, Any]) -> None:
        end = trial_end(trial, launch, response, self._host)
        is_cold = trial.start is Start.COLD
        self._ended.append(end if is_cold else self._warm_starts.ended(end))

    def _supervisor_died(self, slot: _Slot) -> None:
        """After `kill -9` of a supervisor: its child died with it; the rest is found by name."""
        self._close_slot(slot)
        if slot.running is None:
            return
        trial, launch = slot.running
        # Its own variable, and that of the fork server that it may have come from.
        _kill_by_variable("AORTA_TRIAL_DIR", trial.trial_dir, slot.process.pid)
        clean_up(launch.cleanup)
        lost = "the process that kept this trial was killed"
        self._end(trial, launch, {"started_at": time.time(), "lost": lost})


def _send(slot: _Slot, content: Mapping[str, Any]) -> None:
    slot.control.sendall(json.dumps(content).encode("ascii") + b"\n")


def _kill_by_variable(name: str, *values: object) -> None:
    """Every process with one of these values. One that is just becoming another program shows none
    for a moment, so they are looked for again."""
    wanted = {f"{name}={value}".encode() for value in values}
    looks = _LOOKS_FOR_A_PROCESS
    while looks:
        processes = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        killed = [_is_killed(entry, wanted) for entry in processes]
        looks = _LOOKS_FOR_A_PROCESS if any(killed) else looks - 1
        time.sleep(0.1)


def _is_killed(entry: Path, wanted: set[bytes]) -> bool:
    with suppress(OSError):
        if wanted.intersection((entry / "environ").read_bytes().split(b"\0")):
            os.kill(int(entry.name), signal.SIGKILL)
            return True
    return False


# -- what a supervisor is asked, and what its response means


def request_for(
    trial: TrialSpec, launch: Launch, *, grace: float, max_log_bytes: int
) -> dict[str, Any]:
    """The request to run `launch` on this machine."""
    watch, own = trial.watch, metric_file_of(trial)
    # Where its metric may lie: its own place, and the one that it may share with others.
    metric = None if own is None else [str(own), str(trial.cwd / str(watch.json_file))]
    return {
        "op": "run",
        "argv": list(launch.argv),
        "cwd": str(launch.cwd),
        "env": launch.environ(os.environ),
        "cleanup": [list(argv) for argv in launch.cleanup],
        "ran_out_of_memory": list(launch.ran_out_of_memory),
        "trial_dir": str(trial.trial_dir),
        "metric": metric,
        "patterns": [vars(pattern) for pattern in watch.patterns],
        "timeout": trial.timeout,
        "silent_for": watch.silent_for,
        "longer_than": watch.longer_than,
        "grace": grace,
        "max_log_bytes": max_log_bytes,
    }


def trial_end(trial: TrialSpec, launch: Launch, response: Mapping[str, Any], host: str) -> TrialEnd:
    """The supervisor's response as a `TrialEnd`."""
    stdout, stderr = (
        StreamEnd(trial.trial_dir / f"{name}.log", **response.get(name, {}))
        for name in ("stdout", "stderr")
    )
    end = TrialEnd(
        trial_id=trial.id,
        stdout=stdout,
        stderr=stderr,
        matches=tuple(map(Match.from_json, response.get("matches", ()))),
        host=host,
        image_digest=launch.image_digest,
        **{name: response[name] for name in _FACTS if name in response},
    )
    refusal = None if end.lost else launch.refusal(end.exit_code, stderr.tail)
    return replace(end, lost=refusal) if refusal else end


def prepared(trial: TrialSpec, resources: Resources) -> TrialSpec:
    """The trial as another machine can run it, its directory made. One that does not say what it
    needs gets what the user asked for."""
    trial_dir = trial.trial_dir.absolute()
    trial_dir.mkdir(parents=True, exist_ok=True)
    needs = resources if trial.resources == Resources() else trial.resources
    return replace(trial, resources=needs, trial_dir=trial_dir, cwd=trial.cwd.absolute())


def unreported(trial: TrialSpec, *, host: str = "", lost: str | None = None) -> TrialEnd:
    """The end of a trial whose worker did not report any."""
    out, err = (StreamEnd(trial.trial_dir / f"{name}.log") for name in ("stdout", "stderr"))
    return TrialEnd(trial.id, out, err, started_at=time.time(), host=host, lost=lost)
