"""The engine's one loop: ask, run, classify, write down, judge, tell.

With W slots it first runs the trials that are certain to be used, then points the search asks for beside them, then
further trials of open points on slots that would idle. It cancels what no longer matters, and uses one finished
trial at a time, so that a replay of the journal walks through exactly the same states.
"""

import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from pathlib import Path

from aorta.core.errors import InfrastructureError, Terminated
from aorta.core.oracle import classify
from aorta.core.outcome import Outcome, Tally, Verdict
from aorta.core.point import Point
from aorta.core.signature import Signature
from aorta.core.trial import TrialEnd
from aorta.engine import events
from aorta.engine.events import Ending, Event, Listener, Reason
from aorta.engine.journal import Journal, TrialRecord
from aorta.engine.judge import Judge, Judges
from aorta.engine.question import Budget, Experiment, Keep
from aorta.engine.rundir import fresh_dir
from aorta.executors import Executor
from aorta.search import Search

_HEARTBEAT = 0.5


@dataclass
class _OpenPoint:
    point: Point
    judge: Judge
    tally: Tally = field(default_factory=Tally)
    started: int = 0
    running: dict[str, int] = field(default_factory=dict)  # trial id -> index
    durations: list[float] = field(default_factory=list)
    last_error: str = ""


class Engine:
    """Drives one search to its end. Everything it knows is in the journal; everything it does is an event."""

    def __init__(
        self,
        search: Search,
        judges: Judges,
        experiment: Experiment,
        executor: Executor,
        journal: Journal,
        run_dir: Path,
        *,
        budget: Budget | None = None,
        listeners: Sequence[Listener] = (),
        expected: Signature | None = None,
        guard_signature: bool = True,
        keep: Keep | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.search = search
        self.judges = judges
        self.experiment = experiment
        self.executor = executor
        self.journal = journal
        self.run_dir = run_dir
        self.budget = budget or Budget()
        self.listeners = listeners
        self.expected = expected
        self.records: list[TrialRecord] = []
        self._guard = guard_signature
        self._keep = keep
        self._clock = clock
        self._open: dict[Point, _OpenPoint] = {}
        self._dropped: dict[Point, _OpenPoint] = {}
        self._trial_points: dict[str, tuple[Point, int, str]] = {}
        self._unplayed = {record.key: record for record in journal.played}
        self._replaying: list[tuple[int, str]] = []
        self._held: dict[str, bool] = {}  # not started while replaying -> whether cancelled since
        self._live = not journal.played and not journal.unused
        self._ended: deque[TrialEnd] = deque()
        self._resumed = 0

    def run(self) -> Ending:
        """Until the search is done, a budget is spent, or the run is stopped. The executor is closed afterwards."""
        spent_before = self.journal.played[-1].elapsed if self.journal.played else 0.0
        self._began = self._clock() - spent_before
        self._emit(events.RunStarted(self.run_dir))
        for note in self.journal.notes:
            self._emit(events.Note(note))
        try:
            reason, detail = self._loop()
        except InfrastructureError as wrong:
            reason, detail = Reason.INFRASTRUCTURE, str(wrong)
        except KeyboardInterrupt:
            reason, detail = Reason.INTERRUPTED, "interrupted"
        except Terminated:
            reason, detail = Reason.TERMINATED, "terminated"
        finally:
            self.executor.close()
            self.journal.close()
        ending = Ending(reason, detail, len(self.records), self._resumed, self._elapsed())
        self._emit(events.RunEnded(ending))
        return ending

    def _loop(self) -> tuple[Reason, str]:
        while not self.search.done:
            self._fill()
            if not self._live and not self._replaying:
                self._go_live()
                continue
            spent = self._budget_spent()
            if spent and not self._replaying:
                return Reason.BUDGET, spent
            if not self._trial_points and not self._replaying:
                return Reason.DONE, "the search has no further question"
            self._use_next_end()
        return Reason.DONE, ""

    # -- choosing what runs ------------------------------------------------------------------------

    def _fill(self) -> None:
        if self._free_slots() <= 0 or (self._budget_spent() and not self._unplayed):
            return
        for state in list(self._open.values()):
            self._start_trials(state, state.judge.needs(state.tally))
        while self._free_slots() > 0:
            asked = self.search.ask(self._free_slots(), tuple(self._open))
            if not asked:
                break
            state = self._open_point(asked[0])
            verdict = self._verdict(state)
            if verdict is None:
                self._start_trials(state, state.judge.needs(state.tally))
            else:
                self._settle(state, verdict)
        for state in list(self._open.values()):
            self._start_trials(state, state.judge.at_most(state.tally))

    def _open_point(self, point: Point) -> _OpenPoint:
        """Evidence of a point that was dropped and is wanted again still counts."""
        state = self._dropped.pop(point, None) or _OpenPoint(point, self.judges.judge_for(point))
        self._open[point] = state
        self._emit(events.PointOpened(point))
        return state

    def _start_trials(self, state: _OpenPoint, useful: int) -> None:
        """Start trials until `useful` are under way, as far as slots and the trial budget reach."""
        while len(state.running) < useful and self._free_slots() > 0 and not self._trials_spent():
            self._start_trial(state)

    def _start_trial(self, state: _OpenPoint) -> None:
        index = state.started
        state.started += 1
        point = state.point
        trial_id = f"{point.key}.{index}"
        relative = f"trials/{point.config_key}/{point.purpose.value}{point.replica}-{index:03d}"
        state.running[trial_id] = index
        self._trial_points[trial_id] = (point, index, relative)
        played = self._unplayed.get((point.key, index))
        if played is not None:
            heappush(self._replaying, (played.seq, trial_id))
            return
        if not self._live:
            self._held[trial_id] = False
            return
        self._launch(trial_id)

    def _launch(self, trial_id: str) -> None:
        point, index, relative = self._trial_points[trial_id]
        trial_dir = fresh_dir(self.run_dir / relative)
        trial = self.experiment.trial(point, index, trial_dir)
        self._emit(events.TrialStarted(point, index))
        self.executor.start(replace(trial, id=trial_id))

    def _go_live(self) -> None:
        """The journal is played: what was running when it ends is started, what was being cancelled is gone.

        That a cancelled trial gave its slot back here is written down, so that the next replay frees it here too.
        """
        self._live = True
        for trial_id, cancelled in self._held.items():
            if cancelled:
                point, index, _ = self._trial_points[trial_id]
                heappush(self._replaying, (self.journal.written, trial_id))
                self.journal.append_unused(point.key, index)
            else:
                self._launch(trial_id)
        self._held.clear()

    def _free_slots(self) -> int:
        return self.executor.slots - len(self._trial_points)

    def _drop_unwanted(self) -> None:
        for point in [p for p in self._open if not self.search.wants(p)]:
            state = self._open.pop(point)
            self._cancel_running(state)
            self._dropped[point] = state

    def _cancel_running(self, state: _OpenPoint) -> None:
        for trial_id, index in state.running.items():
            self._cancel(trial_id, state.point, index)
        state.running.clear()

    def _cancel(self, trial_id: str, point: Point, index: int) -> None:
        """A replayed trial simply is not used; a running one is stopped and its slot comes back with its end."""
        key = (point.key, index)
        if key in self._unplayed:
            self._replaying = [
                (seq, waiting) for seq, waiting in self._replaying if waiting != trial_id
            ]
            del self._trial_points[trial_id]
        elif trial_id in self._held and key in self.journal.unused:
            del self._held[trial_id]
            heappush(self._replaying, (self.journal.unused[key], trial_id))
        elif trial_id in self._held:
            self._held[trial_id] = True
        else:
            self.executor.cancel(trial_id)
        self._emit(events.TrialCancelled(point, index))

    # -- using what ended --------------------------------------------------------------------------

    def _use_next_end(self) -> None:
        if self._replaying:
            _, trial_id = heappop(self._replaying)
            point, index, _ = self._trial_points.pop(trial_id)
            if (point.key, index) not in self._unplayed:
                return  # a cancelled trial gave its slot back here
            self._resumed += 1
            self._use(self._unplayed.pop((point.key, index)), trial_id, replayed=True)
            return
        if not self._ended:
            self._ended.extend(self.executor.wait(self._until_budget()))
        if self._ended:
            self._take(self._ended.popleft())

    def _take(self, end: TrialEnd) -> None:
        point, index, relative = self._trial_points.pop(end.trial_id)
        state = self._open.get(point)
        if end.cancelled or state is None or end.trial_id not in state.running:
            self.journal.append_unused(point.key, index)
            return
        found = classify(self.experiment.oracle, end, self.expected if self._guard else None)
        record = TrialRecord.of(
            point,
            index,
            found,
            end,
            seq=self.journal.written,
            elapsed=self._elapsed(),
            path=relative,
        )
        if self._keep is not None:
            self._keep(record, end)
        self.journal.append(record)
        self._use(record, end.trial_id, replayed=False)

    def _use(self, record: TrialRecord, trial_id: str, *, replayed: bool) -> None:
        self.records.append(record)
        if record.outcome is Outcome.REPRODUCED and self.expected is None:
            self.expected = record.signature
        state = self._open[record.point]
        del state.running[trial_id]
        state.tally += record.outcome
        if record.outcome is Outcome.ERROR:
            state.last_error = record.why
        else:
            state.durations.append(record.duration)
        self._emit(events.TrialEnded(record, replayed))
        verdict = self._verdict(state)
        if verdict is not None:
            self._settle(state, verdict)

    def _verdict(self, state: _OpenPoint) -> Verdict | None:
        found = state.judge.verdict(state.tally)
        hopeless = state.tally.error > self.budget.retries + state.tally.evidence
        if found is None and hopeless:
            found = Verdict(None, state.tally, f"could not be tried: {state.last_error}")
        if found is None:
            return None
        seconds = statistics.median(state.durations) if state.durations else None
        return Verdict(found.reproduces, state.tally, found.why, seconds)

    def _settle(self, state: _OpenPoint, verdict: Verdict) -> None:
        point = state.point
        del self._open[point]
        self._cancel_running(state)
        self.judges.learn(point, verdict)
        self.search.tell(point, verdict)
        self._emit(events.PointSettled(point, verdict, self.search.best))
        self._drop_unwanted()

    # -- limits ------------------------------------------------------------------------------------

    def _elapsed(self) -> float:
        return self._clock() - self._began

    def _trials_spent(self) -> bool:
        most = self.budget.max_trials
        return most is not None and len(self.records) + len(self._trial_points) >= most

    def _budget_spent(self) -> str:
        most, seconds = self.budget.max_trials, self.budget.max_seconds
        if most is not None and len(self.records) >= most:
            return f"{most} trials are spent"
        if seconds is not None and self._elapsed() >= seconds:
            return f"{seconds:g} s are spent"
        return ""

    def _until_budget(self) -> float:
        if self.budget.max_seconds is None:
            return _HEARTBEAT
        return max(0.0, min(_HEARTBEAT, self.budget.max_seconds - self._elapsed()))

    def _emit(self, event: Event) -> None:
        for listener in self.listeners:
            listener(event)
