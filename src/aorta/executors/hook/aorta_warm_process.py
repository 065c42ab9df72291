"""A fork made into what a cold start would be: numbers, clocks and random sources of its own, and
its looks from outside.
"""

from __future__ import annotations

import _ctypes
import os
import sys
import time

from aorta_warm_imports import UnfitError

PR_SET_PDEATHSIG = 1
_PR_SET_MM, _PR_SET_MM_MAP = 35, 14
_LIBC = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]
_PRCTL = _ctypes.dlsym(_LIBC, "prctl")


def of_this_process(
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


def begin_anew(pids: list[tuple[str, str]], clocks: list[tuple[str, str]]) -> None:
    """What a cold start draws, counts or writes down for itself. `random` draws anew in every fork
    by itself.
    """
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


def prctl(*arguments: object) -> int:
    answer: int = _ctypes.call_function(_PRCTL, (*arguments, *[0] * (5 - len(arguments))))
    return answer


def process_map() -> list[int]:
    """Where the kernel finds this process's parts, in its own order. Unfit where it would not let
    us say so again.
    """
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
    return prctl(_PR_SET_MM, _PR_SET_MM_MAP, whole, len(whole))


def show_process(parts: list[int], words: list[str], variables: dict[str, str]) -> None:
    """The trial's own command line and variables in /proc, where monitors, and its owner in need,
    find it by them.
    """
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
