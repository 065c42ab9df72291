"""The one line a training script may call: `from aorta.launch.heartbeat import beat`, then
`beat(step)`.

Once a rank beats, its heartbeat alone decides whether it hangs, and its step tells whether a cycle
made progress. Outside `aorta launch` it does nothing. A script that must not import aorta may write
the number into the file that `AORTA_HEARTBEAT_FILE` names.
"""

import os
from contextlib import suppress
from pathlib import Path


def beat(step: int | None = None) -> None:
    file = os.environ.get("AORTA_HEARTBEAT_FILE")
    if file:
        with suppress(OSError):  # a full disk is no reason to end a job
            Path(file).write_text("" if step is None else str(step))
