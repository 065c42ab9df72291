"""A process that has imported aorta and becomes one `python -m aorta ...` after the other, by
forking.

A third of a second of every command line is imports, with torch nearly two, and the suite starts
thousands. What is forked is a process of its own with the words, variables, directory, streams,
session and end of one that was started from nothing, and it runs the same module in the same way;
`tests/suite/test_fork_server.py` compares them. Whatever an interpreter looks at only when it
starts, and a process inherits, must be as it was for the server, or the command line is started
from nothing. With `AORTA_TESTS_COLD=1` all of them are.

This file is the server as well: `python fork_server.py DESCRIPTOR MODULE[:FUNCTION]...`.
"""

import atexit
import gc
import importlib.util
import io
import json
import os
import resource
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

COLD = "AORTA_TESTS_COLD"
_VERBS = ("bisect", "bundle", "diverge", "reduce", "run", "solve", "triage")
_PLAIN = (
    *("aorta.cli.app", "aorta.cli.options", "aorta.cli.printing"),
    *(f"aorta.{verb}.request" for verb in _VERBS),
    *(f"aorta.cli.{verb}" for verb in _VERBS),
    "aorta.attribution",
    "aorta.views.lines",
    # What a verb loads only on its way, and what it compiles for the first failure that it
    # attributes.
    *("aorta.report.building", "aorta.solve.running", "aorta.launch.decision:warm_up"),
    *("aorta.bisect.environments.search", "aorta.bisect.containers.days", "aorta.cli.report"),
    # what cannot change while a process lives is asked once in it
    "aorta.probe.snapshot:collect_env",
)
_OF_A_VERB = {
    "launch": ("aorta.cli.launch", "aorta.launch.job", "aorta.launch.decision:warm_up"),
    "attrsvc": (
        *("aorta.cli.attribution", "aorta.attribution.service", "aorta.attribution.server"),
        "aorta.attribution.service.store",
    ),
    "mcp": ("aorta.cli.attribution", "aorta.attribution.server", "mcp.server"),
}
_READ_AT_THE_START = (
    *("PYTHON", "LD_", "LC_", "LANG", "TZ", "MALLOC_", "GLIBC_", "COVERAGE_", "PYDANTIC_"),
    *("TORCH", "OMP_", "KMP_", "MKL_", "OPENBLAS_", "GOMP_", "NPY_", "NUMPY_"),
)
_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
_ASKING = threading.Lock()
_ANSWER = 64


def start(
    *words: str, env: Mapping[str, str], cwd: Path | None = None, module: str = "aorta", **how: Any
) -> "subprocess.Popen[Any]":
    """`python -m aorta WORDS...`, as `subprocess.Popen` starts it."""
    place = cwd or Path.cwd()
    command = [sys.executable, "-m", module, *words]
    if COLD in os.environ or not place.is_dir():
        return subprocess.Popen(command, cwd=cwd, env=env, **how)
    with _ASKING:
        server = _server(_OF_A_VERB.get("".join(words[:1]), _PLAIN), _Inherited.by_a_child(env))
    return _Forked(server, command, cwd=place, env=env, **how)


@dataclass(frozen=True)
class _Inherited:
    """What a process has from the one that starts it, and what an interpreter reads only when it
    starts.
    """

    variables: tuple[tuple[str, str], ...]
    ignored: tuple[int, ...]
    limits: tuple[tuple[int, int], ...]
    mask: int
    groups: str

    @classmethod
    def by_a_child(cls, env: Mapping[str, str]) -> "_Inherited":
        numbers = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
        os.umask(mask := os.umask(0o077))
        read = {k: v for k, v in env.items() if k.startswith(_READ_AT_THE_START) and k != "PYTHON"}
        if "PYTHONPATH" in read:
            read["PYTHONPATH"] = _read_by_all(read["PYTHONPATH"])
        return cls(
            tuple(sorted(read.items())),
            tuple(sorted(n for n in numbers if signal.getsignal(n) is signal.SIG_IGN)),
            tuple(resource.getrlimit(limit) for limit in _LIMITS),
            mask,
            Path("/proc/self/cgroup").read_text(),
        )


def _read_by_all(path: str) -> str:
    """Of a PYTHONPATH the first folder alone, with which one server serves many; all of it where
    another holds a module of a name that the server may have imported.
    """
    first, *others = path.split(os.pathsep)
    if not all(map(os.path.isabs, others)):
        return path
    held = [entry for place in others if Path(place).is_dir() for entry in Path(place).iterdir()]
    names = {entry.name.partition(".")[0] for entry in held} - {"__pycache__"}
    return path if any(map(_is_taken, names)) else first


@cache
def _is_taken(name: str) -> bool:
    if name in {"sitecustomize", "usercustomize"} or name in sys.modules:
        return True
    return name.isidentifier() and importlib.util.find_spec(name) is not None


@cache
def _server(modules: tuple[str, ...], inherited: _Inherited) -> socket.socket:
    """One for all command lines that would start alike; it ends when nobody can ask it any more."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno()), *modules],
            env={"PATH": os.environ["PATH"], **dict(inherited.variables)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd="/",
            pass_fds=[theirs.fileno()],
        )
    atexit.register(process.wait)
    atexit.register(ours.close)  # before it
    return ours


class _Forked(subprocess.Popen[Any]):
    """Like any child, but of the server, which says how it ended."""

    def __init__(self, server: socket.socket, command: Sequence[str], **how: Any) -> None:
        self._server = server
        super().__init__(command, **how)

    def _execute_child(self, args: list[str], *rest: Any) -> None:
        _, _, _, _, cwd, env, _, _, _, *pipes = rest[:15]
        streams = [
            own if given < 0 else given for own, given in enumerate((pipes[0], pipes[3], pipes[5]))
        ]
        order = {"command": args, "cwd": str(cwd), "env": dict(env), "own_session": rest[-2]}
        self._answers, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, os.fdopen(os.memfd_create("order"), "wb") as written:
            written.write(json.dumps(order).encode())
            written.flush()
            socket.send_fds(self._server, [b"!"], [written.fileno(), theirs.fileno(), *streams])
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]
        word, _, number = self._answers.recv(_ANSWER).partition(b" ")
        if word != b"pid":
            raise RuntimeError(f"{args} did not start; what was wrong stands on stderr")
        self.pid = int(number)
        self._child_created = True

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        try:
            told = self._answers.recv(_ANSWER, socket.MSG_DONTWAIT if wait_flags else 0)
        except BlockingIOError:
            return 0, 0
        self._answers.close()
        return self.pid, int(told)

    def _internal_poll(self, _deadstate: int | None = None, **_: Any) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):  # type: ignore[attr-defined]
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode


# -- the server


def _serve(control: socket.socket) -> dict[str, Any]:
    """Forks for every order, and says how it ended. Comes back in the child alone, with the order
    it is for.
    """
    woken, wakes = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([control.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _tell_who_ended(running)
        if control.fileno() in ready:
            message, received, _, _ = socket.recv_fds(control, 1, 5)
            if not message:
                os._exit(0)  # whoever asks is gone
            written, answers, *streams = received
            order: dict[str, Any] = json.loads(os.pread(written, os.fstat(written).st_size, 0))
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _become(order, streams)
                os.write(answers, f"pid {os.getpid()}".encode())
                for other in (control.detach(), woken, wakes, *received, *running.values()):
                    os.close(other)
                return order
            running[pid] = answers
            for received_here in (written, *streams):
                os.close(received_here)


def _tell_who_ended(running: dict[int, int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        answers = running.pop(pid)
        with suppress(BrokenPipeError):  # nobody wants to know
            os.write(answers, str(status).encode())
        os.close(answers)


def _become(order: dict[str, Any], streams: list[int]) -> None:
    if order["own_session"]:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.chdir(order["cwd"])
    coerced = {k: v for k, v in os.environ.items() if k == "LC_CTYPE"}  # by an interpreter's start
    os.environ.clear()
    os.environ.update(order["env"] | coerced)
    sys.orig_argv = order["command"]
    sys.argv = order["command"][2:]
    sys.path[0] = str(Path.cwd())
    more = order["env"].get("PYTHONPATH", "").split(os.pathsep)[1:]
    sys.path[1:] = dict.fromkeys([sys.path[1], *map(os.path.abspath, more), *sys.path[2:]])
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        fresh = _stream(getattr(sys, name), mode)
        setattr(sys, name, fresh)
        setattr(sys, f"__{name}__", fresh)


def _stream(of_the_server: Any, mode: str) -> io.TextIOWrapper:
    """As an interpreter opens it when it starts."""
    number, unbuffered = of_the_server.fileno(), of_the_server.write_through
    in_lines = not unbuffered and (number == 2 or os.isatty(number))
    return io.TextIOWrapper(
        open(number, f"{mode}b", buffering=0 if unbuffered and number else -1, closefd=False),
        of_the_server.encoding,
        of_the_server.errors,
        newline="\n",
        line_buffering=in_lines,
        write_through=unbuffered,
    )


def _leave(code: object) -> None:
    """End as an interpreter does, without taking itself apart: that writes to every page that is
    still the server's too, 190 ms of the 210 of a short command line. Comes back where more is to
    be said than a number.
    """
    if code is None or isinstance(code, int):
        vars(threading)["_shutdown"]()
        vars(atexit)["_run_exitfuncs"]()
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit((code or 0) & 0xFF)


def _complete_models(base: Any) -> None:
    """What a model of pydantic compiles when it is first used, it has compiled: a tenth of a short
    bisection's own time.
    """
    for model in base.__subclasses__():
        if model.__module__.startswith("aorta.") and not model.__pydantic_complete__:
            model.model_rebuild()
        _complete_models(model)


if __name__ == "__main__":
    for name in sys.argv[2:]:
        module, _, prepare = name.partition(":")
        imported = importlib.import_module(module)
        if prepare:  # what it would compute soon after its start, and keep
            getattr(imported, prepare)()
    if "pydantic" in sys.modules:
        _complete_models(sys.modules["pydantic"].BaseModel)
    gc.collect()
    gc.freeze()
    order = _serve(socket.socket(fileno=int(sys.argv[1])))
    server = sys.modules["__main__"]  # whose names are still in use
    sys.modules["__main__"] = types.ModuleType("__main__")
    as_main: Callable[[str], object] = vars(runpy)["_run_module_as_main"]  # what `python -m` calls
    try:
        as_main(order["command"][2])
    except SystemExit as end:
        _leave(end.code)
        raise
