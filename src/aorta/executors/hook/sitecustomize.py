"""Found by the user's own interpreter, before the user's program: writes down what the program
imports at its top.

`AORTA_IMPORTS` is `PID:FILE`; a process with another pid, such as one that the program started, is
left alone. Before anything else every trace of this file is removed; where the interpreter has a
`sitecustomize` of its own, that one is run. An audit hook sees imports without being seen: the
program finds the same modules, and its tracebacks the same frames. Python 3.8 or later.

A line of FILE is `NAME<TAB>SECONDS<TAB>CHANGED`: a module, when it was asked for, and whether the
program had changed its variables by then. NAME is empty where an import is done.
"""

from __future__ import annotations

import os
import sys
from time import monotonic

VARIABLE = "AORTA_IMPORTS"
ORIGINAL_PATH = "AORTA_IMPORTS_PYTHONPATH"  # what PYTHONPATH was: absent, or `=` and its value
TYPE_CHECKING = False  # without `typing`, which the program may not import
if TYPE_CHECKING:
    from types import FrameType
HERE = os.path.dirname(os.path.abspath(__file__))


def _leave_no_trace() -> list[str]:
    word = os.environ.pop(VARIABLE, "")
    original = os.environ.pop(ORIGINAL_PATH, "")
    if original.startswith("="):
        os.environ["PYTHONPATH"] = original[1:]
    else:
        os.environ.pop("PYTHONPATH", None)
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != HERE]
    sys.path_importer_cache.pop(HERE, None)
    return word.split(":", 1)


class _Observer:
    def __init__(self, file: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self.file, self.pid = os.open(file, flags, 0o600), os.getpid()
        self.first = dict(os.environ)

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if event not in ("import", "exec") or os.getpid() != self.pid:
            return
        try:
            top, below = _top_of_the_program()
            if event == "import" and top is not None and below is None:
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


def _top_of_the_program() -> tuple[FrameType | None, FrameType | None]:
    """The frame of the program's top level, and the frame of the import that it is in, if any.

    Nothing, where what happens now was called from there and not imported.
    """
    frame: FrameType | None = sys._getframe(2)
    below = None
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__":
            imported = below is None or below.f_code.co_filename.startswith("<frozen importlib")
            return (frame, below) if imported else (None, None)
        frame, below = frame.f_back, frame
    return None, None


def _run_the_real_one() -> bool:
    """Whether the interpreter has a sitecustomize of its own, which has run then."""
    from _frozen_importlib_external import PathFinder

    if PathFinder.find_spec("sitecustomize", sys.path) is None:
        return False
    del sys.modules["sitecustomize"]
    __import__("sitecustomize")
    return True


if VARIABLE in os.environ:
    _pid, _file = _leave_no_trace()
    if int(_pid) == os.getpid():
        sys.addaudithook(_Observer(_file))
if not _run_the_real_one():
    raise ImportError("none of its own", name="sitecustomize")
