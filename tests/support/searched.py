"""A whole search on a real executor, small enough to be disturbed on purpose in the middle."""

from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from aorta.core.axis import Point
from aorta.core.oracle import ExitCodeOracle, Oracle
from aorta.core.trial import TrialSpec, Verdict
from aorta.engine.drive import Engine
from aorta.engine.events import Ending, Event, TrialEnded
from aorta.engine.journal import Journal
from aorta.engine.judge import KOfN, SameJudge
from aorta.engine.question import Budget, Question
from aorta.executors import Executor
from aorta.search.repeated import RankedSearch


@dataclass
class SmallestNumber(RankedSearch):
    """Bisects 0..top for the smallest reproducing number, and speculates on both halves."""

    top: int
    told: dict[int, bool] = field(default_factory=dict)

    @property
    def bounds(self) -> tuple[int, int]:
        low = max((n for n, reproduces in self.told.items() if not reproduces), default=-1)
        high = min((n for n, reproduces in self.told.items() if reproduces), default=self.top)
        return low, high

    def ranked(self, n: int) -> list[Point]:
        spans: list[tuple[int, int]] = [self.bounds]
        found: list[Point] = []
        while spans and len(found) < n:
            low, high = spans.pop(0)
            if high - low > 1:
                middle = (low + high) // 2
                found.append(Point.of({"N": middle}))
                spans += [(low, middle), (middle, high)]
        return found

    def tell(self, point: Point, verdict: Verdict) -> None:
        number = point["N"]
        assert isinstance(number, int)
        assert verdict.reproduces is not None, verdict.why
        self.told[number] = verdict.reproduces

    @property
    def best(self) -> Point | None:
        return Point.of({"N": self.bounds[1]})


@dataclass(frozen=True)
class FailsFrom:
    """The trial of N fails if N is at least the threshold; it says where it runs, and waits for
    what is to befall it.
    """

    threshold: int
    waits_for: Path | None = None
    oracle: Oracle = field(default_factory=ExitCodeOracle)

    def trial(self, point: Point, index: int, trial_dir: Path) -> TrialSpec:
        place = self.waits_for
        waits = "" if place is None else f"until [ -e {place} ]; do sleep 0.05; done; "
        script = (
            'echo "$$" > "$AORTA_TRIAL_DIR/pid"; echo "${SLURMD_NODENAME:-$AORTA_TEST_RAY_NODE}" > '
            f'"$AORTA_TRIAL_DIR/node"; {waits}exit {int(int(str(point["N"])) >= self.threshold)}'
        )
        return TrialSpec(("bash", "-c", script), trial_dir=trial_dir, cwd=trial_dir)


@dataclass(frozen=True)
class Searched:
    answer: Point | None
    ending: Ending
    errors: list[str]


_DISTURBED = "disturbed"


def disturb(where: Path) -> None:
    """Lets the trials of a search that is to be disturbed come to their ends, once it is."""
    (where / _DISTURBED).touch()


def search_on(
    executor: Executor, where: Path, threshold: int, *, disturbed: bool = False
) -> Searched:
    """Find the threshold on this executor, which is closed afterwards. With `disturbed`, no trial
    ends before `disturb`.
    """
    errors: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, TrialEnded) and event.record.outcome == "error":
            errors.append(event.record.why)

    search = SmallestNumber(16)
    question = Question(
        search,
        SameJudge(KOfN(1, 1)),
        FailsFrom(threshold, where / _DISTURBED if disturbed else None),
        {},
        budget=Budget(retries=3),
        guard_signature=False,
    )
    journal = Journal.create(where / "journal.jsonl", {})
    with closing(executor):
        answer = Engine(question, executor, journal, where, [listen]).run()
    return Searched(search.best, answer.ending, errors)
