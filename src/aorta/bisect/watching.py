"""What people see while it runs, also in `info.log`; all events and output are in `debug.log`."""

import re
import time
from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from pathlib import Path

from aorta.core.axis import Point
from aorta.core.durations import show_duration
from aorta.core.stats import counted
from aorta.core.trial import Outcome
from aorta.engine import events
from aorta.engine.events import Event, Listener
from aorta.executors.evidence import read_end
from aorta.runtimes.git import without_secrets
from aorta.search.bisection import Bisection

Say = Callable[[str], None]

BUILD_LOG = "build.log"  # in a trial's directory: what the build said
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_TAIL = 2000
_STAMP = "%Y-%m-%d %H:%M:%S"


def short(point: Point) -> str:
    """`jax@cd04d0f xla@662eb45`: enough to know a state by."""
    return " ".join(f"{name}@{str(value)[:10]}" for name, value in point.values)


class FirstFailure:
    """The words of the first trial that failed, that could not be run, or not be tested."""

    def __init__(self, run_dir: Callable[[], Path], say: Say) -> None:
        self._run_dir, self._say = run_dir, say
        self._shown = {Outcome.CLEAN}

    def __call__(self, event: Event) -> None:
        if not isinstance(event, events.TrialEnded) or event.record.outcome in self._shown:
            return
        record = event.record
        self._shown.add(record.outcome)
        if event.replayed:
            return
        fails = record.outcome is Outcome.REPRODUCED
        kind = "failure" if fails else "trial that tells neither good nor bad"
        self._say(f"the first {kind}, at {short(record.point)} ({record.why}), said:")
        for line in last_words(self._run_dir() / record.path).splitlines()[-12:]:
            self._say(f"  | {without_secrets(line)}")
        if fails:
            self._say("  check that this is the failure you seek: another would be bisected too")


class StepsLeft:
    """After every answer: how many candidates are left, and about how many tests and how long."""

    def __init__(self, search: Bisection, say: Say) -> None:
        self._search, self._say = search, say
        self._begun = time.monotonic()
        self._trials = 0
        versions = search.timeline.histories[0].versions
        self._unit = "commit" if all(_COMMIT.fullmatch(v) for v in versions) else "change"

    def __call__(self, event: Event) -> None:
        if isinstance(event, events.TrialEnded):
            self._trials += not event.replayed
        elif isinstance(event, events.PointDecided):
            self._say_left(self._search)

    def _say_left(self, search: Bisection) -> None:
        """Nothing before anything is known, and at the end."""
        if search.answer is None or search.done or not self._trials:
            return
        trials = search.expected_questions()
        seconds = trials * (time.monotonic() - self._begun) / self._trials
        self._say(
            f"{counted(search.possible, self._unit)} still possible, about "
            f"{counted(trials, 'more test')}, {show_duration(round(seconds, 1))}"
        )


class LogFiles:
    """`info.log` and `debug.log`, without credentials; a full disk costs lines, not the run."""

    def __init__(self, directory: Path) -> None:
        self.debug_path = directory / "debug.log"
        self._info = (directory / "info.log").open("ab", buffering=0)
        self._debug = self.debug_path.open("ab", buffering=0)
        self._trials = 0

    def listener(self, stage_dir: Callable[[], Path]) -> Listener:
        def record(event: Event) -> None:
            _write(self._debug, str(event))
            if isinstance(event, events.TrialEnded):
                self._note(event)
                if not event.replayed:
                    self._keep_outputs(stage_dir() / event.record.path)

        return record

    def _keep_outputs(self, place: Path) -> None:
        for name in (BUILD_LOG, "stdout.log", "stderr.log"):
            with suppress(OSError), (place / name).open(encoding="utf-8", errors="replace") as log:
                for line in log:
                    _write(self._debug, f"  {name} | {line.rstrip()}")

    def _note(self, event: events.TrialEnded) -> None:
        self._trials += 1
        record = event.record
        again = ", from an earlier start" if event.replayed else ""
        words = (
            f"trial {self._trials}: {record.outcome.value} in {show_duration(record.duration)} "
            f"({short(record.point)}): {record.why}{again}"
        )
        _write(self._info, f"[{time.strftime(_STAMP)}] {words}")

    def say(self, text: str) -> None:
        for file in (self._info, self._debug):
            _write(file, f"[{time.strftime(_STAMP)}] {text}")

    def close(self) -> None:
        self._info.close()
        self._debug.close()


def _write(file: FileIO, line: str) -> None:
    with suppress(OSError):
        file.write(f"{without_secrets(line)}\n".encode("utf-8", "replace"))


def last_words(directory: Path) -> str:
    """The ends of both streams of a trial, or of its build if it never ran."""
    return "\n".join(
        tail for name in ("stdout.log", "stderr.log") if (tail := _tail(directory / name))
    ) or _tail(directory / BUILD_LOG)


def _tail(path: Path) -> str:
    try:
        return read_end(path, _TAIL).decode("utf-8", "replace").strip()
    except OSError:
        return ""
