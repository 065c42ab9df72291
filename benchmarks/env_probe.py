"""How long a snapshot takes: the whole command, the first call in a process, and the calls after
it. Target: under 1 s.
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

from aorta.probe import collect_env

SOURCE = str(Path(__file__).parent.parent / "src")
ROUNDS = 11
TARGET = 1.0

_FIRST_CALL = """
import time
from aorta.probe import collect_env
began = time.perf_counter()
collect_env()
print(time.perf_counter() - began)
"""


def whole_command() -> float:
    began = time.perf_counter()
    _python("-m", "aorta", "env", "probe", "--json")
    return time.perf_counter() - began


def first_call() -> float:
    return float(_python("-c", _FIRST_CALL))


def later_call() -> float:
    began = time.perf_counter()
    collect_env()
    return time.perf_counter() - began


def _python(*arguments: str) -> str:
    environ = {"PYTHONPATH": SOURCE, "PATH": "/usr/bin:/bin"}
    argv = (sys.executable, *arguments)
    return subprocess.run(argv, capture_output=True, text=True, check=True, env=environ).stdout


def main() -> None:
    collect_env()
    for name, measured in {
        "aorta env probe --json": whole_command,
        "collect_env(), first": first_call,
        "collect_env(), later": later_call,
    }.items():
        median = statistics.median(measured() for _ in range(ROUNDS))
        print(f"{name:<24} {1000 * median:8.1f} ms   target: under {1000 * TARGET:.0f} ms")


if __name__ == "__main__":
    main()
