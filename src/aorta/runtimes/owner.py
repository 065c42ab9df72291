"""Whose run directory this is: a label by which to be sure that its process is gone. A process id
does not do: ids are used again, machines share directories, and pid namespaces hide processes.
"""

import os
import platform
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Owner:
    host: str
    boot: str  # changes with every start of the machine
    namespace: str  # of process ids
    pid: int
    started: str  # the kernel's clock at the start of the process

    @classmethod
    def of_this_process(cls) -> "Owner":
        pid = os.getpid()
        return cls(platform.node(), _boot(), _namespace(), pid, started(pid))

    @classmethod
    def from_label(cls, label: str) -> "Owner | None":
        """None for a label that is not ours to read."""
        parts = label.split("/")
        if len(parts) != 5 or not parts[3].isdecimal():
            return None
        host, boot, namespace, pid, started = parts
        return cls(host, boot, namespace, int(pid), started)

    @property
    def label(self) -> str:
        return "/".join((self.host, self.boot, self.namespace, str(self.pid), self.started))

    def is_gone(self) -> bool:
        """True only if certain; an owner on another machine or pid namespace may live."""
        if self.host != platform.node():
            return False
        if self.boot != _boot():
            return True
        return self.namespace == _namespace() and started(self.pid) != self.started


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _namespace() -> str:
    return str(Path("/proc/self/ns/pid").stat().st_ino)


def started(pid: int) -> str:
    """Field 22 of `stat`, empty if there is no such process, or only what is left of one."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return ""
    fields = stat.rpartition(b")")[2].split()  # the name before it may hold spaces and brackets
    return "" if fields[0] in {b"Z", b"X"} else fields[19].decode("ascii")
