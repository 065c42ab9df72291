"""Found by the user's own interpreter before the program: writes down what that imports at its top.

`AORTA_IMPORTS` is `PID:FILE`; a process with another pid is left alone. Every trace of this file is
removed first, and the interpreter's own `sitecustomize` is run, if it has one. An audit hook sees
imports without being seen: the program finds the same modules and frames. Python 3.8 or later.

A line of FILE is a module's name, when it was asked for, and when it asked for others itself. The
file ends where the program changes a variable: what it imports from there on may depend on it.
"""

from __future__ import annotations

import os
import sys
from time import monotonic

TYPE_CHECKING = False  # without `typing`, which the program may not import
if TYPE_CHECKING:
    from types import FrameType
HERE = os.path.dirname(os.path.abspath(__file__))


class _Observer:
    def __init__(self, file: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self.file, self.pid = os.open(file, flags, 0o600), os.getpid()
        self.variables = dict(os.environ)
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
            if not below and dict(os.environ) != self.variables:
                self.variables.clear()
            elif not below or frame.f_lasti == self.at:
                self.at = frame.f_lasti
                name = "" if below else "\n" + "".join(str(arguments[0]).split())
                os.write(self.file, ("%s %.4f" % (name, monotonic())).encode("utf-8", "replace"))
        except Exception:
            pass  # raised here, it would forbid the import


def _is_the_top(frame: FrameType) -> bool:
    return frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__"


_pid, _, _file = os.environ.pop("AORTA_IMPORTS", "").partition(":")
if _pid:
    # This directory came before whatever was there: behind a separator, if anything was.
    _, _was_set, os.environ["PYTHONPATH"] = os.environ["PYTHONPATH"].partition(os.pathsep)
    if not _was_set:
        del os.environ["PYTHONPATH"]
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != HERE]
    sys.path_importer_cache.pop(HERE, None)
    if int(_pid) == os.getpid():
        sys.addaudithook(_Observer(_file))
from _frozen_importlib_external import PathFinder  # noqa: E402 - without this file on the path

if PathFinder.find_spec("sitecustomize", sys.path) is None:
    raise ImportError("none of its own", name="sitecustomize")
del sys.modules["sitecustomize"]
__import__("sitecustomize")
