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
            at, is_its_own = _import_of_the_program()
            if is_its_own and dict(os.environ) != self.variables:
                self.variables.clear()
            elif is_its_own or at == self.at:
                self.at = at
                name = "\n" + "".join(str(arguments[0]).split()) if is_its_own else ""
                os.write(self.file, ("%s %.4f" % (name, monotonic())).encode("utf-8", "replace"))
        except Exception:
            pass  # raised here, it would forbid the import


def _import_of_the_program() -> tuple[int, bool]:
    """Which instruction of the program's top level imports, and whether it is its own import or one
    that the imported module does; -2 where a function of the program imports."""
    frame: FrameType | None = sys._getframe(2)
    below = ""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__":
            by_import = below == "" or below.startswith("<frozen importlib")
            return (frame.f_lasti, below == "") if by_import else (-2, False)
        below, frame = frame.f_code.co_filename, frame.f_back
    return -2, False


_pid, _, _file = os.environ.pop("AORTA_IMPORTS", "").partition(":")
_path = os.environ.pop("AORTA_IMPORTS_PYTHONPATH", "")  # `=` and what PYTHONPATH was, if anything
if _pid:
    os.environ.pop("PYTHONPATH", None)
    if _path:
        os.environ["PYTHONPATH"] = _path[1:]
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != HERE]
    sys.path_importer_cache.pop(HERE, None)
    if int(_pid) == os.getpid():
        sys.addaudithook(_Observer(_file))
from _frozen_importlib_external import PathFinder  # noqa: E402 - without this file on the path

if PathFinder.find_spec("sitecustomize", sys.path) is None:
    raise ImportError("none of its own", name="sitecustomize")
del sys.modules["sitecustomize"]
__import__("sitecustomize")
