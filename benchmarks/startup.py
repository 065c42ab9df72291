"""How long `aorta --help` takes, as a ratio to a Python that does nothing. Target: under 2.5x."""

import statistics
import subprocess
import sys
import time
from pathlib import Path

SOURCE = str(Path(__file__).parent.parent / "src")
ROUNDS = 31
TARGET = 2.5


def seconds(argv: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=True, env={"PYTHONPATH": SOURCE})
    return time.perf_counter() - began


def main() -> None:
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "aorta --help": [sys.executable, "-m", "aorta", "--help"],
        "aorta --version": [sys.executable, "-m", "aorta", "--version"],
        "aorta run --help": [sys.executable, "-m", "aorta", "run", "--help"],
    }
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(ROUNDS):  # interleaved, so that a busy moment hits all of them
        for name, argv in commands.items():
            taken[name].append(seconds(argv))
    base = statistics.median(taken["python -c pass"])
    for name, times in taken.items():
        median = statistics.median(times)
        print(f"{name:<18} {1000 * median:7.1f} ms   {median / base:5.2f}x")
    print(f"target for --help and --version: under {TARGET}x")


if __name__ == "__main__":
    main()
