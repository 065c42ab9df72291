"""Found by the user's own interpreter before the program: writes down what that imports at its top,
or stays where the program would begin and forks off one run of it after another.

`AORTA_HOOK` is `PID:WHAT`; a process with another parent is left alone. Every trace of this file is
removed first, and the interpreter's own `sitecustomize` is run, if it has one. WHAT is

- the name of a file. An audit hook sees imports without being seen: the program finds the same
  modules and frames. A line of the file is a module's name, when it was asked for, and when it
  asked for others itself. It ends where the program changes a variable or `sys.path`: what it
  imports from there on may depend on it. Python 3.8 or later.
- JSON: a fork server is wanted. It imports the modules that are named and says how many seconds
  that took; 0 where a fork would break what they started. Each message behind that asks for a trial
  and brings its two output descriptors; the answer is its pid. Python 3.9 or later.
"""

from __future__ import annotations

import os
import sys
from time import monotonic, sleep

TYPE_CHECKING = False  # without `typing`, which the program may not import
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType
    from typing import Any
HERE = os.path.dirname(os.path.abspath(__file__))
_PR_SET_PDEATHSIG, _SIGKILL = 1, 9


class _Observer:
    def __init__(self, file: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self.file, self.pid = os.open(file, flags, 0o600), os.getpid()
        self.variables, self.path = dict(os.environ), list(sys.path)
        self.at = -1  # the instruction of the program that imports

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if event != "import" or os.getpid() != self.pid or not self.variables:
            return
        try:
            frame: FrameType | None = sys._getframe(1)
            below = ""  # the file whose code the program's top level has called
            while frame is not None and not _is_the_top(frame):
                below, frame = frame.f_code.co_filename, frame.f_back
            if frame is None or not (below == "" or below.startswith("<frozen importlib")):
                return
            # Before it begins, the program's own directory is put in front of the path.
            if not below and (dict(os.environ), sys.path[1:]) != (self.variables, self.path):
                self.variables.clear()
            elif not below or frame.f_lasti == self.at:
                self.at = frame.f_lasti
                name = "" if below else "\n" + "".join(str(arguments[0]).split())
                os.write(self.file, ("%s %.4f" % (name, monotonic())).encode("utf-8", "replace"))
        except Exception:
            pass  # raised here, it would forbid the import


def _is_the_top(frame: FrameType) -> bool:
    return frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__"


def _import_libraries(names: list[str], front: str) -> None:
    """Up to the first that is the program's own."""
    from importlib.util import find_spec

    sys.path.insert(0, front)  # as it will be when the program begins
    for name in names:
        spec = find_spec(name)
        origin = (spec.origin or "") if spec is not None else ""
        place = os.path.realpath(origin)
        is_standard = origin in ("built-in", "frozen") or "/lib/python3" in place
        # Those of the user, and of an interpreter that this one builds on, too.
        if not (is_standard or "/site-packages/" in place or "/dist-packages/" in place):
            break  # it may change, and what follows may depend on it
        __import__(name)
    sys.path.remove(front)


def _has_threads() -> bool:
    """Which a fork would not have. Some libraries end theirs for a fork, and begin them later."""
    if os.fork() == 0:
        os._exit(0)
    os.wait()
    return len(os.listdir("/proc/self/task")) > 1


def _serve(what: str) -> None:
    """Returns in every trial, where the program then begins. A trial is forked twice: the
    supervisor, which adopts orphans, becomes its parent."""
    import json
    import socket

    wanted = json.loads(what)
    line = socket.socket(fileno=wanted["line"])
    os.set_inheritable(line.fileno(), False)
    began = monotonic()
    _import_libraries(wanted["modules"], wanted["front"])
    seconds = monotonic() - began
    line.send(b"0" if _has_threads() else b"%.3f" % seconds)
    while True:
        data, descriptors, _, _ = socket.recv_fds(line, 1 << 22, 2)
        if not data:
            os._exit(0)
        if os.fork() == 0:
            if os.fork():
                os._exit(0)
            _become(json.loads(data), list(descriptors))
            line.send(b"%d" % os.getpid())
            return line.close()
        os.wait()
        for number in descriptors:
            os.close(number)


def _become(trial: Mapping[str, Any], descriptors: list[int]) -> None:
    """What a cold start of the program would have."""
    import ctypes

    supervisor, between = trial["supervisor"], os.getppid()
    while os.getppid() == between != supervisor:
        sleep(0.0002)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    if os.getppid() != supervisor:
        os._exit(1)
    os.setsid()
    for target, number in enumerate([os.open(os.devnull, os.O_RDONLY), *descriptors]):
        os.dup2(number, target)
        os.close(number)
    for name in set(os.environ) - set(trial["env"]):
        del os.environ[name]
    os.environ.update(trial["env"])
    sys.argv[1:] = trial["arguments"]
    # `random` draws a seed of its own after every fork; these do not.
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()


_pid, _, _what = os.environ.pop("AORTA_HOOK", "").partition(":")
if _pid:
    # This directory came before whatever was there: behind a separator, if anything was.
    _, _was_set, os.environ["PYTHONPATH"] = os.environ["PYTHONPATH"].partition(os.pathsep)
    if not _was_set:
        del os.environ["PYTHONPATH"]
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != HERE]
    sys.path_importer_cache.pop(HERE, None)
from _frozen_importlib_external import PathFinder  # noqa: E402 - without this file on the path

_own = PathFinder.find_spec("sitecustomize", sys.path)
if _own is not None:
    del sys.modules["sitecustomize"]
    __import__("sitecustomize")
if _pid == str(os.getppid()):
    if _what.startswith("{"):
        try:
            _serve(_what)
        except BaseException:
            os._exit(1)  # or the program would begin here, as a trial of nobody
    else:
        sys.addaudithook(_Observer(_what))
if _own is None:
    raise ImportError("none of its own", name="sitecustomize")
