"""Looking at processes from outside: are they there, are they gone?"""

import os
import signal
import subprocess
import time
from pathlib import Path

PATIENCE = 30.0


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in {"Z", "X"}


def wait_until_gone(*pids: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if not any(is_running(pid) for pid in pids):
            return
        time.sleep(0.02)
    raise AssertionError(f"still running: {[pid for pid in pids if is_running(pid)]}")


def processes_with(variable: str) -> list[int]:
    """Every living process whose environment holds this `NAME=value`."""
    wanted = variable.encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environ = (entry / "environ").read_bytes()
            except OSError:
                continue
            if wanted in environ.split(b"\0") and is_running(int(entry.name)):
                found.append(int(entry.name))
    return found


def wait_until_no_process_has(variable: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if not processes_with(variable):
            return
        time.sleep(0.05)
    raise AssertionError(f"processes with {variable} are left: {processes_with(variable)}")


def wait_for_file(path: Path, patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if path.exists():
            return
        time.sleep(0.02)
    raise AssertionError(f"{path} did not appear")


def interrupt(process: "subprocess.Popen[str]", number: signal.Signals) -> None:
    os.kill(process.pid, number)
