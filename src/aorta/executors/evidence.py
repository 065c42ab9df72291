"""What tells how a trial ended besides its status: its metric's file, and the kernel's count of kills for memory.

A metric file belongs to one trial. Each trial has a place of its own for it (`AORTA_METRIC_FILE`); one in a working
directory that trials share is believed only if this trial wrote it and no other could have. Standard library only.
"""

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

_CLOCK_TICK = (
    0.02  # the kernel stamps files a few milliseconds coarse; two writes within that look like one
)
SHARED = (
    "metrics_shared"  # in a result: the place of the metric file, where other trials may write too
)


class MetricFile:
    """Watches the places where a trial may leave its metric, from before it starts."""

    def __init__(self, own: Path, shared: Path) -> None:
        self._own, self._shared = own, shared
        own.unlink(missing_ok=True)  # of an attempt that was cut short
        self._before = _settled_stamp(shared)

    def found(self) -> dict[str, Any]:
        """What this trial wrote, for its result; nothing where it wrote none."""
        if self._own.exists():
            return {"metrics_file": json_object(self._own)}
        if _stamp(self._shared) not in (None, self._before):
            return {"metrics_file": json_object(self._shared), SHARED: str(self._shared)}
        return {}


def json_object(path: Path) -> dict[str, Any] | None:
    """An unreadable file counts as none."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        about = path.stat()
    except OSError:
        return None
    return (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)


def _settled_stamp(path: Path) -> tuple[int, ...] | None:
    """Taken late enough that any later write gets another one."""
    with suppress(OSError):
        age = time.time() - path.stat().st_ctime
        if 0 <= age < _CLOCK_TICK:
            time.sleep(_CLOCK_TICK - age)
    return _stamp(path)


def oom_kills() -> int:
    """How many processes the kernel has killed for want of memory: of our control group, or of this machine."""
    for counter in (*_counters_of_our_group(), Path("/proc/vmstat")):
        with suppress(OSError, ValueError):
            for line in counter.read_text(encoding="ascii").splitlines():
                name, _, number = line.partition(" ")
                if name == "oom_kill":
                    return int(number)
    return 0


def _counters_of_our_group() -> list[Path]:
    """`memory.events` of a unified hierarchy, `memory.oom_control` of the older one."""
    found = []
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, group = line.split(":", 2)
            inside = group.lstrip("/")
            if not controllers:
                found.append(_group(Path("/sys/fs/cgroup"), inside) / "memory.events")
            elif "memory" in controllers.split(","):
                found.append(_group(Path("/sys/fs/cgroup/memory"), inside) / "memory.oom_control")
    return found


def _group(root: Path, inside: str) -> Path:
    """In a container the path is that of the host, and what is mounted is the container's own group."""
    return root / inside if os.path.isdir(root / inside) else root  # noqa: PTH112 - a path above root is no error
