"""A process tree under this process, ended for certain.

The supervisor is a sub-reaper: every orphan of its trial becomes its child, in whatever session. So
the tree is empty when the kernel says that no child is left but helpers, which belong to no trial.
"""

import ctypes
import errno
import os
import select
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)
_PATIENCE = 10.0  # seconds for what was killed to be gone
_SOURCE = str(Path(__file__).parents[2])
_UNSEEN = "cannot be seen here; every node must share the file system of it"
helpers: set[int] = set()  # children that, with what they start, belong to no trial


def own_program(module: str) -> list[str]:
    """The command that runs `main()` of a module of ours, with the standard library alone."""
    program = (
        f"import sys; sys.path.insert(0, {_SOURCE!r})\n"
        f"try: from {module} import main\n"
        f"except ImportError: sys.exit({f'aorta: {_SOURCE} {_UNSEEN}'!r})\n"
        "main()"
    )
    return [sys.executable, "-S", "-E", "-s", "-c", program]


def adopt_orphans() -> None:
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(parent: int) -> None:
    """Be killed when the parent is gone; end here if it is gone already."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the kernel was told, and no signal will come
        os._exit(1)


def start(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    stdout: int,
    stderr: int,
    keep: int | None = None,
) -> int:
    """Fork and execute in a new session, `keep` open; dies with us. Raises the child's OSError."""
    supervisor = os.getpid()
    failure_end, tell = os.pipe()  # close-on-exec: stays silent when the exec succeeds
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            die_with_parent(supervisor)
            _prepare(cwd, stdout, stderr)
            if keep is not None:
                os.set_inheritable(keep, True)
            os.execvpe(argv[0], list(argv), dict(env))  # noqa: S606 - it is the product
        except OSError as wrong:
            os.write(tell, str(wrong.errno or errno.EIO).encode())
        finally:
            os._exit(127)
    os.close(tell)
    with os.fdopen(failure_end, "rb") as channel:
        problem = channel.read()
    if problem:
        os.waitpid(pid, 0)
        raise OSError(int(problem), os.strerror(int(problem)))
    return pid


def _prepare(cwd: str, stdout: int, stderr: int) -> None:
    for number in (signal.SIGPIPE, signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.chdir(cwd)


def reap() -> dict[int, int]:
    """Wait status of every child that has ended, without blocking."""
    ended: dict[int, int] = {}
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended[pid] = status
    helpers.difference_update(ended)
    return ended


def alive() -> bool:
    """Whether any descendant is left that is no helper."""
    if helpers:
        reap()
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return not helpers or bool(descendants(os.getpid(), helpers))


def descendants(root: int, leaving_out: Collection[int] = ()) -> list[int]:
    """Every living process below `root`, children first; nothing below `leaving_out`."""
    children: dict[int, list[int]] = {}
    # pathlib costs three times as much over thousands of processes.
    for entry in os.listdir("/proc"):  # noqa: PTH208
        if entry.isdigit():
            with suppress(OSError), open(f"/proc/{entry}/stat", "rb") as stat:  # noqa: PTH123
                state, parent = stat.read().rpartition(b")")[2].split()[:2]
                if state != b"Z":
                    children.setdefault(int(parent), []).append(int(entry))
    found: list[int] = []
    queue = [root]
    while queue:
        below = [pid for pid in children.get(queue.pop(0), []) if pid not in leaving_out]
        found += below
        queue += below
    return found


def end_all(grace: float, hurried: Callable[[], bool]) -> None:
    """TERM, wait up to `grace` or until `hurried`, KILL until nothing is left."""
    reap()
    if not alive():
        return
    if grace > 0:
        _signal(signal.SIGTERM)
        _wait_until_gone(grace, hurried)
    deadline = time.monotonic() + _PATIENCE
    while alive() and time.monotonic() < deadline:
        _signal(signal.SIGKILL)
        _wait_until_gone(0.05)


def _signal(number: signal.Signals) -> None:
    for pid in descendants(os.getpid(), helpers):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _wait_until_gone(seconds: float, hurried: Callable[[], bool] = lambda: False) -> None:
    deadline = time.monotonic() + seconds
    pause = 0.0005
    while True:
        reap()
        if not alive() or time.monotonic() >= deadline or hurried():
            return
        time.sleep(pause)
        pause = min(0.02, pause * 2)


# -- which files below a directory are opened (inotify)

_IN_OPEN = 0x20
_IN_ISDIR, _IN_ONLYDIR = 0x40000000, 0x01000000
_HEADER = struct.Struct("iIII")
_MOST_FOLDERS = 4096
_MOST_NAMES = 20_000
_POLL_SECONDS = 0.05


@contextmanager
def watch_opened(root: Path, most_folders: int = _MOST_FOLDERS) -> Iterator[set[str]]:
    """Fills with the relative names opened, folders with a `/`; empty without kernel support."""
    opened: set[str] = set()
    start = getattr(_LIBC, "inotify_init1", lambda _flags: -1)
    handle = start(os.O_CLOEXEC | os.O_NONBLOCK)
    if handle < 0:
        yield opened
        return
    folders: dict[int, Path] = {}
    for place in list(_folders(root, most_folders)):  # looking for them opens them
        number = _LIBC.inotify_add_watch(handle, os.fsencode(place), _IN_OPEN | _IN_ONLYDIR)
        if number >= 0:
            folders[number] = place
    is_over = threading.Event()

    def collect() -> None:
        """Until it is over, and then what is still waiting."""
        while True:
            is_last = is_over.is_set()
            if select.select([handle], [], [], 0 if is_last else _POLL_SECONDS)[0]:
                _note(os.read(handle, 1 << 16), folders, root, opened)
            elif is_last:
                return

    reader = threading.Thread(target=collect)
    reader.start()
    try:
        yield opened
    finally:
        is_over.set()
        reader.join()
        os.close(handle)


def _folders(root: Path, most: int) -> Iterator[Path]:
    for place, inside, _files in islice(os.walk(root), most):
        inside[:] = [name for name in inside if not name.startswith(".")]
        yield Path(place)


def _note(events: bytes, folders: Mapping[int, Path], root: Path, opened: set[str]) -> None:
    at = 0
    while at < len(events):
        watch, mask, _cookie, length = _HEADER.unpack_from(events, at)
        name = events[at + _HEADER.size : at + _HEADER.size + length].rstrip(b"\0")
        at += _HEADER.size + length
        if watch in folders and len(opened) < _MOST_NAMES:
            place = str((folders[watch] / os.fsdecode(name)).relative_to(root))
            opened.add(f"{place}/" if mask & _IN_ISDIR else place)
