"""Found by the user's own interpreter before the program: writes down what that imports at its top.

`AORTA_IMPORTS` is `PID:FILE`; a process with another pid is left alone. Every trace of this file is
removed first, and the interpreter's own `sitecustomize` is run, if it has one. An audit hook sees
imports without being seen: the program finds the same modules and frames. Python 3.8 or later.

A line of FILE is `NAME<TAB>SECONDS<TAB>CHANGED`: a module, when it was asked for, and whether the
program had changed its variables by then. NAME is empty where an import is done.
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
        self.first = dict(os.environ)

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if event not in ("import", "exec") or os.getpid() != self.pid:
            return
        try:
            is_top, below = _top_of_the_program()
            if event == "import" and is_top and below is None:
                self.write(str(arguments[0]), "1" if dict(os.environ) != self.first else "")
            elif event == "exec" and below is not None and below.f_trace is None:
                below.f_trace = _Timer(self)
        except Exception:
            pass  # raised here, it would forbid the import

    def write(self, name: str, changed: str = "") -> None:
        line = "%s\t%.4f\t%s\n" % (name, monotonic(), changed)
        os.write(self.file, line.encode("utf-8", "surrogateescape"))


class _Timer:
    """Kept by the frame of an import, and so gone when the import is done."""

    def __init__(self, observer: _Observer) -> None:
        self.observer = observer

    def __call__(self, *_: object) -> None:
        """In the place of a trace function, which it is not."""

    def __del__(self) -> None:
        if os.getpid() == self.observer.pid:
            self.observer.write("")


def _top_of_the_program() -> tuple[bool, FrameType | None]:
    """Whether this is done by the program's top level, and the frame of the import it is in, if
    any; not where it was called from there and not imported."""
    frame: FrameType | None = sys._getframe(2)
    below = None
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__":
            if below is None or below.f_code.co_filename.startswith("<frozen importlib"):
                return True, below
            break
        frame, below = frame.f_back, frame
    return False, None


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
