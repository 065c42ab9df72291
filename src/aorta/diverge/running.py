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
from aorta.diverge.output import NOTHING, SCHEMA, DivergeReport
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
        has_records = any((end.stderr.path.parent / _STREAMS).glob("stream-*"))
        how = f"{_RECORDED if has_records else NOTHING}{_last_words(end)}"
        if not has_records and (end.timed_out or end.signal):
            how = f"{_how_ended(end)} before anything was recorded"
        return Classified(Outcome.CLEAN, how)


def _how_ended(end: TrialEnd | TrialRecord) -> str:
    by_itself = f"ended with exit {end.exit_code}"
    killed = f"was killed (signal {end.signal})" if end.signal else by_itself
    return "ran out of time" if end.timed_out else killed


def _last_words(end: TrialEnd) -> str:
    """How it ended, with its exception and where its own code raised it; else its last line."""
    how = _how_ended(end)
    if end.timed_out or not end.exit_code:
        return how
    raised, stderr = last_raised(end.stderr.tail), end.stderr.tail.strip()
    said = [raised.type, raised.message] if raised else [how, *stderr.splitlines()[-1:]]
    words = shortened(without_secrets(": ".join(filter(None, said))), _LONGEST_WORDS)
    if raised is None:
        return words
    own = [f for f in raised.frames if not (f.is_library or Path(f.file).is_relative_to(HOOK))]
    at = f" at {own[-1].file}:{own[-1].line}" if own else ""
    return f"ended with {words}{at} (exit {end.exit_code})"


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
    for warning in request.warnings():
        say(f"aorta: {warning}")
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
    ends: dict[str, dict[str, str]] = field(default_factory=dict)  # by side: how, and last words
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
        alike = not self._other_ends()
        comparison = (
            compare(runs[BAD], runs[GOOD], any_type=any_type, end_alike=alike) if usable else None
        )
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
            fingerprint=self.request.identity,
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
                how = self.ends.setdefault(side, {})
                how[_how_ended(record)] = record.why.removeprefix(_RECORDED)
                streams = read_streams(self.session.path / record.path / _STREAMS)
                found[side].append(streams)
                if not streams:
                    self.silent[side] = record.why
        return found

    def _other_ends(self) -> Mapping[str, Mapping[str, str]]:
        """How the sides ended, if never alike: what one would have done next was not compared."""
        bad, good = (self.ends.get(name, {}).keys() for name in (BAD, GOOD))
        return self.ends if bad and good and not bad & good else {}

    def _report(
        self,
        runs: _Runs,
        comparison: Comparison | None,
        parted: Parting | None,
    ) -> DivergeReport:
        bad = next((run for run in runs[BAD] if run), [])
        values = values_of_ranks(bad) if self.request.between_ranks else None
        nonfinite, other_ends = first_nonfinite(bad), self._other_ends()
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
            notes=(*self.request.warnings(), *_notes(runs, other_ends)),
            other_ends=other_ends,
            up_to_step=min(s.operations[-1].step for s in streams) if streams else 0,
            is_whole=all(
                s.ended and not s.truncated for side in runs.values() for run in side for s in run
            ),
        )


def _notes(runs: _Runs, other_ends: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    if other_ends:
        ends = (
            f"the {side} side {' or '.join(sorted(how.values()))}"
            for side, how in other_ends.items()
        )
        yield f"the sides end otherwise: {', '.join(ends)}"
    said = {note for side in runs.values() for run in side for s in run for note in s.notes}
    lost = {
        f"rank {s.rank} of the {name} side was killed: its last operations are not recorded"
        for name, side in runs.items()
        for run in side
        for s in run
        if not s.ended
    }
    yield from sorted(said | lost)
