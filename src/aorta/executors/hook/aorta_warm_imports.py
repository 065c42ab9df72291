"""Importing what the program will import, and looking at what that left in this process."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import sys
import time
from _frozen_importlib_external import PathFinder

from aorta_warm_reads import Recording

TYPE_CHECKING = False  # without `typing`, which the program may not import
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_FIONREAD = 0x541B
_HARMLESS = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")


class UnfitError(Exception):
    """Why this module, or this program, cannot be kept warm."""


class Imports:
    """Imports the candidates one after the other, and knows afterwards what came of it."""

    def __init__(self, excluded: list[str]) -> None:
        self.excluded = excluded
        self.places = _site_packages()
        self.standard = os.path.realpath(os.path.dirname(os.__file__))
        self.before = frozenset(sys.modules)
        self.first_variables = dict(os.environ)
        self.descriptors = _descriptors()
        self.began = time.time()

    def run(self, candidates: list[list[str]]) -> None:
        Recording.begin()
        try:
            for name, origin, changed in candidates:
                if changed and not set(changed.split(",")) <= self.changed_variables().keys():
                    break  # the program had set variables by then, and this import may read them
                if name not in sys.modules and not self._is_excluded(name):
                    self._import(name, origin)
        finally:
            Recording.end()
        self.ended = time.time()

    def _is_excluded(self, name: str) -> bool:
        return any(name == one or name.startswith(one + ".") for one in self.excluded)

    def _import(self, name: str, origin: str) -> None:
        if not self._found_at(name, origin):
            return
        try:
            __import__(name)
        except BaseException as wrong:
            raise UnfitError(
                name, "its import fails before the program: " + repr(wrong)[:200]
            ) from None
        for reason in self._looks():
            raise UnfitError(name, reason)

    def _found_at(self, name: str, origin: str) -> bool:
        """Whether it would be imported from the place where the program found it, and that place is
        a site-packages.
        """
        parent = name.rpartition(".")[0]
        if not os.path.realpath(origin).startswith(self.places):
            return False
        if parent and parent not in sys.modules:
            return False  # it is left to the trials with its package
        path = getattr(sys.modules[parent], "__path__", None) if parent else sys.path
        spec = PathFinder.find_spec(name, path)
        return spec is not None and spec.origin == origin

    def changed_variables(self) -> dict[str, str | None]:
        """What the imports did to the variables: a value, or None for one that is gone."""
        inside: Any = os.environ
        now, first = dict(inside._data), self.first_variables
        decoded = {os.environ.decodekey(n): os.environ.decodevalue(v) for n, v in now.items()}
        names = decoded.keys() | first.keys()
        return {n: decoded.get(n) for n in names if decoded.get(n) != first.get(n)}

    def _looks(self) -> Iterator[str]:
        """Everything that a fork would not carry over, or would share between trials."""
        if _written():
            yield "its import writes to stdout or stderr"
        if _threads() > 1:
            # some libraries end their threads for a fork and start them again when needed
            _try_a_fork()
            if _threads() > 1:
                yield "it leaves a thread running"
        for number, place in _descriptors().items():
            if self.descriptors.get(number) != place and place not in _HARMLESS:
                yield "it leaves " + place + " open"
        if _has_children():
            yield "it leaves a process running"
        if any(_signal.getitimer(_signal.ITIMER_REAL)):
            yield "it leaves a timer running"
        for name in set(sys.modules) - self.before:
            file = getattr(sys.modules[name], "__file__", None)
            if isinstance(file, str) and os.path.isabs(file) and not self._is_a_library(file):
                yield "it imports " + file

    def _is_a_library(self, file: str) -> bool:
        real = os.path.realpath(file)
        return real.startswith((*self.places, self.standard))

    def modules(self) -> list[str]:
        """What a trial finds imported and a cold start does not."""
        return [name for name in list(sys.modules) if name not in self.before]


def _site_packages() -> tuple[str, ...]:
    import site

    found = site.getsitepackages()
    if site.ENABLE_USER_SITE:
        found.append(site.getusersitepackages())
    return tuple(os.path.realpath(place) + os.sep for place in found if os.path.isdir(place))


def _written() -> bool:
    import fcntl

    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    waiting = bytearray(4)
    for number in (1, 2):
        fcntl.ioctl(number, _FIONREAD, waiting)
        if any(waiting):
            return True
    return False


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _try_a_fork() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _descriptors() -> dict[str, str]:
    found = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            found[number] = os.readlink("/proc/self/fd/" + number)
        except OSError:
            pass  # the one that listed them
    return found


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def random_sources(modules: list[str]) -> Iterator[str]:
    """Modules that hold generators of their own: whether those were seeded by chance or by hand
    cannot be told.
    """
    kinds = []
    if "random" in sys.modules:
        kinds.append(sys.modules["random"].Random)
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        kinds += [numpy_random.RandomState, numpy_random.Generator]
    harmless = getattr(sys.modules.get("random"), "SystemRandom", ())
    for name in modules:
        if name == "random" or name.startswith("numpy.random"):
            continue
        for value in list(vars(sys.modules[name]).values()):
            if isinstance(value, tuple(kinds)) and not isinstance(value, harmless):
                yield name
                break


def refuse_hooks(harmless: list[str]) -> None:
    """A start-up file on PYTHONPATH is there to see the imports happen; all but aorta's own."""
    for place in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        for name in ("sitecustomize", "usercustomize"):
            if place and place not in harmless and PathFinder.find_spec(name, [place]) is not None:
                raise UnfitError("", name + " on PYTHONPATH must see the imports")
