"""Attribution measured: how fast it reads, how soon it answers, how often it is right, what its
service bears.
"""

import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from aorta.attribution import Evidence, LogSource, attribute
from aorta.attribution.events import by_trigger, patterns
from aorta.attribution.events.reading import read
from aorta.attribution.logs import ReadableLog
from benchmarks import attribution_accuracy, attribution_service
from benchmarks.faults import prefixes

SIZE = 1_000_000_000
SMALL = 50_000_000
RUNS = 5
SAMPLE = 20_000_000  # what the slow reader reads: its speed does not depend on the length
SEED = 20261115
_ENDING = (
    '[rank3]: Traceback (most recent call last):\n[rank3]:   File "/srv/train.py", line 9, in '
    "main\n"
    "[rank3]: OSError: [Errno 28] No space left on device\n"
)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="aorta-bench-") as scratch:
        reading_speed(Path(scratch))
    prefixes.report()
    attribution_accuracy.report()
    attribution_service.main()


def reading_speed(scratch: Path) -> None:
    log = make_log(scratch / "job.log")
    literals = scratch / "literals"
    literals.write_text("\n".join([*by_trigger(), "(most recent call last)"]) + "\n")
    source = ReadableLog(str(log), path=log)
    rows = [
        ("whole registry, one pass", SIZE / seconds(lambda: read([source]))),
        ("grep -F, the same literals", SIZE / seconds(lambda: grep(literals, log))),
        ("plain re, line by line", SAMPLE / seconds(lambda: line_by_line(log))),
    ]
    print(f"reading a log of {SIZE / 1e6:.0f} MB ({len(patterns())} patterns)")
    for name, speed in rows:
        print(f"  {name:28} {speed / 1e6:8.0f} MB/s")
    print("  target: 400 MB/s for the whole registry")
    small = make_log(scratch / "small.log", SMALL)
    for path, size in ((log, SIZE), (small, SMALL)):
        verdict, whole = time_to_verdict(path)
        print(
            f"  failure at the end of {size / 1e6:.0f} MB: verdict after {verdict:.0f} ms,", end=""
        )
        print(f" `aorta attribute` {whole:.0f} ms from start to exit")
    print(f"  target: 300 ms for an ordinary failure; medians of {RUNS} runs")


def time_to_verdict(log: Path) -> tuple[float, float]:
    """Milliseconds in a program that runs already, as a launcher and a service do, and as a
    command.
    """
    evidence = Evidence(logs=(LogSource(log),))
    command = [sys.executable, "-m", "aorta", "attribute", str(log)]
    attribute(evidence)
    verdicts = [seconds(lambda: attribute(evidence)) for _ in range(RUNS)]
    commands = [
        seconds(lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True))
        for _ in range(RUNS)
    ]
    return 1000 * statistics.median(verdicts), 1000 * statistics.median(commands)


def make_log(path: Path, size: int = SIZE) -> Path:
    """Training output as it is, harmless errors and all; the failure is the last thing in it."""
    chance = random.Random(SEED)
    block = "".join(_lines(chance, 20_000)).encode()
    with path.open("wb") as file:
        for _ in range(size // len(block)):
            file.write(block)
        file.write(_ENDING.encode())
    return path


def _lines(chance: random.Random, count: int) -> Iterable[str]:
    for number in range(count):
        rank, loss = chance.randrange(8), chance.random()
        yield (
            f"[rank{rank}]: 2026-11-15 05:{number % 60:02d}:21,123 INFO iteration {number:8d}/ "
            "500000 | "
            f"elapsed per iteration (ms): {800 + loss:.1f} | lm loss: {loss:.5E} | error count 0 |"
            " skipped 0\n"
        )
        if chance.random() < 0.002:
            yield (
                f"[rank{rank}]: WARNING storage: upload failed with an error, retrying ({number})\n"
            )


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def grep(literals: Path, log: Path) -> None:
    subprocess.run(
        ["grep", "-F", "-c", "-f", literals, log], stdout=subprocess.DEVNULL, check=False
    )


def line_by_line(log: Path) -> int:
    expressions = [re.compile(row.regex.encode()) for row in patterns() if row.on == "line"]
    with log.open("rb") as file:
        lines = file.read(SAMPLE).split(b"\n")
    return sum(1 for line in lines for expression in expressions if expression.search(line))


if __name__ == "__main__":
    main()
