"""What more machines buy: whole searches at 1 to 8 slots, what each executor costs a trial, and a
thousand queued trials.

The ideal is the same search in simulated rounds of equal trials (`benchmarks.simulate`): one round,
one sleep. Slurm and Ray are the private ones of the tests, on this one machine, so their figures
are those of the executors, not of a cluster.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aorta.core.axis import Point, subset
from aorta.core.oracle import ExitCodeOracle, Oracle
from aorta.core.trial import Resources, TrialSpec
from aorta.engine.drive import Engine
from aorta.engine.journal import Journal
from aorta.engine.judge import EveryTrial, SameJudge
from aorta.engine.question import Question
from aorta.executors import Executor
from aorta.executors.local import LocalExecutor
from aorta.search import Search
from aorta.search.bisection import Bisection
from aorta.search.subset import SubsetSearch
from aorta.search.timeline import History, Timeline
from benchmarks.simulate import drive

SLOTS = (1, 2, 4, 8)
SLEEP = 0.5  # long beside what a trial costs on a busy machine of two cores
NEEDED = frozenset({3, 17, 42, 58, 91})
ITEMS, COMMITS, CULPRIT = 100, 1024, 700
TRIALS, QUEUED = 20, 1000
_TESTS = str(Path(__file__).resolve().parents[1] / "tests")


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        _searches(Path(scratch))
        for name, opened in (("local", _local), ("slurm", _slurm), ("ray", _ray)):
            with opened() as executor:
                _overhead(name, executor, Path(scratch) / name)
                _queue(name, executor, Path(scratch) / f"{name}-queued")


# -- whole searches --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Case:
    name: str
    search: Callable[[], Search]
    reproduces: Callable[[Point], bool]

    def rate(self, point: Point) -> float:
        return float(self.reproduces(point))


def _cases() -> list[_Case]:
    axis = subset("lines", tuple(map(str, range(ITEMS))))
    timeline = Timeline([History("package", tuple(map(str, range(COMMITS))))])
    return [
        _Case(
            f"reduction, {len(NEEDED)} of {ITEMS}",
            lambda: SubsetSearch(Point.of({axis.name: axis.initial}), axis),
            lambda point: frozenset(_items(point, axis.name)) >= NEEDED,
        ),
        _Case(
            f"bisection, {COMMITS} commits",
            lambda: Bisection(timeline),
            lambda point: int(str(point["package"])) >= CULPRIT,
        ),
    ]


def _items(point: Point, name: str) -> tuple[int, ...]:
    kept = point[name]
    if not isinstance(kept, tuple):
        raise TypeError(f"{name} is no subset: {kept!r}")
    return kept


@dataclass(frozen=True)
class _Sleeping:
    """The trial of a point sleeps, then says what the case says of the point."""

    case: _Case
    oracle: Oracle = field(default_factory=ExitCodeOracle)

    def trial(self, point: Point, index: int, trial_dir: Path) -> TrialSpec:
        code = int(self.case.reproduces(point))
        return TrialSpec(("sh", "-c", f"sleep {SLEEP}; exit {code}"), trial_dir, trial_dir)


def _searches(scratch: Path) -> None:
    print(
        f"{'local, trials of ' + str(SLEEP) + ' s':28}  slots  rounds   ideal s    wall s  /1 "
        "slot  /ideal"
    )
    for case in _cases():
        one_slot = 0.0
        for slots in SLOTS:
            rounds = drive(case.search(), case.rate, slots=slots).rounds
            where = scratch / case.name.replace(" ", "-") / str(slots)
            wall = _wall(case, slots, where)
            one_slot = one_slot or wall
            ideal = rounds * SLEEP
            print(
                f"{case.name:28}  {slots:5}  {rounds:6}  {ideal:8.1f}  {wall:8.1f}  "
                f"{wall / one_slot:7.2f}  {wall / ideal:6.2f}"
            )


def _wall(case: _Case, slots: int, where: Path) -> float:
    where.mkdir(parents=True)
    question = Question(
        case.search(), SameJudge(EveryTrial(1)), _Sleeping(case), {}, guard_signature=False
    )
    journal = Journal.create(where / "journal.jsonl", {})
    with closing(LocalExecutor(slots)) as executor:
        began = time.perf_counter()
        Engine(question, executor, journal, where).run()
        return time.perf_counter() - began


# -- executors -------------------------------------------------------------------------------------


@contextmanager
def _local() -> Iterator[Executor]:
    yield from _closing(LocalExecutor(QUEUED))


@contextmanager
def _slurm() -> Iterator[Executor]:
    sys.path.insert(0, _TESTS)
    from aorta.executors.slurm import slurm_executor
    from support.services.slurm import start_slurm

    cluster = start_slurm()
    os.environ.update(cluster.environ)
    try:
        yield from _closing(slurm_executor(Resources()))
    finally:
        cluster.stop()


@contextmanager
def _ray() -> Iterator[Executor]:
    sys.path.insert(0, _TESTS)
    from aorta.executors.ray import RayExecutor
    from support.services.ray_cluster import start_ray

    cluster = start_ray()
    os.environ.update(cluster.environ)
    try:
        cluster.add_node()
        cluster.add_node()
        yield from _closing(RayExecutor(cluster.address, Resources()))
    finally:
        cluster.stop()


def _closing(executor: Executor) -> Iterator[Executor]:
    try:
        yield executor
    finally:
        executor.close()


def _overhead(name: str, executor: Executor, where: Path) -> None:
    """One trial of /bin/true after another; the first few start what later ones find running."""
    taken: list[float] = []
    for number in range(TRIALS):
        began = time.perf_counter()
        executor.start(_nothing(where, number))
        _ends(executor, 1)
        taken.append(time.perf_counter() - began)
    settled = taken[TRIALS // 4 :]
    print(
        f"{name}: one trial of /bin/true {1000 * statistics.median(settled):.1f} ms "
        f"(first {1000 * taken[0]:.0f} ms)",
        flush=True,
    )


def _queue(name: str, executor: Executor, where: Path) -> None:
    """All are handed over at once where a scheduler queues them; locally, as many as there are
    slots.
    """
    slots = min(executor.slots, 16) if isinstance(executor, LocalExecutor) else QUEUED
    memory: list[int] = []
    began = time.perf_counter()
    started = ended = 0
    while ended < QUEUED:
        while started < QUEUED and started - ended < slots:
            executor.start(_nothing(where, started))
            started += 1
        ended += len(_ends(executor, 1))
        memory.append(_resident_kib())
    files = len(list(Path("/proc/self/fd").iterdir()))
    taken = time.perf_counter() - began
    growth = memory[-1] - memory[len(memory) // 10]
    print(
        f"{name}: {QUEUED} queued trials in {taken:.0f} s, growth {growth} KiB, {files} open files",
        flush=True,
    )


def _nothing(where: Path, number: int) -> TrialSpec:
    return TrialSpec(("/bin/true",), where / str(number), Path("/"), id=f"{where.name}-{number}")


def _ends(executor: Executor, count: int) -> Sequence[str]:
    found: list[str] = []
    while len(found) < count:
        for end in executor.wait(5.0):
            if end.exit_code != 0:
                raise RuntimeError(f"{end.trial_id} ended badly: {end.lost or end.exit_code}")
            found.append(end.trial_id)
    return found


def _resident_kib() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") // 1024


if __name__ == "__main__":
    main()
