"""A warm host: the user's interpreter, stopped just before the user's program, with the program's
libraries imported.

It is started with the program's own command, directory and variables, and never runs the program
itself. For each trial a child is forked that goes on from here as if nothing had been: the
interpreter itself then runs the script, so arguments, `__main__`, tracebacks, exit codes and what
runs at exit are the interpreter's own doing and not an imitation. The child is forked twice, so
that it is a child of the supervisor like any trial.

What is imported was seen in a cold run, and only what lies in site-packages. After each import the
host looks at itself: a thread that outlives a fork, an open descriptor, a process, output, a source
of random numbers or one of the user's own files means that this module is left to the trials.
Standard library only, C modules where possible: what the host imports, a trial finds imported.
Python 3.8 or later.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import os
import sys
from _frozen_importlib_external import FileFinder, _get_supported_file_loaders  # type: ignore[attr-defined]

from aorta_warm_imports import Imports, UnfitError, random_sources, refuse_hooks
from aorta_warm_line import receive, rest, send
from aorta_warm_process import (
    PR_SET_PDEATHSIG,
    begin_anew,
    of_this_process,
    prctl,
    process_map,
    show_process,
)
from aorta_warm_variables import Variables

TYPE_CHECKING = False  # without `typing`, which the program may not import
if TYPE_CHECKING:
    from typing import Any


class _Stem:
    """A child that waits to fork the next trial and to end: its own fork is paid before the trial
    is asked for.
    """

    def __init__(self, host: "_Host") -> None:
        self.line, theirs = _socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            self.line.close()
            self._wait(theirs, host)
        theirs.close()

    def _wait(self, line: _socket.socket, host: "_Host") -> None:
        """Comes back, as the trial, or not at all."""
        host.line.close()
        try:
            order, descriptors = receive(line)
        except (EOFError, OSError):
            os._exit(0)
        pid = os.fork()
        if pid:
            line.send(pid.to_bytes(4, "big"))
            os._exit(0)
        try:
            if line.recv(1) != b"!":
                os._exit(1)
            host.become(order, descriptors)
            line.send(b"+")
            line.close()
        except BaseException:
            os._exit(1)  # the host says so, and the trial starts cold
        raise _Trial

    def start(self, order: dict[str, Any], descriptors: list[int]) -> int:
        """The pid of the trial, which is a child of the supervisor by then."""
        send(self.line, order, descriptors)
        pid = int.from_bytes(rest(self.line, b"", 4), "big")
        os.waitpid(self.pid, 0)
        self.line.send(b"!")
        rest(self.line, b"", 1)
        self.line.close()
        return pid


class _Trial(BaseException):
    """Raised in the process of a trial, once it is as a cold one would be, to leave the host's
    loop.
    """


class _Host:
    def __init__(self, line: _socket.socket) -> None:
        self.line = line
        self.stem: _Stem | None = None

    def prepare(self) -> None:
        order, _ = receive(self.line)
        self.supervisor = os.getppid()
        self.told = order["env"]  # as its owner sees the variables; a shell may have added its own
        self.count = len(order["arguments"])
        imports = self.imports = Imports(order["excluded"])
        refuse_hooks(order.get("hooks", []))
        imports.run(order["candidates"])
        modules = imports.modules()
        for name in random_sources(modules):
            raise UnfitError(name, "it holds a source of random numbers")
        self.variables = Variables(order["own"], order.get("given", []))
        self.changed = imports.changed_variables()
        self.top_level = {name.partition(".")[0] for name in modules}
        self.stamps = _stamps(modules, imports.places)
        self.ahead = _ahead_of(imports.places, imports.standard)
        self.pids, self.clocks = of_this_process(modules, imports.began, imports.ended)
        with open("/proc/self/cmdline", "rb") as words:
            self.words = [os.fsdecode(word) for word in words.read().split(b"\0")[:-1]]
        self._map = process_map()  # may not be possible here: better known now
        ready = {
            "ready": True,
            "seconds": imports.ended - imports.began,
            "modules": len(modules),
        }
        send(self.line, ready)

    def serve(self) -> None:
        """Until the supervisor is gone; in a trial, until it has its order."""
        while True:
            if self.stem is None:
                self.stem = _Stem(self)
            try:
                order, descriptors = receive(self.line)
            except (EOFError, OSError):
                os._exit(0)
            refusal = self._refusal(order)
            if refusal:
                send(self.line, {"refused": refusal[0], "stale": refusal[1]})
            else:
                stem, self.stem = self.stem, None
                send(self.line, {"pid": stem.start(order, descriptors)})
            for number in descriptors:
                os.close(number)

    def _refusal(self, order: dict[str, Any]) -> tuple[str, bool] | None:
        """Why this trial cannot come from here, and whether none can any more."""
        if _stamps_changed(self.stamps):
            return "a library was changed since it was imported", True
        for place in [*order["front"], *self.ahead]:
            hidden = _hidden_by(place, self.top_level)
            if hidden:
                return "the program's own " + hidden + " hides a library", True
        read = self.variables.refuse(set(self._differing(order["env"])))
        return (read + " is read by a library when it is imported", False) if read else None

    def _differing(self, wanted: dict[str, str]) -> dict[str, str | None]:
        """The variables of a trial that are not as they were when this host started; None for one
        that is gone.
        """
        told = self.told
        names = wanted.keys() | told.keys()
        return {n: wanted.get(n) for n in names if wanted.get(n) != told.get(n)}

    def become(self, order: dict[str, Any], descriptors: list[int]) -> None:
        """In the process of a trial: what a cold start would have."""
        prctl(PR_SET_PDEATHSIG, _signal.SIGKILL)
        if os.getppid() != self.supervisor:
            os._exit(1)
        os.setsid()
        if len(descriptors) == 2:  # without a stdin
            descriptors.insert(0, os.open(os.devnull, os.O_RDONLY))
        for target, number in enumerate(descriptors):
            os.dup2(number, target)
            os.close(number)
        os.chdir(order["cwd"])
        first = dict(self.imports.first_variables)
        for name, value in self._differing(order["env"]).items():
            for variables in (first, os.environ):
                if value is None:
                    variables.pop(name, None)
                elif name not in self.changed or variables is first:
                    variables[name] = value
        sys.argv[1:] = order["arguments"]
        if hasattr(sys, "orig_argv"):
            kept = len(sys.orig_argv) - self.count
            sys.orig_argv[kept:] = order["arguments"]
        words = self.words[: len(self.words) - self.count] + order["arguments"]
        show_process(self._map, words, first)
        begin_anew(self.pids, self.clocks)


def _stamps(modules: list[str], places: tuple[str, ...]) -> list[tuple[str, tuple[int, ...]]]:
    """Of the files that were imported, and of the places where something may be installed or
    removed.
    """
    files = {getattr(sys.modules[name], "__file__", None) for name in modules}
    return [(file, _stamp(file)) for file in (*files, *places) if isinstance(file, str)]


def _stamp(file: str) -> tuple[int, ...]:
    try:
        about = os.stat(file)
    except OSError:
        return ()
    return about.st_mtime_ns, about.st_size, about.st_ino


def _stamps_changed(stamps: list[tuple[str, tuple[int, ...]]]) -> bool:
    return any(_stamp(file) != stamp for file, stamp in stamps)


def _ahead_of(places: tuple[str, ...], standard: str) -> list[str]:
    """What is searched before the libraries: the directories of PYTHONPATH."""
    found = []
    for entry in sys.path:
        real = os.path.realpath(entry) + os.sep
        if real.startswith(places):
            break
        if entry and not real.startswith(standard + os.sep):
            found.append(entry)
    return found


def _hidden_by(place: str, libraries: set[str]) -> str:
    """A library of which this directory offers another; asked without a trace in the caches of the
    import system.
    """
    try:
        names = sorted(libraries.intersection(n.partition(".")[0] for n in os.listdir(place)))
    except OSError:
        return ""
    finder = FileFinder(place, *_get_supported_file_loaders())
    for name in names:
        spec = finder.find_spec(name)
        if spec is not None and spec.loader is not None:
            return name
    return ""


def serve(descriptor: int) -> None:
    """Returns in the process of a trial, and nowhere else."""
    line = _socket.socket(fileno=descriptor)
    os.set_inheritable(descriptor, False)
    try:
        host = _Host(line)
        host.prepare()
        host.serve()
    except _Trial:
        return
    except UnfitError as wrong:
        name, why = wrong.args
        send(line, {"unfit": name, "why": why})
    except BaseException:  # noqa: BLE001 - whatever it is, the program itself must not run here
        os._exit(1)
    os._exit(0)
