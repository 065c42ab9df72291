"""A fork server: the user's interpreter with the user's libraries imported, in the program's
directory and with its variables. Each trial is a fork of it that runs the program.

Run as `python fork_server.py DESCRIPTOR FRONT MODULE...`, it imports the modules and says how long
that took, or why no trial may come from here. Each message behind that asks for a trial and brings
its two output descriptors; the answer is its pid. Messages are JSON. A trial is forked twice: the
supervisor, which adopts orphans, becomes its parent. Python 3.9 or later.
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


def import_libraries(names: list[str]) -> str:
    """Up to the first that is the program's own. Why nothing may be forked from here, if so."""
    paths = sysconfig.get_paths()
    places = tuple(os.path.realpath(paths[k]) + os.sep for k in ("purelib", "platlib", "stdlib"))
    for name in names:
        spec = importlib.util.find_spec(name)
        origin = (spec.origin or "") if spec is not None else ""
        if origin not in ("built-in", "frozen") and not os.path.realpath(origin).startswith(places):
            break  # it may change, and what follows may depend on it
        __import__(name)
    pid = os.fork()  # some libraries end their threads for a fork, and begin them when needed
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    if len(os.listdir("/proc/self/task")) > 1:
        return "an import leaves a thread running"
    opened = (os.path.realpath("/proc/self/fd/" + number) for number in os.listdir("/proc/self/fd"))
    has_gpu = any(place.startswith(("/dev/nv", "/dev/kfd")) for place in opened)
    return "an import leaves a GPU open" if has_gpu else ""


def become(trial: Mapping[str, Any], descriptors: list[int]) -> None:
    """In the second fork: what a cold start of the program would have."""
    supervisor, between = trial["supervisor"], os.getppid()
    while os.getppid() == between != supervisor:
        time.sleep(0.0002)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != supervisor:
        os._exit(1)
    os.setsid()
    for target, number in enumerate([os.open(os.devnull, os.O_RDONLY), *descriptors]):
        os.dup2(number, target)
        os.close(number)
    os.chdir(trial["cwd"])
    for name in set(os.environ) - set(trial["env"]):
        del os.environ[name]
    os.environ.update(trial["env"])
    sys.argv = [trial["script"] or trial["module"], *trial["arguments"]]
    # `random` draws a seed of its own after every fork; these do not.
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()


def run_program(trial: Mapping[str, Any]) -> None:
    """As `python SCRIPT` or `python -m MODULE` does, with the traceback that those would print."""
    try:
        if trial["script"]:
            _run_script(os.path.abspath(trial["script"]))
        else:
            runpy.run_module(trial["module"], run_name="__main__", alter_sys=True)
        return
    except SystemExit:
        raise
    except BaseException as wrong:
        ours = {__file__, runpy.run_path.__code__.co_filename}
        trace = wrong.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename in ours:
            trace = trace.tb_next
        sys.excepthook(type(wrong), wrong.with_traceback(trace), trace)
    raise SystemExit(1)


def _run_script(script: str) -> None:
    """`runpy.run_path` would show another `sys.argv[0]`, and take `__main__` away at the end."""
    main = sys.modules["__main__"] = type(sys)("__main__")
    main.__file__ = script
    vars(main)["__builtins__"] = __builtins__
    with open(script, "rb") as source:
        code = compile(source.read(), script, "exec", dont_inherit=True)
    exec(code, vars(main))


def main() -> None:
    line = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(line.fileno(), False)
    sys.path[0] = sys.argv[2]
    began = time.monotonic()
    unfit = import_libraries(sys.argv[3:])
    line.send(json.dumps({"seconds": time.monotonic() - began, "unfit": unfit}).encode())
    while True:
        data, descriptors, _, _ = socket.recv_fds(line, 1 << 22, 2)
        if not data:
            os._exit(0)
        if os.fork() == 0:
            if os.fork():
                os._exit(0)
            become(json.loads(data), list(descriptors))
            line.send(b"%d" % os.getpid())
            line.close()
            return run_program(json.loads(data))
        os.wait()
        for number in descriptors:
            os.close(number)


if __name__ == "__main__":
    main()
