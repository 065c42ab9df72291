"""The worker processes of one agent, below torch's contexts: how each has ended so far, and a last broom.

Torch starts a script's ranks as process groups of their own (`SubprocessContext`) and a function's as children
(`MultiprocessContext`).
"""

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

from torch.distributed.elastic.multiprocessing.api import (
    MultiprocessContext,
    PContext,
    SubprocessContext,
)


def statuses(context: PContext) -> dict[int, int | None]:
    """The return code of every local rank; None while it runs."""
    if isinstance(context, SubprocessContext):
        handlers = context.subprocess_handlers
        return {local: handler.proc.poll() for local, handler in handlers.items()}
    if isinstance(context, MultiprocessContext) and context._pc is not None:  # noqa: SLF001 - torch hides it
        return {local: each.exitcode for local, each in enumerate(context._pc.processes)}  # noqa: SLF001
    return {}


def kill_process_groups(context: PContext) -> None:
    """What ranks started and left behind would hold on to devices and ports."""
    for pid in context.pids().values():
        with suppress(ProcessLookupError, PermissionError):
            if os.getpgid(os.getpid()) != pid:
                os.killpg(pid, signal.SIGKILL)


def set_aside_if_broken(error_file: Path) -> None:
    """Torch reads a rank's error file and falls over anything that is not its JSON."""
    try:
        message = json.loads(error_file.read_text())["message"]
        broken = not (isinstance(message, str) or "extraInfo" in message)
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError):
        broken = True
    if broken:
        error_file.replace(error_file.with_suffix(".broken"))
