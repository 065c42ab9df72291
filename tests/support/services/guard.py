"""Keeps a service alive exactly as long as its owner, whatever happens to the owner.

Run as a script in its own session, with a pipe from the owner as stdin. The pipe ends when the
owner closes it or dies, be it by `kill -9`; then the guard runs the farewell commands, stops the
service, undoes mounts and removes the directory. Every line that comes through the pipe before asks
for a service that has ended to be started again.
"""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_GRACE = 30.0


def main() -> None:
    plan = json.loads(sys.argv[1])
    directory = Path(plan["directory"])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # only the end of the pipe ends a guard
    service = _started(plan["service"], directory / "service.log") if plan["service"] else None
    for _ in sys.stdin:
        if service is None or service.poll() is not None:
            service = _started(plan["service"], directory / "service.log")
    for farewell in plan["farewells"]:
        subprocess.run(
            farewell, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=_GRACE
        )
    if service is not None:
        _stop(service)
    _undo_mounts(directory)
    shutil.rmtree(directory, ignore_errors=True)


def _started(argv: list[str], log: Path) -> subprocess.Popen[bytes]:
    libc = ctypes.CDLL(None)

    def dies_with_guard() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        log.with_name("service.pid").write_text(str(os.getpid()))

    with log.open("wb") as file:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
            preexec_fn=dies_with_guard,  # noqa: PLW1509 - one thread, and nothing else can set it
        )


def _stop(service: subprocess.Popen[bytes]) -> None:
    service.terminate()
    try:
        service.wait(_GRACE)
    except subprocess.TimeoutExpired:
        os.killpg(service.pid, signal.SIGKILL)
        service.wait()


def _undo_mounts(directory: Path) -> None:
    points = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for point in sorted(points, reverse=True):
        if Path(point).is_relative_to(directory):
            subprocess.run(("umount", "--lazy", point), stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
