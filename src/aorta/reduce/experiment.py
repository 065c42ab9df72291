"""From a point to a trial: the workload's own experiment with the axes laid out around it."""

import shutil
import statistics
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from aorta.core.axis import AxisKind, Point, Purpose
from aorta.core.durations import show_duration
from aorta.core.oracle import Classified, Deciding, HangOracle
from aorta.core.trial import Outcome, Tally, TrialEnd, TrialSpec, Verdict, Watch, WatchedPattern
from aorta.engine.events import TrialRecord
from aorta.engine.judge import Judge, Judges
from aorta.engine.rundir import is_output
from aorta.reduce.bindings import AxisBinding, changed_names, lay_out
from aorta.reduce.files import is_installed
from aorta.reduce.launcher import (
    argv_of,
    is_launched,
    ranks_of,
    with_world_size,
    world_size_variables,
)
from aorta.reduce.spec import Gate
from aorta.workloads.ranks import rank_log_variables
from aorta.workloads.trial import WorkloadExperiment

DATA = "data"
PLACE = "place"  # in it: the working directory of the trial, where it is a copy
_LEAST_PATIENCE = 10.0
_NOTHING = Point.of({})
_COPIED_BYTES = 1 << 20
_MOST_FILES = 20_000


@dataclass
class TimeLimits:
    """A candidate may take five times as long as the original, since a clean run may take longer
    than one that fails. Past that it is undecided and not tried again.
    """

    given: float | None = None
    hang_seconds: float = 0.0
    _seen: list[float] = field(default_factory=list)
    _original_timed_out: bool = False
    _hung: dict[Point, float] = field(default_factory=dict)

    def hung_for(self, point: Point) -> float | None:
        """After how many seconds this candidate was ended; None where it may be the original's."""
        return None if self._original_timed_out else self._hung.get(point)

    def learn(self, record: TrialRecord) -> None:
        if record.point.purpose is Purpose.CALIBRATE:
            self._original_timed_out |= record.timed_out
            if record.outcome is not Outcome.ERROR:
                self._seen.append(record.duration)
        elif record.timed_out and record.outcome is Outcome.ERROR:
            self._hung[record.point] = record.duration

    def seconds_for(self, point: Point) -> float | None:
        if self.given is not None or point.purpose is Purpose.CALIBRATE or not self._seen:
            return self.given
        return max(_LEAST_PATIENCE, 5 * max(self._seen)) + self.hang_seconds


def patience_with(given: float | None, oracle: Deciding) -> TimeLimits:
    """A hang must have the time to be seen as one."""
    hang = oracle if isinstance(oracle, HangOracle) else None
    return TimeLimits(given, max(hang.silent_for or 0, hang.longer_than or 0) if hang else 0.0)


@dataclass(frozen=True)
class ImpatientJudges:
    """Judges of a reduction that never retry a candidate that hangs."""

    inner: Judges
    patience: TimeLimits

    def judge_for(self, point: Point) -> Judge:
        return _ImpatientJudge(self.inner.judge_for(point), point, self.patience)

    def learn(self, point: Point, verdict: Verdict) -> None:
        self.inner.learn(point, verdict)


@dataclass(frozen=True)
class _ImpatientJudge:
    inner: Judge
    point: Point
    patience: TimeLimits

    def verdict(self, tally: Tally) -> Verdict | None:
        seconds = self.patience.hung_for(self.point)
        if seconds is not None and not tally.reproduced:
            why = f"still running after {show_duration(seconds)}, where the original had ended"
            return Verdict(None, tally, why)
        return self.inner.verdict(tally)

    def needs(self, tally: Tally) -> int:
        return 0 if self.verdict(tally) else self.inner.needs(tally)

    def at_most(self, tally: Tally) -> int:
        return 0 if self.verdict(tally) else self.inner.at_most(tally)


@dataclass(frozen=True)
class ReductionExperiment:
    """Implements `engine.question.Experiment`."""

    base: WorkloadExperiment
    bindings: Sequence[AxisBinding]
    oracle: Deciding
    patience: TimeLimits

    def trial(self, point: Point, index: int, trial_dir: Path) -> TrialSpec:
        folder = (trial_dir / DATA).absolute()
        place = folder / PLACE
        changed = changed_names(self.bindings)
        if changed:
            copy = self.base.environment.isolated  # a container sees nothing else
            shutil.rmtree(place, ignore_errors=True)
            make_workplace(self.base.subject.cwd, place, changed, copy=copy)
        placed, _ = lay_out(self.bindings, point, folder, place)
        texts = {name: str(value) for name, value in placed.items()}
        logs = rank_log_variables(trial_dir.absolute()) if is_launched(self._argv) else {}
        env = {**self.base.env, **logs, **self.launching(point), **texts}
        trial = replace(self.base, env=env).trial(_NOTHING, index, trial_dir)
        return replace(
            trial,
            # The original's own directory, or a copy of it with the files that the point changes.
            cwd=place if changed else trial.cwd,
            argv=self.command(trial.argv, point),
            watch=self.oracle.watch(),
            timeout=self.patience.seconds_for(point),
        )

    def command(self, argv: tuple[str, ...], point: Point) -> tuple[str, ...]:
        """The command with the number of ranks that the point asks for."""
        ranks = self.ranks(point)
        return argv if ranks is None else with_world_size(argv, ranks)

    def ranks(self, point: Point) -> int | None:
        for binding in self.bindings:
            value = point[binding.axis.name]
            if binding.axis.kind is AxisKind.RANKS and isinstance(value, tuple):
                return len(value)
            if binding.axis.kind is AxisKind.WORLD_SIZE and isinstance(value, int):
                return value
        return None

    def launching(self, point: Point) -> dict[str, str]:
        """Variables for a launcher whose options do not say the number of ranks."""
        ranks = self.ranks(point)
        return {} if ranks is None or ranks_of(self._argv) else world_size_variables(ranks)

    @property
    def _argv(self) -> tuple[str, ...]:
        return argv_of(self.base.request.config.get("command", ()))


def clear_data(trial_dir: Path) -> None:
    """The laid-out files of a finished trial: its values say what they were."""
    shutil.rmtree(trial_dir / DATA, ignore_errors=True)


@dataclass(frozen=True)
class GatedOracle:
    """A failing trial counts only if it was under load."""

    inner: Deciding
    gate: Gate

    def watch(self) -> Watch:
        watch = self.inner.watch()
        times = WatchedPattern(self.gate.pattern, self.gate.stream, stop=False, keep_last=True)
        return replace(watch, patterns=(*watch.patterns, times))

    def judge_end(self, end: TrialEnd) -> Classified | None:
        found = self.inner.judge_end(end)
        if found is None or found.outcome is not Outcome.REPRODUCED:
            return found
        least, time = self.gate.min_step_time_ms, self._step_time(end)
        if time is None:
            return Classified(Outcome.OTHER, "not under load: no step time was seen")
        said = f"a step took {time:g} ms, the gate asks for {least:g} ms"
        return found if time >= least else Classified(Outcome.OTHER, f"not under load: {said}")

    def _step_time(self, end: TrialEnd) -> float | None:
        times = (end.result or {}).get("step_times_ms")
        if isinstance(times, list) and times:
            return statistics.median(float(time) for time in times)
        seen = [m for m in end.matches if m.pattern == self.gate.pattern and m.groups]
        said = max(seen, key=lambda match: match.at, default=None)
        try:
            return float(said.groups[0] or "") if said else None
        except ValueError:
            return None


# -- a trial's own working directory: real folders, so that writes do not reach the original


def make_workplace(original: Path, place: Path, without: Collection[str], *, copy: bool) -> None:
    """`place` becomes like `original`, without the files and folders of these relative names and
    without what a verb wrote. Large files are links to the original unless `copy`; so are
    repositories and virtual environments, and whatever is there beyond twenty thousand files.
    """
    seen = 0

    def skipped(folder: str, names: list[str]) -> list[str]:
        """What is not copied; some of it is linked to."""
        nonlocal seen
        seen += len(names)
        here = Path(folder)
        target = place / here.relative_to(original)
        target.mkdir(parents=True, exist_ok=True)
        changed = [n for n in names if (here / n).relative_to(original).as_posix() in without]
        changed += [n for n in names if place.is_relative_to(here / n) or is_output(here / n)]
        for name in {*names}.difference(changed):
            path = here / name
            is_link = path.is_symlink() and not path.is_file()
            if seen > _MOST_FILES or name == ".git" or is_link or is_installed(path):
                (target / name).symlink_to(path)
                changed.append(name)
        return changed

    put = partial(_put, copy=copy)
    shutil.copytree(original, place, ignore=skipped, copy_function=put, dirs_exist_ok=True)


def _put(source: str, target: str, *, copy: bool) -> None:
    """A pipe, a socket or a file that cannot be read is linked like a large one."""
    path = Path(source)
    with suppress(OSError):
        if path.is_file() and (copy or path.stat().st_size <= _COPIED_BYTES):
            shutil.copy2(source, target)
            return
    Path(target).unlink(missing_ok=True)
    Path(target).symlink_to(source)
