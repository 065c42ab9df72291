"""Run both sides twice, compare, repeat what is not told apart, then look at the one operation."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from aorta.core.axis import Point
from aorta.core.errors import InfrastructureError
from aorta.core.oracle import Classified, Deciding
from aorta.core.raised import last_raised
from aorta.core.templates import shortened
from aorta.core.trial import Outcome, TrialEnd, TrialSpec, Watch
from aorta.diverge.comparing import Comparison, Parting, compare, self_difference
from aorta.diverge.output import DONE_WELL, NOTHING, SCHEMA, DivergeReport
from aorta.diverge.request import BAD, GOOD, DivergeRequest, GoodAndBad
from aorta.diverge.single_run import (
    between_ranks,
    call_number,
    first_nonfinite,
    magnitude_history,
    values_of_ranks,
)
from aorta.diverge.stream import HOOK, Stream, read_streams
from aorta.engine.events import Listener, Reason, TrialRecord
from aorta.engine.judge import EveryTrial, SameJudge
from aorta.engine.question import Budget, Question
from aorta.engine.rundir import write_json
from aorta.engine.session import Session, keep_request, taken_up
from aorta.executors import Executor
from aorta.scrub.secrets import without_secrets
from aorta.search.repeated import EveryPoint
from aorta.workloads.trial import workload_experiment

_FIRST_RUNS = 2  # of each side: two runs of one side teach what chance does
_MORE_RUNS = 3
_STREAMS = "operations"
_RECORDED = "recorded; "
_LONGEST_WORDS = 300  # of an exception
_Runs = Mapping[str, Sequence[Sequence[Stream]]]  # by side: of each run, its ranks


@dataclass(frozen=True)
class _Recorded:
    """Any run that ended is one that can be looked at, however it ended."""

    def watch(self) -> Watch:
        return Watch()

    def judge_end(self, end: TrialEnd) -> Classified:
        how = _last_words(end)
        if any((end.stderr.path.parent / _STREAMS).glob("stream-*")):
            how = f"{_RECORDED}{how}"
        elif _is_cut(end):
            how = f"{how} before anything was recorded"
        else:
            how = f"{NOTHING}; {how}"
        return Classified(Outcome.CLEAN, how)


def _is_cut(end: TrialEnd | TrialRecord) -> bool:
    """What it did last is not written down: that is done in lots, and at its own end."""
    return end.timed_out or end.signal is not None


def _how_ended(end: TrialEnd | TrialRecord) -> str:
    if end.timed_out:
        return "ran out of time"
    return f"was killed (signal {end.signal})" if end.signal else f"ended with exit {end.exit_code}"


def _last_words(end: TrialEnd) -> str:
    """How it ended, with its exception and where its own code raised it; else its last line."""
    how = _how_ended(end)
    if how == DONE_WELL or _is_cut(end):
        return how
    raised = last_raised(end.stderr.tail)
    if raised is None:
        last_line = next(filter(None, map(str.strip, end.stderr.tail.splitlines()[::-1])), "")
        return f"{how}: {_shown(last_line)}" if last_line else how
    own = [f for f in raised.frames if not (f.is_library or Path(f.file).is_relative_to(HOOK))]
    at = f" at {own[-1].file}:{own[-1].line}" if own else ""
    said = f"{raised.type}: {raised.message}" if raised.message else raised.type
    return f"ended with {_shown(said)}{at} (exit {end.exit_code})"


def _shown(words: str) -> str:
    return shortened(without_secrets(words), _LONGEST_WORDS)


@dataclass(frozen=True)
class _Recording:
    """The experiment: a side of the program with the recorder in its process."""

    good_and_bad: GoodAndBad
    request: DivergeRequest
    oracle: Deciding = field(default_factory=_Recorded)

    def trial(self, point: Point, index: int, trial_dir: Path) -> TrialSpec:
        side = self.good_and_bad[str(point["side"])]
        first, last = self.request.steps
        orders = {
            "out": str((trial_dir / _STREAMS).absolute()),
            "seed": self.request.seed,
            "first_step": first,
            "last_step": last,
            "parameters": self.request.between_ranks,
            "same_random": self.good_and_bad.good is not None
            and bool(self.good_and_bad.good.orders),
            **side.orders,
        }
        inherited = side.env.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        env = {
            "PYTHONHASHSEED": str(self.request.seed),
            "TORCHDYNAMO_DISABLE": "1",
            **side.env,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(HOOK), inherited))),
            "AORTA_DIVERGE": json.dumps(orders),
        }
        experiment = workload_experiment(side.request(self.request.timeout))
        trial = experiment.trial(Point.of({}), index, trial_dir)
        return replace(trial, id=f"{point.key}.{index}", env={**trial.env, **env}, watch=Watch())


def diverge(
    request: DivergeRequest,
    listeners: Callable[[], Sequence[Listener]] = tuple,
    say: Callable[[str], None] = lambda _words: None,
) -> DivergeReport:
    """The whole comparison, or what is left of one that was cut short. `listeners` makes fresh ones
    for each of its searches. A wrong request is a UsageError before anything is written.
    """
    says_it = bool(request.command or request.run_dir)
    request = taken_up(request, request.output, "diverge", is_whole=says_it, say=say).absolute()
    request.check()
    if request.warning:
        say(f"aorta: {request.warning}")
    with request.executor.opened() as executor:
        if request.resume is not None:
            session = Session.resuming(request.output, "diverge", request.resume)
        else:
            session = Session.fresh(request.output, "diverge", name=request.name)
            keep_request(session.run, request)
        with session:
            good_and_bad = request.good_and_bad(session.run.private)
            report = _Work(session, request, good_and_bad, executor, listeners).report()
            write_json(session.path / "result.json", SCHEMA, report.to_json())
            return report


@dataclass
class _Work:
    session: Session
    request: DivergeRequest
    good_and_bad: GoodAndBad
    open_executor: Callable[[], Executor]
    listeners: Callable[[], Sequence[Listener]]
    ended: Reason = Reason.DONE
    trials: int = 0
    exits: dict[str, set[str]] = field(default_factory=dict)  # of the processes, by side
    last_words: dict[str, str] = field(default_factory=dict)  # of a run of each side that recorded
    silent: dict[str, str] = field(default_factory=dict)  # of a run that recorded nothing

    def report(self) -> DivergeReport:
        """Record, compare, repeat what is not told apart, keep the one operation."""
        runs = self._recorded("main", _FIRST_RUNS)
        if not any(runs[BAD]):
            return self._report(runs, None, None)
        parted = self._self_difference(runs)
        if parted is not None and self.ended is Reason.DONE:
            more = self._recorded("repeat", _MORE_RUNS, replica=1)
            runs = {name: [*runs[name], *more[name]] for name in runs}
            parted = self._self_difference(runs)
        good = self.good_and_bad.good
        any_type = good is not None and "dtype" in good.orders
        usable = good is not None and all(any(side) and all(side) for side in runs.values())
        comparison = compare(runs[BAD], runs[GOOD], any_type=any_type) if usable else None
        return self._report(runs, comparison, parted)

    def _self_difference(self, runs: _Runs) -> Parting | None:
        found = [p for side in runs.values() if (p := self_difference([r for r in side if r]))]
        return min(found, key=lambda p: (p.bad.step, p.bad.index), default=None)

    def _recorded(self, question_name: str, runs: int, replica: int = 0) -> _Runs:
        """So many runs of each side, as the streams of their ranks."""
        sides = [Point.of({"side": name}, replica=replica) for name in self.good_and_bad.names]
        question = Question(
            name=question_name,
            search=EveryPoint(sides),
            judges=SameJudge(EveryTrial(runs)),
            experiment=_Recording(self.good_and_bad, self.request),
            fingerprint=self.request.identity(),
            budget=Budget(max_seconds=self.request.max_wall_clock),
        )
        answer = self.session.answer(question, self.open_executor(), self.listeners())
        self.trials += len(answer.records)
        self.ended = answer.ending.reason
        if self.ended is Reason.INFRASTRUCTURE:
            raise InfrastructureError(answer.ending.detail)
        found: dict[str, list[list[Stream]]] = {name: [] for name in self.good_and_bad.names}
        for record in answer.records:
            if record.outcome is Outcome.CLEAN:
                side = str(record.point["side"])
                self.exits.setdefault(side, set()).add(_how_ended(record))
                streams = read_streams(self.session.path / record.path / _STREAMS)
                found[side].append(streams)
                if streams:
                    self.last_words[side] = record.why.removeprefix(_RECORDED)
                else:
                    self.silent[side] = record.why
        return found

    @property
    def _exits_differ(self) -> bool:
        """Whether they never ended alike: what one would have done next was not compared."""
        bad, good = (self.exits.get(name, set()) for name in (BAD, GOOD))
        return bool(bad and good and not bad & good)

    def _unlike_exits(self) -> Iterator[str]:
        if self._exits_differ:
            ends = (
                f"the {name} side {' or '.join(sorted(self.exits[name]))}" for name in (BAD, GOOD)
            )
            yield f"the sides end otherwise: {', '.join(ends)}"

    def _report(
        self,
        runs: _Runs,
        comparison: Comparison | None,
        parted: Parting | None,
    ) -> DivergeReport:
        bad = next((run for run in runs[BAD] if run), [])
        values = values_of_ranks(bad) if self.request.between_ranks else None
        nonfinite = first_nonfinite(bad)
        streams = [stream for side in runs.values() for run in side for stream in run]
        named = [p.operation for p in (comparison and comparison.first, nonfinite, parted) if p]
        return DivergeReport(
            run_dir=self.session.path,
            ended=self.ended,
            good_and_bad=self.good_and_bad,
            trials=self.trials,
            recorded=sum(len(stream.operations) for stream in bad),
            comparison=comparison,
            ranks=between_ranks(values) if values else None,
            ranks_share=None if values is None else len(values),
            nonfinite=nonfinite,
            history=magnitude_history(bad, nonfinite) if nonfinite else (),
            self_parting=parted,
            calls={operation: call_number(operation, streams) for operation in named},
            silent=self.silent,
            notes=(*filter(None, [self.request.warning]), *self._unlike_exits(), *_notes(runs)),
            other_ends=self.last_words if self._exits_differ else {},
            up_to_step=min(map(_last_step, runs.values())),
            is_whole=all(
                s.ended and not s.truncated for side in runs.values() for run in side for s in run
            ),
        )


def _last_step(side: Sequence[Sequence[Stream]]) -> int:
    return max((o.step for run in side[:1] for s in run for o in s.operations[-1:]), default=0)


def _notes(runs: _Runs) -> tuple[str, ...]:
    said = {note for side in runs.values() for run in side for s in run for note in s.notes}
    lost = {
        f"rank {s.rank} of the {name} side was killed: its last operations are not recorded"
        for name, side in runs.items()
        for run in side
        for s in run
        if not s.ended
    }
    return tuple(sorted(said | lost))
