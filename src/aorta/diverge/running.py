"""Run both sides twice, compare, repeat what is not told apart, then look at the one operation."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aorta.core.axis import Point
from aorta.core.errors import InfrastructureError
from aorta.core.oracle import Classified, Deciding
from aorta.core.trial import Outcome, TrialEnd, TrialSpec, Watch
from aorta.diverge.comparing import Comparison, Parting, compare, self_difference
from aorta.diverge.nonfinite import first_nonfinite, magnitude_history
from aorta.diverge.output import DivergeReport, write_report
from aorta.diverge.ranks import between_ranks, lonely_collectives
from aorta.diverge.sides import BAD, GOOD, Sides
from aorta.diverge.stream import HOOK, Stream, read_streams
from aorta.engine.events import Listener, Reason
from aorta.engine.judge import EveryTrial, SameJudge
from aorta.engine.question import Answer, Budget, Question
from aorta.engine.rundir import RunDir
from aorta.engine.session import Resume, Session
from aorta.executors import Executor
from aorta.search.repeated import EveryPoint
from aorta.workloads.trial import workload_experiment

_FIRST_RUNS = 2  # of each side: two runs of one side teach what chance does
_MORE_RUNS = 3
_STREAMS = "operations"
_MAIN = "record"


@dataclass(frozen=True)
class DivergePlan:
    """What is compared, how far, and where the answer goes."""

    sides: Callable[[Path], Sides]  # given a private directory for what must be laid out
    output: Path
    about: Mapping[str, Any]  # what makes it the same comparison when it is resumed
    steps: tuple[int, int | None] = (0, None)
    between_ranks: bool = False
    timeout: float | None = None
    max_records: int = 1_000_000
    seed: int = 0
    budget: Budget = field(default_factory=Budget)
    name: str | None = None  # of the run directory in `output`; None: the time


@dataclass(frozen=True)
class _Recorded:
    """Any run that ended has recorded what it did, however it ended."""

    def watch(self) -> Watch:
        return Watch()

    def judge_end(self, end: TrialEnd) -> Classified:
        how = f"signal {end.signal}" if end.signal is not None else f"exit {end.exit_code}"
        return Classified(Outcome.CLEAN, f"recorded; {how}")


@dataclass(frozen=True)
class _Recording:
    """The experiment: a side of the program with the recorder in its process."""

    sides: Sides
    plan: DivergePlan
    keep: Mapping[str, Any] | None = None
    oracle: Deciding = field(default_factory=_Recorded)

    def trial(self, point: Point, index: int, trial_dir: Path) -> TrialSpec:
        side = self.sides[str(point["side"])]
        first, last = self.plan.steps
        orders = {
            "out": str((trial_dir / _STREAMS).absolute()),
            "seed": self.plan.seed,
            "first_step": first,
            "last_step": last,
            "most": self.plan.max_records,
            "ring": self.sides.good is None,
            "parameters": self.plan.between_ranks,
            "same_random": self._differs_in_device_or_precision,
            "keep": self.keep,
            **side.orders,
        }
        inherited = side.env.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        env = {
            "PYTHONHASHSEED": str(self.plan.seed),
            "TORCHDYNAMO_DISABLE": "1",
            **side.env,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(HOOK), inherited))),
            "AORTA_DIVERGE": json.dumps(orders),
        }
        trial = workload_experiment(side.request(self.plan.timeout)).trial(
            Point.of({}), index, trial_dir
        )
        return replace(trial, id=f"{point.key}.{index}", env={**trial.env, **env}, watch=Watch())

    @property
    def _differs_in_device_or_precision(self) -> bool:
        good = self.sides.good
        return good is not None and bool(good.orders)


def run_diverge(
    plan: DivergePlan,
    open_executor: Callable[[], Executor],
    listeners: Callable[[], Sequence[Listener]] = tuple,
    *,
    resume: Resume | None = None,
) -> DivergeReport:
    """To the report. A run that was cut short goes on from what it recorded."""
    if resume is not None:
        session = Session.resuming(plan.output, "diverge", resume)
    else:
        session = Session.fresh(plan.output, "diverge", name=plan.name)
    with session:
        work = _Work(session, plan, plan.sides(session.run.private), open_executor, listeners)
        report = work.report()
        write_report(session.path, report)
        session.run.describe(state="done" if report.ended is Reason.DONE else report.ended.value)
        return report


@dataclass
class _Work:
    session: Session
    plan: DivergePlan
    sides: Sides
    open_executor: Callable[[], Executor]
    listeners: Callable[[], Sequence[Listener]]
    ended: Reason = Reason.DONE
    trials: int = 0

    def report(self) -> DivergeReport:
        """Record, compare, repeat what is not told apart, keep the one operation."""
        runs = self._recorded(_MAIN, _FIRST_RUNS)
        if not any(runs[BAD]):
            return self._report(runs, None, None)
        parted = self._self_difference(runs)
        if parted is not None and self.ended is Reason.DONE:
            more = self._recorded("repeat", _MORE_RUNS)
            runs = {name: [*runs[name], *more[name]] for name in runs}
            parted = self._self_difference(runs)
        good = self.sides.good
        any_type = good is not None and "dtype" in good.orders
        usable = _usable(runs)
        comparison = compare(runs[BAD], runs[GOOD], any_type=any_type) if usable else None
        if comparison is not None and comparison.first is not None:
            comparison = replace(comparison, first=self._kept(comparison, comparison.first))
        return self._report(runs, comparison, parted)

    def _self_difference(self, runs: Mapping[str, Sequence[Sequence[Stream]]]) -> Parting | None:
        found = [p for side in runs.values() if (p := self_difference([r for r in side if r]))]
        return min(found, key=lambda p: (p.bad.step, p.bad.index), default=None)

    def _recorded(self, stage: str, runs: int) -> dict[str, list[list[Stream]]]:
        """So many runs of each side, as the streams of their ranks."""
        path, answer = self._driven(stage, runs)
        found: dict[str, list[list[Stream]]] = {name: [] for name in self.sides.names}
        for record in answer.records:
            if record.outcome is Outcome.CLEAN:
                streams = read_streams(path / record.path / _STREAMS)
                found[str(record.point["side"])].append(streams)
        return found

    def _driven(
        self, stage: str, runs: int, keep: Mapping[str, Any] | None = None
    ) -> tuple[Path, Answer]:
        question = Question(
            search=EveryPoint([Point.of({"side": name}) for name in self.sides.names]),
            judges=SameJudge(EveryTrial(runs)),
            experiment=_Recording(self.sides, self.plan, keep),
            fingerprint={**self.plan.about, "stage": stage},
            budget=self.plan.budget,
        )
        executor, path = self.open_executor(), self.session.path
        if stage == _MAIN:
            answer = self.session.answer(question, executor, self.listeners())
        else:
            path = path / "stages" / stage
            with _side_stage(path) as session:
                answer = session.answer(question, executor, self.listeners())
        self.trials += len(answer.records)
        if answer.ending.reason is not Reason.DONE:
            self.ended = answer.ending.reason
            if self.ended is Reason.INFRASTRUCTURE:
                raise InfrastructureError(answer.ending.detail)
        return path, answer

    def _kept(self, comparison: Comparison, first: Parting) -> Parting:
        """Both sides once more: the tensors of the one operation are saved whole, and what else it
        was called with is compared.
        """
        if self.ended is not Reason.DONE or first.begins:
            return first
        at = first.bad
        keep = {"op": at.op, "s": at.step, "p": at.phase, "m": at.module, "nth": comparison.nth}
        path, answer = self._driven("inspect", 1, keep)
        arguments: dict[str, Mapping[str, Any]] = {BAD: {}, GOOD: {}}
        for record in answer.records:
            kept = path / record.path / _STREAMS / f"kept-{first.rank}.pt"
            if kept.is_file():
                side = str(record.point["side"])
                arguments[side] = json.loads(kept.with_suffix(".json").read_text())
                kept.replace(self.session.path / f"{side}.pt")
        return first.called_with(arguments[BAD], arguments[GOOD])

    def _report(
        self,
        runs: Mapping[str, Sequence[Sequence[Stream]]],
        comparison: Comparison | None,
        parted: Parting | None,
    ) -> DivergeReport:
        bad = next((run for run in runs[BAD] if run), [])
        ranks = between_ranks(bad) if self.plan.between_ranks else None
        nonfinite = first_nonfinite(bad)
        return DivergeReport(
            run_dir=self.session.path,
            ended=self.ended,
            sides=self.sides,
            trials=self.trials,
            recorded=sum(len(stream.operations) for stream in bad),
            comparison=comparison,
            ranks=ranks,
            checked_ranks=self.plan.between_ranks,
            nonfinite=nonfinite,
            history=magnitude_history(bad, nonfinite) if nonfinite else (),
            self_parting=parted,
            notes=_notes(runs, bad if self.plan.between_ranks else ()),
            is_whole=all(
                s.ended and not s.truncated for side in runs.values() for run in side for s in run
            ),
        )


def _side_stage(path: Path) -> Session:
    """A further search with a journal of its own, below the run's."""
    run = RunDir(path)
    if not run.journal.exists():
        run.describe(verb="diverge", stage=path.name)
    return Session(run, resumed=run.journal.exists())


def _usable(runs: Mapping[str, Sequence[Sequence[Stream]]]) -> bool:
    return GOOD in runs and all(any(side) and all(side) for side in runs.values())


def _notes(
    runs: Mapping[str, Sequence[Sequence[Stream]]], ranks: Sequence[Stream]
) -> tuple[str, ...]:
    said = {note for side in runs.values() for run in side for s in run for note in s.notes}
    lost = {
        f"rank {s.rank} of the {name} side was killed: its last operations are not recorded"
        for name, side in runs.items()
        for run in side
        for s in run
        if not s.ended
    }
    alone = {
        f"{o.op} at {o.file}:{o.line} in step {o.step} was called by rank {rank} alone"
        for rank, o in lonely_collectives(ranks)[:5]
    }
    return tuple(sorted(said | lost)) + tuple(sorted(alone))
