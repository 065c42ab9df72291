"""Found by the user's own interpreter, before the user's program: watches what it imports, or keeps
it warm.

`AORTA_WARM` says which: `observe:PID:FILE` or `host:PID:DESCRIPTOR`. A process with another pid,
such as a Python that a shell or the program started, is left alone. Before anything else every
trace of this file is removed; where the interpreter has a `sitecustomize` of its own, that one is
run, and where it has none, it looks as if there were none. Standard library only, Python 3.8 or
later.
"""

from __future__ import annotations

import os
import sys
from time import monotonic

TYPE_CHECKING = False  # without `typing`, which the program may not import
if TYPE_CHECKING:
    from types import FrameType

VARIABLE = "AORTA_WARM"
ORIGINAL_PATH = "AORTA_WARM_PYTHONPATH"  # what PYTHONPATH was: absent, or `=` and its value
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
    return word.split(":", 2)


class _Observer:
    """Writes down every import that is not the standard library's, with where it was found and how
    the variables stood.

    A line is `NAME<TAB>FILE<TAB>VARIABLES`: the names of those that the program had changed by
    then. A line without a name says how many seconds went into imports so far. An audit hook sees
    imports without being seen: the program finds the same `sys.meta_path` and the same modules.
    """

    def __init__(self, file: str) -> None:
        self.file, self.pid, self.first = file, os.getpid(), dict(os.environ)
        self.standard: frozenset[str] = getattr(sys, "stdlib_module_names", frozenset())
        self.pending: list[tuple[str, str]] = []
        self.spent, self.busy = 0.0, False

    def begin(self) -> None:
        import atexit

        # An empty file: it came this far.
        os.close(os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        atexit.register(self.flush)
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if event not in ("import", "exec") or self.busy or os.getpid() != self.pid:
            return
        try:
            self._time_the_outermost()
            name = str(arguments[0]) if event == "import" else ""
            if name and name.partition(".")[0] not in self.standard:
                self.pending.append((name, self._changed()))
        except Exception:
            pass  # raised here, it would forbid the import

    def _time_the_outermost(self) -> None:
        frame: FrameType | None = sys._getframe()
        outermost = None
        while frame is not None:
            if frame.f_code.co_name == "_find_and_load":
                outermost = frame
            frame = frame.f_back
        if outermost is not None and outermost.f_trace is None:
            outermost.f_trace = _Timer(self)

    def _changed(self) -> str:
        now, first = dict(os.environ), self.first
        if now == first:
            return ""
        names = {n for n in now.keys() | first.keys() if now.get(n) != first.get(n)}
        return ",".join(sorted(names))

    def flush(self) -> None:
        if self.busy or os.getpid() != self.pid:
            return
        self.busy = True
        try:
            self._write()
        except Exception:
            pass  # what is watched must not notice
        finally:
            self.busy = False

    def _write(self) -> None:
        lines = ["\t\t%.3f\n" % self.spent]
        for name, variables in self.pending:
            spec = getattr(sys.modules.get(name), "__spec__", None)
            origin = getattr(spec, "origin", None)
            if isinstance(origin, str):  # none was found for what could not be imported
                lines.append("\t".join([name, origin, variables]) + "\n")
        self.pending.clear()
        target = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(target, "".join(lines).encode("utf-8", "surrogateescape"))
        finally:
            os.close(target)


class _Timer:
    """Kept by the frame of an import that no other import is around: it goes when that is done."""

    def __init__(self, observer: _Observer) -> None:
        self.observer, self.began = observer, monotonic()

    def __call__(self, *_: object) -> None:
        """In the place of a trace function, which it is not."""

    def __del__(self) -> None:
        self.observer.spent += monotonic() - self.began
        self.observer.flush()


def _run_the_real_one() -> bool:
    """Whether the interpreter has a sitecustomize of its own, which has run then."""
    from _frozen_importlib_external import PathFinder

    if PathFinder.find_spec("sitecustomize", sys.path) is None:
        return False
    del sys.modules["sitecustomize"]
    __import__("sitecustomize")

    return True


def _begin() -> None:
    mode, pid, where = _leave_no_trace()
    ours = int(pid) == os.getpid()
    if mode == "observe" and ours:
        _Observer(where).begin()
    elif mode == "host":
        if not ours:
            os._exit(1)  # nobody asked for the program itself
        sys.path.insert(0, HERE)
        host = __import__("aorta_warm_host")
        for name in [name for name in sys.modules if name.startswith("aorta_warm_")]:
            del sys.modules[name]
        sys.path.remove(HERE)
        sys.path_importer_cache.pop(HERE, None)
        host.serve(int(where))  # comes back in the process of a trial alone


if VARIABLE in os.environ:
    _begin()
if not _run_the_real_one():
    raise ImportError("none of its own", name="sitecustomize")
