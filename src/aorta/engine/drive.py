"""The engine's one loop: ask, run, classify, write down, judge, tell.

Slots go first to trials that are certain to be used, then to further points of the search, then to
further trials of open points. One finished trial is used at a time, and decisions are journaled in
that order: a resume repeats them.
"""

import shutil
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from aorta.core.axis import Point, Purpose
from aorta.core.errors import InfrastructureError, Terminated
from aorta.core.oracle import Classified
from aorta.core.trial import Outcome, Tally, TrialEnd, TrialSpec, Verdict
from aorta.engine import events
from aorta.engine.events import (
    Decided,
    Dropped,
    Ending,
    Entry,
    Event,
    Listener,
    Opened,
    Reason,
    TrialRecord,
    none_could_tell,
)
from aorta.engine.journal import Journal
from aorta.engine.judge import Judge
from aorta.engine.question import Answer, Question, SoughtFailure, Warmth
from aorta.executors import Executor
from aorta.executors.evidence import SHARED
from aorta.executors.local import unreported

_HEARTBEAT = 0.5
_PATIENCE = 30.0  # seconds for what was cancelled to end


@dataclass
class _OpenPoint:
    """A point that is being judged, and what is known of it."""

    point: Point
    judge: Judge
    tally: Tally = field(default_factory=Tally)
    indexes: set[int] = field(default_factory=set)  # of its finished trials
    running: dict[str, int] = field(default_factory=dict)  # trial id -> index
    durations: list[float] = field(default_factory=list)
    last_error: str = ""
    forgiven: int = 0  # errors before a resume, which is there to try again

    def count(self, record: TrialRecord) -> None:
        self.indexes.add(record.index)
        self.tally += record.outcome
        if record.outcome is Outcome.ERROR:
            self.last_error = record.why
        else:
            self.durations.append(record.duration)


@dataclass
class _Trial:
    """A trial that the executor has; a cancelled one has its slot until its end comes back."""

    point: Point
    index: int
    path: str  # relative to the run directory
    metric: Path | None  # where it may leave its number, beside its own place
    is_refused: bool = False  # by the executor: it never ran
    is_forgiven: bool = False  # one that ran beside it was lost, and counted


class Engine:
    """Drives one question to its answer. All it knows is in the journal; all it does, an event."""

    def __init__(
        self,
        question: Question,
        executor: Executor,
        journal: Journal,
        run_dir: Path,
        listeners: Sequence[Listener] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._question = question
        self._search, self._judges = question.search, question.judges
        self._executor = executor
        self._journal = journal
        self._run_dir = run_dir
        self._listeners = listeners
        self._clock = clock
        self._began = clock()
        self._replayed_seconds = 0.0
        self._sought = SoughtFailure(question)
        self._doubted = False  # whether it was said that nothing tells the failure from another
        self._records: list[TrialRecord] = []
        warm = getattr(executor, "warm", None) if question.warm else None
        self._warmth = Warmth(warm, self._records)
        self._open: dict[Point, _OpenPoint] = {}
        self._dropped: dict[Point, _OpenPoint] = {}
        self._trials: dict[str, _Trial] = {}
        self._mixed: set[Path | None] = set()  # where several trials may leave their number
        self._ended: deque[TrialEnd] = deque()

    def run(self) -> Answer:
        """Until the search is done, a budget spent or the run stopped. Leaves the executor idle."""
        resumed = 0
        self._emit(events.RunStarted(self._run_dir))
        for note in self._journal.notes:
            self._say(note)
        try:
            self._replay()
            resumed = len(self._records)
            reason, detail = self._loop()
            if self._question.must_tell and reason is Reason.DONE:
                detail = none_could_tell(self._records)
                reason = Reason.INFRASTRUCTURE if detail else reason
        except InfrastructureError as wrong:
            reason, detail = Reason.INFRASTRUCTURE, str(wrong)
        except KeyboardInterrupt:
            reason, detail = Reason.INTERRUPTED, "interrupted"
        except Terminated:
            reason, detail = Reason.TERMINATED, "terminated"
        finally:
            self._journal.close()
        seconds = self._elapsed()
        try:
            self._end_what_runs()
        except (KeyboardInterrupt, Terminated):
            if reason in {Reason.INTERRUPTED, Reason.TERMINATED}:
                raise  # a second one: the executor need not be closed patiently either
        ending = Ending(
            reason,
            detail,
            self._spent,
            resumed,
            seconds,
            sum(record.saved > 0 for record in self._records),
            self._warmth.dropped,
        )
        try:
            self._emit(events.RunEnded(ending))
        except (KeyboardInterrupt, Terminated) as stop:
            if reason in {Reason.INTERRUPTED, Reason.TERMINATED}:
                raise
            # While a listener wrote what was found: who asked still hears of an ending.
            by_key = isinstance(stop, KeyboardInterrupt)
            reason = Reason.INTERRUPTED if by_key else Reason.TERMINATED
            ending = replace(ending, reason=reason, detail=reason.value)
            self._emit(events.RunEnded(ending))
        return Answer(ending, self._records, self._sought.failure)

    def _replay(self) -> None:
        """What earlier processes did, in their order. Nothing is asked, run or written. Where a run
        must tell and could not, nothing was decided.
        """
        entries = list(self._journal.entries(self._question.name))
        trials = [entry for entry in entries if isinstance(entry, TrialRecord)]
        is_open = self._question.must_tell and none_could_tell(trials)
        for entry in entries:
            match entry:
                case Decided() if is_open:
                    continue
                case Opened(point):
                    self._open_point(point)
                case TrialRecord():
                    self._use(entry, replayed=True)
                case Decided(point, verdict):
                    self._tell(point, verdict)
                case Dropped(point):
                    self._dropped[point] = self._open.pop(point)
        if self._records:
            self._replayed_seconds = self._records[-1].elapsed
            self._began = self._clock() - self._replayed_seconds

    def _loop(self) -> tuple[Reason, str]:
        self._catch_up()
        while self._goes_on():
            self._fill()
            if not self._goes_on():
                break
            spent = self._budget_spent()
            if spent:
                return Reason.BUDGET, spent
            if not self._trials and self._executor.slots > 0:
                return Reason.DONE, "the search has no further question"
            self._use_next_end()
        return Reason.DONE, ""

    def _goes_on(self) -> bool:
        return not self._search.done

    def _catch_up(self) -> None:
        """A process that is killed between two lines leaves a decision that follows from the line
        before."""
        for point in list(self._open):
            if point in self._open:  # settling one may have dropped another
                self._settle_if_sure(self._open[point])
        self._drop_unwanted()

    # -- choosing what runs ------------------------------------------------------------------------

    def _fill(self) -> None:
        if self._free_slots() <= 0 or self._budget_spent():
            return
        if proof := self._warmth.proof:  # everything else waits for it
            state = self._open.get(proof) or self._open_new(proof)
            self._start_trials(state, state.judge.needs(state.tally))
            return
        for state in list(self._open.values()):
            self._start_trials(state, state.judge.needs(state.tally))
        while self._may_start():
            questions = self._search.ask(self._free_slots(), tuple(self._open))
            if not questions:
                break
            state = self._open_new(questions[0])
            if not self._settle_if_sure(state):
                self._start_trials(state, state.judge.needs(state.tally))
        for state in list(self._open.values()):
            self._start_trials(state, state.judge.at_most(state.tally))

    def _open_new(self, point: Point) -> _OpenPoint:
        self._write(Opened(point))
        return self._open_point(point)

    def _open_point(self, point: Point) -> _OpenPoint:
        """Evidence of a point that was dropped and is wanted again still counts."""
        state = self._dropped.pop(point, None)
        if state is None:
            judges = self._warmth if point.purpose is Purpose.WARM else self._judges
            state = _OpenPoint(point, judges.judge_for(point))
        self._open[point] = state
        return state

    def _start_trials(self, state: _OpenPoint, useful: int) -> None:
        """Start trials until `useful` are under way, as far as slots and the trial budget reach."""
        while len(state.running) < useful and self._may_start():
            self._start_trial(state)

    def _start_trial(self, state: _OpenPoint) -> None:
        point, index = state.point, 0
        while index in state.indexes or f"{point.key}.{index}" in self._trials:
            index += 1
        trial_id = f"{point.key}.{index}"
        path = f"trials/{point.config_key}/{point.purpose.value}{point.replica}-{index:03d}"
        start = self._warmth.start_for(point)
        trial = self._laid_out(point, index, self._run_dir / path)
        state.running[trial_id] = index
        name = trial.watch.json_file
        metric = None if name is None else trial.cwd / name
        if metric is not None and any(metric == other.metric for other in self._trials.values()):
            self._mixed.add(metric)
        self._trials[trial_id] = _Trial(point, index, path, metric)
        trial = replace(trial, id=trial_id, start=start, varied=frozenset(dict(point.values)))
        try:
            # A listener may fail as well, on a full disk: there is then no end to wait for either.
            self._emit(events.TrialStarted(point, index))
            self._executor.start(trial)
        except InfrastructureError as wrong:
            if self._question.tolerant:
                self._trials[trial_id].is_refused = True
                self._ended.append(unreported(trial, lost=str(wrong)))
                return
            del self._trials[trial_id]  # it has no end to wait for
            raise

    def _laid_out(self, point: Point, index: int, trial_dir: Path) -> TrialSpec:
        """With its files in an empty directory; what an interrupted trial left there goes."""
        try:
            if trial_dir.exists():
                shutil.rmtree(trial_dir)
            trial_dir.mkdir(parents=True)
            return self._question.experiment.trial(point, index, trial_dir)
        except OSError as wrong:
            why = f"cannot lay out a trial: {wrong.strerror}"
            raise InfrastructureError(why, where=wrong.filename or str(trial_dir)) from None

    def _free_slots(self) -> int:
        return self._executor.slots - len(self._trials)

    def _drop_unwanted(self) -> None:
        for point in list(self._open):
            if point.purpose is Purpose.WARM or self._search.wants(point):
                continue
            self._write(Dropped(point))
            state = self._dropped[point] = self._open.pop(point)
            self._cancel_running(state)

    def _cancel_running(self, state: _OpenPoint) -> None:
        """Their slots come back with their ends."""
        for trial_id, index in state.running.items():
            self._executor.cancel(trial_id)
            self._emit(events.TrialCancelled(state.point, index))
        state.running.clear()

    def _end_what_runs(self) -> None:
        """Trials that were begun ahead, and that nobody needs any more."""
        deadline = self._clock() + _PATIENCE
        with suppress(InfrastructureError):
            for state in self._open.values():
                for trial_id in state.running:
                    self._executor.cancel(trial_id)
            while self._trials and (left := deadline - self._clock()) > 0:
                began, patience = self._clock(), min(_HEARTBEAT, left)
                ended = self._executor.wait(patience)
                for end in ended:
                    self._trials.pop(end.trial_id, None)
                # It did not wait, so nothing runs: an interrupt came before a start or at an end.
                if not ended and self._clock() - began < patience / 2:
                    return

    # -- using what ended --------------------------------------------------------------------------

    def _use_next_end(self) -> None:
        if not self._ended:
            most = self._question.budget.max_seconds
            left = _HEARTBEAT if most is None else most - self._seconds_spent()
            self._ended.extend(self._executor.wait(max(0.0, min(_HEARTBEAT, left))))
        if self._ended:
            self._take(self._ended.popleft())

    def _take(self, end: TrialEnd) -> None:
        trial = self._trials.pop(end.trial_id, None)
        state = self._open.get(trial.point) if trial is not None else None
        if trial is None or state is None or end.cancelled or end.trial_id not in state.running:
            return
        del state.running[end.trial_id]
        if self._is_lost_with_another(trial, end):
            state.indexes.add(trial.index)
            self._emit(events.TrialCancelled(trial.point, trial.index))
            return
        end = _with_its_own_metric(end, is_mixed=trial.metric in self._mixed)
        record = record_of(
            trial.point,
            trial.index,
            self._sought.classified(trial.point, end),
            end,
            seq=self._journal.trials,
            elapsed=self._elapsed(),
            path=trial.path,
        )
        if self._question.keep is not None and trial.point.purpose is not Purpose.WARM:
            record = replace(record, kept=self._question.keep(record, end) or {})
        self._write(record)
        self._use(record, replayed=False)
        left = sum(each.judge.needs(each.tally) for each in self._open.values())
        self._say(self._warmth.proposal(end.imports, end.duration, left))
        self._settle_if_sure(state)

    def _is_lost_with_another(self, trial: _Trial, end: TrialEnd) -> bool:
        """A dead node takes many trials at once. The first is counted, so that what is always lost
        is given up in the end; the others are started again.
        """
        is_reported = end.exit_code is not None or end.signal is not None
        if end.lost is None or is_reported or trial.is_refused:
            return False
        if trial.is_forgiven:
            return True
        for beside in self._trials.values():
            beside.is_forgiven = True
        return False

    def _use(self, record: TrialRecord, *, replayed: bool) -> None:
        state = self._open[record.point]
        state.count(record)
        state.forgiven += replayed and record.outcome is Outcome.ERROR
        if record.point.purpose is Purpose.WARM:
            self._warmth.proofs.append(record)
            return
        self._records.append(record)
        self._sought.learn(record)
        if self._sought.doubt and not self._doubted:
            self._doubted = True
            self._say(self._sought.doubt)
        if self._question.learn is not None:
            self._question.learn(record)
        self._emit(events.TrialEnded(record, replayed))

    def _verdict(self, state: _OpenPoint) -> Verdict | None:
        if self._sought.is_never_the_same(state.point, state.tally):
            mine = [record for record in self._records if record.point == state.point]
            words = SoughtFailure.different_words(mine)
            return Verdict(None, state.tally, words)
        found = state.judge.verdict(state.tally)
        retries = self._question.budget.retries + state.forgiven
        if found is None and state.tally.is_hopeless(retries):
            found = Verdict(None, state.tally, f"could not be tried: {state.last_error}")
        if found is None:
            return None
        seconds = statistics.median(state.durations) if state.durations else None
        return Verdict(found.reproduces, state.tally, found.why, seconds)

    def _settle_if_sure(self, state: _OpenPoint) -> bool:
        verdict = self._verdict(state)
        if verdict is None:
            return False
        self._write(Decided(state.point, verdict))
        self._cancel_running(state)
        self._tell(state.point, verdict)
        self._drop_unwanted()
        return True

    def _tell(self, point: Point, verdict: Verdict) -> None:
        del self._open[point]
        self._say(self._warmth.decided(point, verdict))
        if point.purpose is Purpose.WARM:
            return
        self._judges.learn(point, verdict)
        self._search.tell(point, verdict)
        left = getattr(self._search, "left", None)
        self._emit(events.PointDecided(point, verdict, self._search.best, left))

    # -- limits ------------------------------------------------------------------------------------

    @property
    def _spent(self) -> int:
        return len(self._records) + len(self._warmth.proofs)

    def _elapsed(self) -> float:
        return self._clock() - self._began

    def _may_start(self) -> bool:
        allowed = self._question.budget.allows(self._spent + len(self._trials))
        return allowed and self._free_slots() > 0

    def _budget_spent(self) -> str:
        return self._question.budget.spent(self._spent, self._seconds_spent())

    def _seconds_spent(self) -> float:
        """Of the budget."""
        return self._elapsed() - (self._replayed_seconds if self._question.budget.anew else 0.0)

    def _write(self, entry: Entry) -> None:
        self._journal.append(entry, self._question.name)

    def _emit(self, event: Event) -> None:
        for listener in self._listeners:
            listener(event)

    def _say(self, words: str) -> None:
        if words:
            self._emit(events.Note(words))


def record_of(
    point: Point,
    index: int,
    found: Classified,
    end: TrialEnd,
    *,
    seq: int,
    elapsed: float,
    path: str,
) -> TrialRecord:
    return TrialRecord(
        seq=seq,
        point=point,
        index=index,
        outcome=found.outcome,
        why=found.why,
        failure=found.failure,
        exit_code=end.exit_code,
        signal=end.signal,
        timed_out=end.timed_out,
        duration=round(end.duration, 6),
        started_at=round(end.started_at, 3),
        elapsed=round(elapsed, 3),
        host=end.host,
        image_digest=end.image_digest,
        path=path,
        value=found.value,
        harmless=found.harmless,
        saved=round(end.saved, 3),
    )


def _with_its_own_metric(end: TrialEnd, *, is_mixed: bool) -> TrialEnd:
    """The end without its number, if that stood where another trial may have written it."""
    result = dict(end.result or {})
    place = result.pop(SHARED, None)
    if place is None:
        return end
    if is_mixed:
        del result["metrics_file"]
        result["metrics_problem"] = (
            f"trials side by side write their metric to {place}; let the command write it to "
            "$AORTA_METRIC_FILE, or use --jobs 1"
        )
    return replace(end, result=result)
