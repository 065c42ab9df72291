"""What is known so far: a line per finished stage, written before the next begins, and all trials.

A killed solve goes on from here: a stage that is written down is never run again, one that had
begun is taken up through the verb's own resume.
"""

import json
import os
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from aorta.core.durations import show_duration
from aorta.core.errors import InfrastructureError
from aorta.core.trial import Match, StreamEnd, TrialEnd, TrialSpec
from aorta.engine.atomic import whole_lines
from aorta.engine.events import Ending, Listener, Reason
from aorta.engine.rundir import RunDir, writing
from aorta.engine.session import Resume
from aorta.executors import Executor
from aorta.executors.choosing import ExecutorChoice
from aorta.executors.evidence import json_object
from aorta.solve.request import STAGES, SolveRequest

# To pack what ships and to write the page, measured on two busy cores.
_SECONDS_TO_SHIP = 2.5
# What ships is tried once where it was made, and once more where it was unpacked.
_TRIALS_TO_SHIP = 2

Status = Literal["done", "skipped", "failed", "no_answer", "budget"]


class Stopped(Exception):  # noqa: N818 - nothing went wrong
    """Somebody stopped the run in a stage; what it wrote stays, and can be resumed."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(f"stopped: {reason}")
        self.reason = reason

    @classmethod
    def check(cls, reason: Reason) -> None:
        """Raises where it was somebody who ended it."""
        if reason in {Reason.INTERRUPTED, Reason.TERMINATED}:
            raise cls(reason)


@dataclass(frozen=True)
class StageResult:
    """What came of one stage. `answer` is the verb's own document, or what the stage made of it."""

    name: str
    status: Status
    why: str = ""
    run_dir: str | None = None
    trials: int = 0
    seconds: float = 0.0
    answer: Mapping[str, Any] = field(default_factory=dict)
    is_draft: bool = False  # of a run that was stopped: to be taken up when it goes on

    def row(self) -> dict[str, Any]:
        return {
            **{key: getattr(self, key) for key in ("name", "status", "run_dir", "trials")},
            "why": self.why or None,
            "seconds": round(self.seconds, 3),
        }


def status_of(ending: Ending, is_answer: bool, why: str) -> tuple[Status, str]:
    """Of a stage whose verb ended so; `why` it has no answer."""
    if ending.reason is Reason.INFRASTRUCTURE:
        return "failed", why
    if ending.reason is Reason.BUDGET:
        return "budget", f"its share of the budget was not enough: {why}"
    return ("done", "") if is_answer else ("no_answer", why)


class Stage(ABC):
    """One verb, queried once."""

    name: ClassVar[str]
    # What must be found out before anybody can say whether it runs; empty where nothing.
    only_if: ClassVar[str] = ""

    def why_never(self, _request: SolveRequest) -> str:
        """Why there is nothing for it to do, whatever the failure is; empty where there may be."""
        return ""

    def why_not(self, state: "State") -> str:
        """The same, once the failure is known."""
        return self.why_never(state.request)

    @abstractmethod
    def __call__(self, state: "State") -> StageResult:
        """To its end, or its budget's. Raises `Stopped` where somebody stopped it."""


class SharedTrials:
    """The trials of a whole solve, on disk as they end; also what was spent."""

    def __init__(self, folder: Path, most: int | None = None) -> None:
        self._file = folder / "trials.jsonl"
        self.most = most  # trials that may really be run
        self._ends: dict[Path, Mapping[str, Any]] = {}  # how each ended, by its directory
        self.counts = Counter[str]()  # by stage
        self.before = 0.0  # seconds that earlier processes took
        self._began = time.monotonic()
        for line in map(json.loads, whole_lines(self._file)):  # a torn last line is no trial
            self._count(line)
            self.before = max(self.before, line["elapsed"])

    @property
    def elapsed(self) -> float:
        """Seconds of solving over every resume, up to the last trial of each."""
        return self.before + time.monotonic() - self._began

    @property
    def trials(self) -> int:
        return sum(self.counts.values())

    def end_in(self, trial_dir: Path) -> TrialEnd | None:
        """How the trial ended that was run in this directory."""
        found = self._ends.get(trial_dir)
        if found is None:
            return None
        plain = {**found, "matches": tuple(map(Match.from_json, found["matches"]))}
        for name in ("stdout", "stderr"):
            plain[name] = StreamEnd(**{**found[name], "path": Path(found[name]["path"])})
        return TrialEnd(**plain)

    def note(self, stage: str, end: TrialEnd) -> None:
        """A trial that ended."""
        line = {"stage": stage, "elapsed": round(self.elapsed, 3), "end": asdict(end)}
        data = json.dumps(line, default=str).encode() + b"\n"
        self._count(json.loads(data))
        with self._file.open("ab") as file:
            file.write(data)

    def _count(self, line: Mapping[str, Any]) -> None:
        self.counts[line["stage"]] += 1
        self._ends[Path(line["end"]["stdout"]["path"]).parent] = line["end"]


@dataclass(frozen=True, kw_only=True)
class SharedExecutor(ExecutorChoice):
    """Where the trials of one stage run, for the API of its verb."""

    inner: Callable[[], Executor]
    store: SharedTrials
    stage: str

    def open(self) -> Executor:
        return _SharingExecutor(self.inner(), self.store, self.stage)


class _SharingExecutor:
    """Implements `Executor`: counts what is run for a stage, and ends it at the limit of all."""

    def __init__(self, inner: Executor, store: SharedTrials, stage: str) -> None:
        self._inner = inner
        self._store = store
        self._stage = stage
        self._running: set[str] = set()
        self.warm = getattr(inner, "warm", None)

    @property
    def slots(self) -> int:
        return self._inner.slots

    def start(self, trial: TrialSpec) -> None:
        if trial.is_step:
            self._inner.start(trial)
            return
        most = self._store.most
        if most is not None and self._store.trials + len(self._running) >= most:
            raise InfrastructureError(f"{most} trials are spent")
        self._inner.start(trial)
        self._running.add(trial.id)

    def wait(self, timeout: float | None = None) -> Sequence[TrialEnd]:
        ended = self._inner.wait(timeout)
        for end in ended:
            if end.trial_id in self._running:
                self._running.discard(end.trial_id)
                if not end.cancelled:
                    self._store.note(self._stage, end)
        return ended

    def cancel(self, trial_id: str) -> None:
        self._inner.cancel(trial_id)

    def close(self) -> None:
        """The one behind it is shared by all stages, and closed with the last."""


class State:
    """One solve: what was asked, what is known, and what may still be spent."""

    def __init__(
        self,
        run: RunDir,
        request: SolveRequest,
        listeners: Callable[[str], Sequence[Listener]],
        say: Callable[[str], None],
        reduction: Path | None = None,
    ) -> None:
        """`listeners` of a stage; `say` which one begins; `reduction`: a run to go on with."""
        self.run, self.path = run, run.path
        self.request, self.say = request, say
        self._listeners, self._reduction = listeners, reduction
        self._file = run.private / "stages.jsonl"
        lines = map(json.loads, whole_lines(self._file))
        self.results = {line["name"]: StageResult(**line) for line in lines}
        # Stages to take up: what they found stays known until then.
        self.again = {name for name, result in self.results.items() if result.is_draft}
        self.shared = SharedTrials(run.private, request.max_trials)
        self._opened = ExitStack()  # one executor for all stages
        self._executor = self._opened.enter_context(request.executor.opened())
        self.allowed: dict[str, float] = {}  # seconds of a stage, where a plan had to divide them
        self.best_so_far: Callable[[], None] = lambda: None  # writes the summary anew

    def known(self, stage: str) -> Mapping[str, Any]:
        """What a stage found; of a reduction that is not over, what its directory says."""
        result = self.results.get(stage)
        recorded = result.answer if result is not None else {}
        if stage != "reduce" or self.is_over(stage):
            return recorded
        folders = [self.path / f"{self.folder(stage).name}-plain", self.folder(stage)]
        found = (json_object(folder / "result.json") for folder in folders)
        return next(filter(None, found), recorded)

    @property
    def reduction(self) -> Mapping[str, Any]:
        """What ships: the script of the stage `source` where there is one, else the reduction."""
        source, reduced = self.known("source"), self.known("reduce")
        return source if source.get("status") == "reduced" or not reduced else reduced

    def go_on(self, seconds: float | None, trials: int | None) -> None:
        """Taken up again: what a budget ended is not over, what was skipped beside it may have
        something to do now, and the bundle is made anew. `seconds` may be spent from now on,
        `trials` over all; None: what is left of the budget, or as much again.
        """
        if self.is_cut_short:
            unsure = {n for n, r in self.results.items() if r.status in {"budget", "skipped"}}
            self.again |= unsure | ({"bundle"} & self.results.keys())
        begun, shared = self.request, self.shared
        if seconds is None and begun.budget is not None:
            is_spent = self.is_cut_short or shared.elapsed >= begun.budget
            seconds = begun.budget if is_spent else begun.budget - shared.elapsed
        if trials is None and begun.max_trials is not None:
            is_spent = self.is_cut_short or shared.trials >= begun.max_trials
            trials = begun.max_trials + (shared.trials if is_spent else 0)
        budget = None if seconds is None else shared.elapsed + seconds
        self.request = replace(begun, budget=budget, max_trials=trials)
        shared.most = trials

    @property
    def is_cut_short(self) -> bool:
        return any(result.status == "budget" for result in self.results.values())

    def is_over(self, stage: str) -> bool:
        return stage in self.results and stage not in self.again

    def is_done(self, stage: str) -> bool:
        return stage in self.results and self.results[stage].status == "done"

    def folder(self, stage: str) -> Path:
        if stage == "reduce" and self._reduction is not None:
            return self._reduction
        return self.path / f"{STAGES.index(stage) + 1}-{stage}"

    def resume(self, folder: Path) -> Resume | None:
        """How to go on with what lies there; None where nothing does."""
        return Resume(folder) if RunDir(folder).about() else None

    def executor(self, stage: str) -> ExecutorChoice:
        chosen = self.request.executor
        return SharedExecutor(**vars(chosen), inner=self._executor, store=self.shared, stage=stage)

    def how(self, stage: str, folder: Path) -> dict[str, Any]:
        """What every verb takes alike: where and how long trials run, and what is resumed."""
        return {
            "timeout": self.request.timeout,
            "max_wall_clock": self.seconds_left(stage),
            "executor": self.executor(stage),
            "resume": self.resume(folder),
        }

    def close(self) -> None:
        """No trial is started any more."""
        self._opened.close()

    def listeners(self, stage: str) -> Callable[[], Sequence[Listener]]:
        return lambda: self._listeners(stage)

    def seconds_left(self, stage: str) -> float | None:
        """The time left for a stage. Trials are counted where they start."""
        if self.request.budget is None:
            return None
        left = self.request.budget - self.shared.elapsed
        if stage != "bundle":
            left -= self._seconds_to_ship
        return max(1.0, min(left, self.allowed.get(stage, left)))

    @property
    def _seconds_to_ship(self) -> float:
        """Kept back of a budget for the bundle: at most a third of this process's part."""
        budget = self.request.budget
        if budget is None or not self.is_done("reproduce") or "bundle" not in self.request.stages:
            return 0.0
        here = budget - self.shared.before
        return min(_SECONDS_TO_SHIP + _TRIALS_TO_SHIP * self.seconds_of_one, max(0.0, here / 3))

    @property
    def seconds_of_one(self) -> float:
        """Of a trial of the smallest reproducer so far, or of the original."""
        final, first = self.known("reduce").get("final") or {}, self.known("reproduce")
        return float(final.get("median_sec") or first.get("median_sec") or 0.0)

    @property
    def is_spent(self) -> str:
        """Why no further trial may run; empty where one may."""
        budget, trials = self.request.budget, self.request.max_trials
        if budget is not None and self.shared.elapsed + self._seconds_to_ship >= budget:
            return f"the budget of {show_duration(budget)} is spent"
        if trials is not None and self.shared.trials >= trials:
            return f"{trials} trials are spent"
        return ""

    def add(self, result: StageResult) -> None:
        self.again.discard(result.name)
        self.results[result.name] = result
        with writing(self._file), self._file.open("ab") as file:
            file.write((json.dumps(asdict(result), default=str) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())
