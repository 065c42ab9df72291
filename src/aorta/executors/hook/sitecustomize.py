"""Found by the user's own interpreter before the program. `AORTA_HOOK` is `PID:WHAT`; a process
with another parent is left alone. WHAT is

- the name of a file, for what the program imports at its top, up to where it changes a variable or
  `sys.path`: a line is a module's name, when it was asked for, and when it asked for others itself.
  An audit hook is not seen: the program finds the same modules and frames. Python 3.8 or later.
- JSON, for a fork server: it stays where the program would begin, imports the modules that are
  named and says how many seconds that took. Each message behind that asks for a trial and brings
  its two output descriptors; the answer is its pid. Python 3.9 or later.
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
        self.file, self.pid = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), os.getpid()
        self.variables, self.path = dict(os.environ), list(sys.path)
        self.at = -1  # the instruction of the program that imports

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if event != "import" or os.getpid() != self.pid or not self.variables:
            return
        try:
            caller = sys._getframe(1)
            top: FrameType | None = caller
            while top is not None and top.f_globals.get("__name__") != "__main__":
                top = top.f_back
            if top is None or top.f_code.co_name != "<module>":
                return
            if top is caller:
                self.at = top.f_lasti
                # Before it begins, the program's own directory is put in front of the path.
                if (dict(os.environ), sys.path[1:]) != (self.variables, self.path):
                    self.variables.clear()
            if self.variables and top.f_lasti == self.at:
                name = "\n" + "".join(str(arguments[0]).split()) if top is caller else ""
                os.write(self.file, ("%s %.4f" % (name, monotonic())).encode("utf-8", "replace"))
        except Exception:
            pass  # raised here, it would forbid the import


def _import_libraries(names: list[str]) -> None:
    """Up to the first that is the program's own: it may change, and what follows depend on it."""
    from importlib.util import find_spec

    # As it will be when the program begins. For a module this is `-m`, and the directory is here.
    front = os.path.dirname(os.path.realpath(sys.argv[0]))
    sys.path.insert(0, front)
    for name in names:
        spec = find_spec(name)
        origin = (spec.origin or "") if spec is not None else ""
        place = os.path.realpath(origin).replace("/lib64/", "/lib/")
        if origin not in ("built-in", "frozen") and "/lib/python3" not in place:
            break
        __import__(name)
    sys.path.remove(front)


def _serve(what: str) -> None:
    """Returns in every trial, where the program then begins. A trial is forked twice: the
    supervisor, which adopts orphans, becomes its parent."""
    import json
    import socket

    wanted = json.loads(what)
    line = socket.socket(fileno=wanted["line"])
    os.set_inheritable(line.fileno(), False)
    began = monotonic()
    _import_libraries(wanted["modules"])
    seconds = monotonic() - began
    if os.fork() == 0:
        os._exit(0)
    os.wait()  # some libraries end their threads for a fork, and begin them later
    if seconds < wanted["worth"] or len(os.listdir("/proc/self/task")) > 1:
        os._exit(1)  # it saves too little, or its forks would lack a thread
    line.send(b"%.3f" % seconds)
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
    os.environ.clear()
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
del sys.modules["sitecustomize"]
try:
    __import__("sitecustomize")  # its own; that there is none is no error to `site`
finally:
    if _pid == str(os.getppid()):
        if _what.startswith("{"):
            try:
                _serve(_what)
            except BaseException:
                os._exit(1)  # or the program would begin here, as a trial of nobody
        else:
            sys.addaudithook(_Observer(_what))
