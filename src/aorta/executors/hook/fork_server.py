"""A fork server: the user's interpreter with the user's libraries imported, in the program's
directory and with its variables. Each trial is a fork of it that runs the program.

Run as `python fork_server.py DESCRIPTOR`. Messages are a length and JSON, both ways. The first one
says what to import; the answer how long that took, or why no trial may come from here. Each further
one asks for a trial and brings its two output descriptors; the answer is its pid. A trial is forked
twice, so that it becomes a child of the supervisor, which adopts orphans. Python 3.9 or later.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import runpy
import signal
import socket
import sys
import sysconfig
import time

TYPE_CHECKING = False  # without `typing`, which the program may not import
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_PR_SET_PDEATHSIG = 1
MARK = "AORTA_FORK_SERVER"  # in the environment that /proc shows of this process and its forks


def send(line: socket.socket, content: Mapping[str, Any]) -> None:
    data = json.dumps(content).encode()
    line.sendall(len(data).to_bytes(4, "big") + data)


def receive(line: socket.socket) -> tuple[dict[str, Any], list[int]]:
    data, descriptors, _, _ = socket.recv_fds(line, 4, 2)
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        more = line.recv(1 << 16)
        if not more:
            raise EOFError
        data += more
    return json.loads(data[4:]), list(descriptors)


def import_libraries(names: list[str]) -> str:
    """Import them in this order up to the first that is none; why no trial may come from here, or
    nothing.
    """
    before = _descriptors()
    paths = sysconfig.get_paths()
    places = tuple(os.path.realpath(paths[k]) + os.sep for k in ("purelib", "platlib", "stdlib"))
    for name in names:
        spec = importlib.util.find_spec(name)
        origin = (spec.origin or "") if spec is not None else ""
        if origin not in ("built-in", "frozen") and not os.path.realpath(origin).startswith(places):
            break  # the program's own: it may change, and what follows may depend on it
        __import__(name)
    if len(os.listdir("/proc/self/task")) > 1:
        pid = os.fork()  # some libraries end their threads for a fork, and begin them when needed
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        if len(os.listdir("/proc/self/task")) > 1:
            return "an import leaves a thread running"
    left = [place for place in _descriptors() - before if not place.startswith("/dev/")]
    left += [place for place in _descriptors() - before if place.startswith(("/dev/nv", "/dev/k"))]
    return f"an import leaves {left[0]} open" if left else ""


def _descriptors() -> set[str]:
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink("/proc/self/fd/" + number))
        except OSError:
            pass  # the one that listed them
    return {place for place in found if not place.startswith("/proc/")}


def become(order: Mapping[str, Any], descriptors: list[int]) -> None:
    """In the second fork: what a cold start of the program would have."""
    supervisor = order["supervisor"]
    between = os.getppid()
    while os.getppid() == between != supervisor:
        time.sleep(0.0002)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != supervisor:
        os._exit(1)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, number in enumerate([nothing, *descriptors]):
        os.dup2(number, target)
        os.close(number)
    os.chdir(order["cwd"])
    sys.path[0] = order["front"]
    for name in set(os.environ) - set(order["env"]):
        del os.environ[name]
    for name, value in order["env"].items():
        if os.environ.get(name) != value:
            os.environ[name] = value
    sys.argv = [order["script"] or order["module"], *order["arguments"]]
    draw_anew()


def draw_anew() -> None:
    """`random` draws a seed of its own after every fork; these do not."""
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()


def run_program(order: Mapping[str, Any]) -> None:
    """As `python SCRIPT` or `python -m MODULE` does, with the traceback that those would print."""
    try:
        if order["script"]:
            _run_script(os.path.abspath(order["script"]))
        else:
            runpy.run_module(order["module"], run_name="__main__", alter_sys=True)
        return
    except SystemExit:
        raise
    except BaseException as wrong:
        ours = {__file__, runpy.run_path.__code__.co_filename}
        trace = wrong.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename in ours:
            trace = trace.tb_next
        sys.excepthook(type(wrong), wrong.with_traceback(trace), trace)
        if isinstance(wrong, KeyboardInterrupt):  # an interpreter then ends by the signal itself
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
    raise SystemExit(1)


def _run_script(script: str) -> None:
    """`runpy.run_path` would show another `sys.argv[0]`, and take `__main__` away at the end."""
    main = sys.modules["__main__"] = type(sys)("__main__")
    main.__file__ = script
    vars(main)["__builtins__"] = __builtins__
    with open(script, "rb") as source:
        code = compile(source.read(), script, "exec", dont_inherit=True)
    exec(code, vars(main))


def serve(line: socket.socket) -> Mapping[str, Any]:
    """Fork what is asked for, until nobody asks any more; comes back as a trial only."""
    while True:
        try:
            order, descriptors = receive(line)
        except (EOFError, OSError):
            os._exit(0)
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            line.close()
            trial = os.fork()
            if trial:
                os.write(write, str(trial).encode())
                os._exit(0)
            os.close(read)
            os.close(write)
            become(order, descriptors)
            return order
        os.waitpid(pid, 0)
        send(line, {"pid": int(os.read(read, 32))})
        for number in (read, write, *descriptors):
            os.close(number)


def main() -> None:
    line = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(line.fileno(), False)
    os.environ.pop(MARK, None)
    order, _ = receive(line)
    sys.path[0] = order["front"]
    began = time.monotonic()
    unfit = import_libraries(order["modules"])
    send(line, {"seconds": time.monotonic() - began, "unfit": unfit})
    run_program(serve(line))


if __name__ == "__main__":
    main()
