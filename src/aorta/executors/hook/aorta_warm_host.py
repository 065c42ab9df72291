"""A warm host: the user's interpreter, stopped just before the user's program, with the program's libraries imported.

It is started with the program's own command, directory and variables, and never runs the program itself. For each trial a
child is forked that goes on from here as if nothing had been: the interpreter itself then runs the script, so arguments,
`__main__`, tracebacks, exit codes and what runs at exit are the interpreter's own doing and not an imitation. The
child is forked twice, so that it is a child of the supervisor like any trial.

What is imported was seen in a cold run, and only what lies in site-packages. After each import the host looks at itself:
a thread that outlives a fork, an open descriptor, a process, output, a source of random numbers or one of the user's own
files means that this module is left to the trials. Standard library only, C modules where possible: what the host
imports, a trial finds imported. Python 3.8 or later.
"""

from __future__ import annotations

import _ctypes
import _signal  # type: ignore[import-not-found]
import _socket
import marshal
import os
import sys
import time
from _frozen_importlib_external import PathFinder

TYPE_CHECKING = False  # without `typing`, which the program may not import
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_MM, _PR_SET_MM_MAP = 1, 35, 14
_LIBC = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]
_PRCTL = _ctypes.dlsym(_LIBC, "prctl")
_FIONREAD = 0x541B
_CHUNK = 1 << 22
_HARMLESS = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_OF_THE_LOADER = ("PYTHON", "LD_", "GLIBC_", "MALLOC_")


class UnfitError(Exception):
    """Why this module, or this program, cannot be kept warm."""


# -- messages: a length, then marshal's second format, which every Python 3 reads -------------------------------------------


def _send(line: _socket.socket, content: dict[str, Any], descriptors: list[int] = []) -> None:  # noqa: B006
    data = marshal.dumps(content, 2)
    data = len(data).to_bytes(4, "big") + data
    rights = b"".join(number.to_bytes(4, sys.byteorder) for number in descriptors)
    ancillary = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)] if descriptors else []
    sent = line.sendmsg([data], ancillary)
    line.sendall(data[sent:])


def _receive(line: _socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The next message and the descriptors that came with it. EOFError when nobody is there any more."""
    data, ancillary, _, _ = line.recvmsg(4, _socket.CMSG_SPACE(2 * 4))
    descriptors = [
        int.from_bytes(rights[at : at + 4], sys.byteorder)
        for _, _, rights in ancillary
        for at in range(0, len(rights), 4)
    ]
    data = _rest(line, data, 4)
    return marshal.loads(_rest(line, b"", int.from_bytes(data, "big"))), descriptors


def _rest(line: _socket.socket, data: bytes, size: int) -> bytes:
    parts = [data]
    while size > sum(map(len, parts)):
        more = line.recv(min(1 << 16, size - sum(map(len, parts))))
        if not more:
            raise EOFError
        parts.append(more)
    return b"".join(parts)


# -- importing, and looking at what that left ------------------------------------------------------------------------------


class _Recording(os._Environ):  # type: ignore[type-arg]
    """Remembers which variables were asked for. `os.environ` is of this class while the host imports, and then not."""

    asked: set[str] = set()

    def __getitem__(self, name: str) -> str:
        _Recording.asked.add(name)
        value: str = os._Environ.__getitem__(self, name)
        return value

    def __iter__(self) -> Iterator[str]:
        _Recording.asked.add("*")
        return os._Environ.__iter__(self)


class _Imports:
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
        plain = type(os.environ)
        os.environ.__class__ = _Recording
        try:
            for name, origin, changed in candidates:
                if changed and not set(changed.split(",")) <= self.changed_variables().keys():
                    break  # the program had set variables by then, and this import may read them
                if name not in sys.modules and not self._is_excluded(name):
                    self._import(name, origin)
        finally:
            os.environ.__class__ = plain
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
        """Whether it would be imported from the place where the program found it, and that place is a site-packages."""
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
            _try_a_fork()  # some libraries end their threads for a fork and start them again when needed
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


def _random_sources(modules: list[str]) -> Iterator[str]:
    """Modules that hold generators of their own: whether those were seeded by chance or by hand cannot be told."""
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


# -- variables: which of them may differ between the trials of one host --------------------------------------------------


class _Variables:
    """A variable that nothing imported so far can have read may have another value in a trial than it has here."""

    def __init__(self, own: list[str]) -> None:
        self._known = dict.fromkeys(own, True)  # aorta's own: read by nobody but the program

    def refuse(self, names: set[str]) -> str | None:
        new = [name for name in names if name not in self._known]
        if "*" in _Recording.asked and new:
            return new[0]
        binaries = _names_in_binaries(new) if new else set()
        for name in new:
            self._known[name] = not (
                name in _Recording.asked or name in binaries or name.startswith(_OF_THE_LOADER)
            )
        return next((name for name in sorted(names) if not self._known[name]), None)


def _names_in_binaries(names: list[str]) -> set[str]:
    """Which of these names stand as text in a program or library that is mapped here: `getenv` is asked with such texts."""
    wanted = {name: os.fsencode(name) + b"\0" for name in names}
    found: set[str] = set()
    with open("/proc/self/maps", "rb") as maps:
        files = {line.split(None, 5)[5].rstrip(b"\n") for line in maps if b" /" in line}
    for file in files:
        try:
            for text in _constants(file):
                found.update(name for name, word in wanted.items() if _stands_in(word, text))
        except (OSError, ValueError, IndexError):
            continue
    return found


def _stands_in(word: bytes, text: bytes) -> bool:
    """As a text of its own, not as the end of a longer name."""
    at = text.find(word)
    while at >= 0:
        before = text[at - 1 : at]
        if not (before.isalnum() or before == b"_"):
            return True
        at = text.find(word, at + 1)
    return False


def _constants(file: bytes) -> Iterator[bytes]:
    """The sections of a 64-bit ELF file that hold constants; nothing of any other file."""
    with open(file, "rb", buffering=0) as binary:
        head = binary.read(64)
        if head[:5] != b"\x7fELF\x02":
            return
        table, size, count, names = (
            int.from_bytes(head[a:b], "little") for a, b in ((40, 48), (58, 60), (60, 62), (62, 64))
        )
        binary.seek(table)
        raw = binary.read(size * count)
        headers = [raw[i * size : (i + 1) * size] for i in range(count)]

        def place(header: bytes) -> tuple[int, int]:
            return int.from_bytes(header[24:32], "little"), int.from_bytes(header[32:40], "little")

        start, length = place(headers[names])
        binary.seek(start)
        texts = binary.read(length)
        for header in headers:
            name = texts[int.from_bytes(header[:4], "little") :].split(b"\0", 1)[0]
            if name.startswith((b".rodata", b".data")) and header[4] == 1:
                yield from _chunks(binary, *place(header))


def _chunks(binary: Any, start: int, length: int) -> Iterator[bytes]:
    """A chunk begins with the end of the one before: a name may lie across the cut."""
    binary.seek(start)
    before = b""
    while length > 0:
        data = binary.read(min(_CHUNK, length))
        if not data:
            return
        length -= len(data)
        yield before + data
        before = data[-256:]


# -- a trial ---------------------------------------------------------------------------------------------------------------


class _Stem:
    """A child that waits to fork the next trial and to end: its own fork is paid before the trial is asked for."""

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
            order, descriptors = _receive(line)
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
        _send(self.line, order, descriptors)
        pid = int.from_bytes(_rest(self.line, b"", 4), "big")
        os.waitpid(self.pid, 0)
        self.line.send(b"!")
        _rest(self.line, b"", 1)
        self.line.close()
        return pid


class _Trial(BaseException):
    """Raised in the process of a trial, once it is as a cold one would be, to leave the host's loop."""


class _Host:
    def __init__(self, line: _socket.socket) -> None:
        self.line = line
        self.stem: _Stem | None = None

    def prepare(self) -> None:
        order, _ = _receive(self.line)
        self.supervisor = os.getppid()
        self.own = order["own"]
        self.told = order["env"]  # as its owner sees the variables; a shell may have added its own
        self.count = len(order["arguments"])
        imports = self.imports = _Imports(order["excluded"])
        _refuse_hooks()
        imports.run(order["candidates"])
        modules = imports.modules()
        for name in _random_sources(modules):
            raise UnfitError(name, "it holds a source of random numbers")
        self.variables = _Variables(self.own)
        self.changed = imports.changed_variables()
        self.top_level = {name.partition(".")[0] for name in modules}
        self.stamps = _stamps(modules)
        self.pids, self.clocks = _of_this_process(modules, imports.began, imports.ended)
        with open("/proc/self/cmdline", "rb") as words:
            self.words = [os.fsdecode(word) for word in words.read().split(b"\0")[:-1]]
        self._map = _process_map()  # may not be possible here: better known now
        ready = {
            "ready": True,
            "seconds": imports.ended - imports.began,
            "modules": len(modules),
        }
        _send(self.line, ready)

    def serve(self) -> None:
        """Until the supervisor is gone; in a trial, until it has its order."""
        while True:
            if self.stem is None:
                self.stem = _Stem(self)
            try:
                order, descriptors = _receive(self.line)
            except (EOFError, OSError):
                os._exit(0)
            refusal = self._refusal(order)
            if refusal:
                _send(self.line, {"refused": refusal[0], "stale": refusal[1]})
            else:
                stem, self.stem = self.stem, None
                _send(self.line, {"pid": stem.start(order, descriptors)})
            for number in descriptors:
                os.close(number)

    def _refusal(self, order: dict[str, Any]) -> tuple[str, bool] | None:
        """Why this trial cannot come from here, and whether none can any more."""
        if _stamps_changed(self.stamps):
            return "a library was changed since it was imported", True
        hidden = self.top_level & _names_in(order["front"])
        if hidden:
            return "the program's own " + min(hidden) + " hides a library", True
        read = self.variables.refuse(set(self._differing(order["env"])))
        return (read + " is read by a library when it is imported", False) if read else None

    def _differing(self, wanted: dict[str, str]) -> dict[str, str | None]:
        """The variables of a trial that are not as they were when this host started; None for one that is gone."""
        told = self.told
        names = wanted.keys() | told.keys()
        return {n: wanted.get(n) for n in names if wanted.get(n) != told.get(n)}

    def become(self, order: dict[str, Any], descriptors: list[int]) -> None:
        """In the process of a trial: what a cold start would have."""
        _prctl(_PR_SET_PDEATHSIG, _signal.SIGKILL)
        if os.getppid() != self.supervisor:
            os._exit(1)
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDONLY)
        for target, number in enumerate((nothing, *descriptors)):
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
        _show_process(self._map, words, first)
        _begin_anew(self.pids, self.clocks)


def _refuse_hooks() -> None:
    """A start-up file on PYTHONPATH is there to see the imports happen."""
    for place in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        for name in ("sitecustomize", "usercustomize"):
            if place and PathFinder.find_spec(name, [place]) is not None:
                raise UnfitError("", name + " on PYTHONPATH must see the imports")


def _stamps(modules: list[str]) -> list[tuple[str, tuple[int, ...]]]:
    files = {getattr(sys.modules[name], "__file__", None) for name in modules}
    return [(file, _stamp(file)) for file in files if isinstance(file, str)]


def _stamp(file: str) -> tuple[int, ...]:
    try:
        about = os.stat(file)
    except OSError:
        return ()
    return about.st_mtime_ns, about.st_size, about.st_ino


def _stamps_changed(stamps: list[tuple[str, tuple[int, ...]]]) -> bool:
    return any(_stamp(file) != stamp for file, stamp in stamps)


def _names_in(places: list[str]) -> set[str]:
    """Top-level modules that these directories offer."""
    found: set[str] = set()
    for place in places:
        try:
            found.update(name.partition(".")[0] for name in os.listdir(place))
        except OSError:
            continue
    return found


def _of_this_process(
    modules: list[str], began: float, ended: float
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Where modules wrote down this process's number, or the time when they were imported."""
    pid = os.getpid()
    pids: list[tuple[str, str]] = []
    clocks: list[tuple[str, str]] = []
    for name in [*modules, "logging"]:
        for key, value in list(vars(sys.modules.get(name, object)).items()):
            if type(value) is int and value == pid and "pid" in key.lower():
                pids.append((name, key))
            elif type(value) is float and began <= value <= ended:
                clocks.append((name, key))
    return pids, clocks


def _begin_anew(pids: list[tuple[str, str]], clocks: list[tuple[str, str]]) -> None:
    """What a cold start draws, counts or writes down for itself. `random` draws anew in every fork by itself."""
    for name, key in pids:
        setattr(sys.modules[name], key, os.getpid())
    for name, key in clocks:
        setattr(sys.modules[name], key, time.time())
    drawing = sys.modules.get("numpy.random")
    if drawing is not None:
        drawing.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()  # drawn when torch is imported; those of GPUs come later
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        process._current_process._config["authkey"] = process.AuthenticationString(os.urandom(32))


# -- how the process looks from outside ----------------------------------------------------------------------------------


def _prctl(*arguments: object) -> int:
    answer: int = _ctypes.call_function(_PRCTL, (*arguments, *[0] * (5 - len(arguments))))
    return answer


def _process_map() -> list[int]:
    """Where the kernel finds this process's parts, in its own order. Unfit where it would not let us say so again."""
    with open("/proc/self/stat", "rb") as file:
        fields = [b"", b""] + file.read().rpartition(b")")[2].split()
    number = {key: int(fields[key - 1]) for key in (26, 27, 28, 45, 46, 47, 48, 49, 50, 51)}
    with open("/proc/self/maps", "rb") as maps:
        heaps = [line for line in maps if line.rstrip().endswith(b"[heap]")]
    end = int(heaps[-1].split()[0].split(b"-")[1], 16) if heaps else number[47]
    parts = [number[key] for key in (26, 27, 45, 46, 47)] + [end]
    parts += [number[key] for key in (28, 48, 49, 50, 51)]
    if _say(parts):
        raise UnfitError("", "the kernel does not let a process say its own command line")
    return parts


def _say(parts: list[int]) -> int:
    whole = b"".join(part.to_bytes(8, sys.byteorder) for part in parts)
    whole += bytes(8) + bytes(4) + b"\xff\xff\xff\xff"
    return _prctl(_PR_SET_MM, _PR_SET_MM_MAP, whole, len(whole))


def _show_process(parts: list[int], words: list[str], variables: dict[str, str]) -> None:
    """The trial's own command line and variables in /proc, where monitors, and its owner in need, find it by them."""
    assignments = [name + "=" + value for name, value in variables.items()]
    first, second = (
        b"".join(os.fsencode(text) + b"\0" for text in texts) for texts in (words, assignments)
    )
    block = first + second
    _ctypes.Py_INCREF(block)  # for as long as the process lives
    start = id(block) + bytes.__basicsize__ - 1
    with open("/proc/self/maps", "rb") as maps:
        heaps = [line for line in maps if line.rstrip().endswith(b"[heap]")]
    now = list(parts)
    if heaps:
        now[5] = int(heaps[-1].split()[0].split(b"-")[1], 16)
    middle = start + len(first)
    now[7:] = [start, middle, middle, start + len(block)]
    _say(now)


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
        _send(line, {"unfit": name, "why": why})
    except BaseException:  # noqa: BLE001 - whatever it is, the program itself must not run here
        os._exit(1)
    os._exit(0)
