"""Runs in every worker before its script when hangs are watched for; loads the user's own then.

A real-time signal makes faulthandler write all stacks, also while the main thread is stuck in a
collective; a thread waits for another signal to dump the Flight Recorder.
"""

import faulthandler
import importlib
import json
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

_STACKS, _DUMP = signal.SIGRTMAX - 3, signal.SIGRTMAX - 4  # the agent sends them
_HERE = str(Path(__file__).parent)


def _hand_over() -> None:
    sys.path[:] = [entry for entry in sys.path if entry != _HERE]
    rest = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry != _HERE]
    os.environ["PYTHONPATH"] = os.pathsep.join(rest)
    if not os.environ["PYTHONPATH"]:
        del os.environ["PYTHONPATH"]
    this = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError as missing:
        if missing.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = this


def _write_stacks_on_request(path: str) -> None:
    # Without a file, of which the disk is at fault, the agent does not ask.
    with suppress(OSError):
        stacks = Path(path).open("w")  # noqa: SIM115 - it is written to until the process ends
        faulthandler.register(_STACKS, file=stacks, all_threads=True, chain=False)


def _dump_flight_recorder_on_request(path: str) -> None:
    """Blocked in every thread from here on, so that this one alone receives it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {_DUMP})
    threading.Thread(target=_wait_and_dump, args=(Path(path),), daemon=True).start()


def _wait_and_dump(path: Path) -> None:
    # Of the stacks the one of the thread that receives the signal says where the rank stood.
    signal.pthread_sigmask(signal.SIG_BLOCK, {_STACKS})
    signal.sigwait({_DUMP})
    try:
        _dump(path)
    finally:
        path.touch()  # tells the agent that no more will come


def _dump(path: Path) -> None:
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_initialized():
        return
    world = torch.distributed.distributed_c10d._world
    dump = json.loads(torch._C._distributed_c10d._dump_fr_trace_json())
    dump["rank"] = torch.distributed.get_rank()
    dump["pg_config"] = {  # torch fills this for NCCL alone
        name: {"name": name, "ranks": str(sorted(world.pg_group_ranks[group]))}
        for group, name in world.pg_names.items()
    }
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(dump))
    partial.replace(path)


_hand_over()
if os.environ.get("RANK") is not None and "AORTA_STACKS_FILE" in os.environ:
    _dump_flight_recorder_on_request(os.environ.pop("AORTA_FLIGHT_RECORDER_FILE"))
    # Last: where this file is, the agent sends both signals.
    _write_stacks_on_request(os.environ.pop("AORTA_STACKS_FILE"))
