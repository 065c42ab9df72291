"""Looking at processes from outside: are they there, are they gone?"""

import signal
import subprocess
from pathlib import Path

from support.waiting import wait_until


def is_running(pid: int) -> bool:
    """A zombie whose parent has not looked yet is dead."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in {"Z", "X"}


def catches(pid: int, number: signal.Signals) -> bool:
    return _is_in_mask(pid, "SigCgt", number)


def ignores(pid: int, number: signal.Signals) -> bool:
    return _is_in_mask(pid, "SigIgn", number)


def _is_in_mask(pid: int, mask: str, number: signal.Signals) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    bits = next(line.split()[1] for line in status.splitlines() if line.startswith(mask))
    return bool(int(bits, 16) >> (number - 1) & 1)


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def wait_until_gone(*pids: int) -> None:
    wait_until(lambda: not any(map(is_running, pids)), f"the end of {pids}")


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


def processes_under(directory: Path) -> list[bytes]:
    """The command lines that name anything in this directory."""
    lines = subprocess.run(("ps", "axww", "-o", "args="), capture_output=True, check=True).stdout
    return [line for line in lines.splitlines() if bytes(directory) in line]


def wait_until_no_process_has(variable: str) -> None:
    wait_until(lambda: not processes_with(variable), f"the end of all processes with {variable}")


def wait_for_file(path: Path) -> None:
    wait_until(path.exists, f"{path}")


def wait_for_trials(journal: Path, count: int) -> None:
    """Until the journal holds so many trials."""
    wait_for_file(journal)
    wait_until(
        lambda: journal.read_bytes().count(b'"kind":"trial"') >= count,
        f"{count} trials in {journal}",
    )
