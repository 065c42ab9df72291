"""What Aorta itself costs a trial: on real processes beside bare Popen, and the engine alone at a
thousand slots.
"""

import gc
import os
import statistics
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from aorta.core.axis import Point
from aorta.core.oracle import ExitCodeOracle
from aorta.core.trial import StreamEnd, TrialEnd, TrialSpec, Watch, WatchedPattern
from aorta.engine.drive import Engine
from aorta.engine.journal import Journal
from aorta.engine.judge import EveryTrial, SameJudge
from aorta.engine.question import Question
from aorta.executors.local import LocalExecutor
from aorta.search.repeated import EveryPoint

TRIALS = 1000
SIMULATED_TRIALS, SIMULATED_SLOTS = 10_000, 1_000


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        _processes(Path(scratch))
        _throughput(Path(scratch))
        _engine_alone(Path(scratch))


def _processes(scratch: Path) -> None:
    """/bin/true through the local executor and through Popen, turn by turn in one run."""
    executor = LocalExecutor(1)
    ours: list[float] = []
    bare: list[float] = []
    memory: list[int] = []
    for number in range(TRIALS):
        trial = TrialSpec(("/bin/true",), scratch / str(number), scratch, id=str(number))
        began = time.perf_counter()
        executor.start(trial)
        executor.wait()
        ours.append(time.perf_counter() - began)
        began = time.perf_counter()
        subprocess.Popen(["/bin/true"], stdin=subprocess.DEVNULL).wait()
        bare.append(time.perf_counter() - began)
        memory.append(_resident_kib())
    files = len(list(Path("/proc/self/fd").iterdir()))
    executor.close()
    cost = statistics.median(ours) - statistics.median(bare)
    print(f"one trial of /bin/true     {1000 * statistics.median(ours):6.2f} ms")
    print(f"bare Popen().wait()        {1000 * statistics.median(bare):6.2f} ms")
    print(f"cost of a trial            {1000 * cost:6.2f} ms   (target: at most 3)")
    growth = memory[-1] - memory[TRIALS // 10]
    print(f"growth over {TRIALS} trials   {growth} KiB, {files} open files")


def _throughput(scratch: Path) -> None:
    """A gigabyte without a newline, searched while it is written."""
    executor = LocalExecutor(1)
    watch = Watch(patterns=(WatchedPattern("NaN detected at step"),))
    argv = ("head", "-c", "1000000000", "/dev/zero")
    began = time.perf_counter()
    executor.start(TrialSpec(argv, scratch / "flood", scratch, id="flood", watch=watch))
    (end,) = executor.wait()
    taken = time.perf_counter() - began
    executor.close()
    print(f"watched output             {end.stdout.bytes_seen / taken / 1e6:6.0f} MB/s")


class _Instant:
    """Every trial ends at once; what is left is the engine's own work."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._running: list[str] = []

    def start(self, trial: TrialSpec) -> None:
        self._running.append(trial.id)

    def wait(self, timeout: float | None = None) -> list[TrialEnd]:
        nothing = StreamEnd(Path("none"))
        ends = [TrialEnd(name, nothing, nothing, exit_code=0) for name in self._running]
        self._running.clear()
        return ends

    def cancel(self, trial_id: str) -> None:
        self._running.remove(trial_id)

    def close(self) -> None:
        self._running.clear()


class _Nothing:
    oracle = ExitCodeOracle()
    template = TrialSpec(("true",), Path(), Path())

    def trial(self, point: Point, index: int, trial_dir: Path) -> TrialSpec:
        return replace(self.template, trial_dir=trial_dir)


def _engine_alone(scratch: Path) -> None:
    points = [Point.of({"N": n}) for n in range(SIMULATED_TRIALS // 10)]
    run_dir = scratch / "engine"
    run_dir.mkdir()
    journal = Journal.create(run_dir / "journal.jsonl", {})
    question = Question(EveryPoint(points), SameJudge(EveryTrial(10)), _Nothing(), {})
    engine = Engine(question, _Instant(SIMULATED_SLOTS), journal, run_dir)
    gc.collect()
    began = time.process_time()
    ending = engine.run().ending
    cost = (time.process_time() - began) / ending.trials
    print(
        f"engine, {SIMULATED_SLOTS} slots         {1000 * cost:6.3f} ms CPU a trial over "
        f"{ending.trials} trials   (target: under 1)"
    )


def _resident_kib() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") // 1024


if __name__ == "__main__":
    main()
