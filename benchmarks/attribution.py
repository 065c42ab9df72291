"""Attribution measured: how fast it reads, how soon it answers, how often it is right, what its service bears.

Accuracy is printed for each part of the corpus: `tuning` is what the patterns were written against; `held_back`, `later` and
`unseen` were each measured once before anything was learned from them, and that first look is printed beside today's figure.
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

from aorta.attribution import Action, Attribution, Evidence, LogSource, attribute
from aorta.attribution.reading import Source
from aorta.attribution.registry import built_in
from aorta.attribution.signs import read_whole
from benchmarks import attribution_service
from benchmarks.faults.corpus import Case, cases

SIZE = 1_000_000_000
SMALL = 50_000_000
RUNS = 5
SAMPLE = 20_000_000  # what the slow reader reads: its speed does not depend on the length
SEED = 20261115
FIRST_LOOK = {  # class right, root right, false STOPs, user errors stopped; of the jobs that failed as meant
    "held_back": (29, 32, 0, "9 of 10"),
    "later": (14, 20, 0, "3 of 6"),
    "unseen": (17, 20, 2, "4 of 5"),
}
_ENDING = (
    '[rank3]: Traceback (most recent call last):\n[rank3]:   File "/srv/train.py", line 9, in main\n'
    "[rank3]: OSError: [Errno 28] No space left on device\n"
)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="aorta-bench-") as scratch:
        reading_speed(Path(scratch))
    accuracy()
    attribution_service.main()


def reading_speed(scratch: Path) -> None:
    log = make_log(scratch / "job.log")
    registry = built_in()
    literals = scratch / "literals"
    literals.write_text("\n".join([*registry.by_trigger, "(most recent call last)"]) + "\n")
    source = Source(str(log), path=log)
    rows = [
        ("whole registry, one pass", SIZE / seconds(lambda: read_whole([source], registry))),
        ("grep -F, the same literals", SIZE / seconds(lambda: grep(literals, log))),
        ("plain re, line by line", SAMPLE / seconds(lambda: line_by_line(log))),
    ]
    print(f"reading a log of {SIZE / 1e6:.0f} MB ({len(registry.patterns)} patterns)")
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
    """Milliseconds in a program that runs already, as a launcher and a service do, and as a command."""
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
            f"[rank{rank}]: 2026-11-15 05:{number % 60:02d}:21,123 INFO iteration {number:8d}/ 500000 | "
            f"elapsed per iteration (ms): {800 + loss:.1f} | lm loss: {loss:.5E} | error count 0 | skipped 0\n"
        )
        if chance.random() < 0.002:
            yield f"[rank{rank}]: WARNING storage: upload failed with an error, retrying ({number})\n"


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def grep(literals: Path, log: Path) -> None:
    subprocess.run(
        ["grep", "-F", "-c", "-f", literals, log], stdout=subprocess.DEVNULL, check=False
    )


def line_by_line(log: Path) -> int:
    patterns = [re.compile(row.regex.encode()) for row in built_in().patterns if row.on == "line"]
    with log.open("rb") as file:
        lines = file.read(SAMPLE).split(b"\n")
    return sum(1 for line in lines for pattern in patterns if pattern.search(line))


def accuracy() -> None:
    results = [(case, attribute(case.evidence())) for case in cases()]
    print(
        f"\n{'corpus':12} {'jobs':>4} {'class':>6} {'root':>6} {'false STOP':>11} {'user errors stopped':>20}"
    )
    for half in ("tuning", *FIRST_LOOK):
        row(half, [(case, result) for case, result in results if case.half == half])
        if half in FIRST_LOOK:
            right, root, wrong, stopped = FIRST_LOOK[half]
            print(f"{'  first look':12} {'':4} {right:6} {root:6} {wrong:11} {stopped:>20}")
    row("all", results)
    took = sorted(result.elapsed_ms for _, result in results)
    print(f"time to verdict: median {took[len(took) // 2]:.0f} ms, slowest {took[-1]:.0f} ms")
    print("targets: no false STOP; 90 % of user errors stopped at the first failure")


def row(name: str, results: list[tuple[Case, Attribution]]) -> None:
    of = len(results)
    right = sum(result.finding.failure_class == case.failure_class for case, result in results)
    root = sum(
        not case.root_ranks or result.finding.root.rank in case.root_ranks
        for case, result in results
    )
    stops = [case for case, result in results if result.decision.action is Action.STOP]
    wrong = sum(case.decision != "STOP" for case in stops)
    user = [case for case, _ in results if case.user_error]
    stopped = sum(case.user_error for case in stops)
    print(f"{name:12} {of:4} {right:6} {root:6} {wrong:11} {f'{stopped} of {len(user)}':>20}")


if __name__ == "__main__":
    main()
