"""What people see while it runs: the first failure at once, then after every answer what is left to do.

And what stays for later: `info.log` with the same lines, `debug.log` with every event and the words of every trial.
"""

import io
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from aorta.bisect.git import without_secrets
from aorta.bisect.trials import BUILD_LOG
from aorta.core.durations import show_duration
from aorta.core.outcome import Outcome
from aorta.core.point import Point
from aorta.engine import events
from aorta.engine.events import Event, Listener
from aorta.engine.journal import TrialRecord
from aorta.search.bisecting import Bisection

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

Say = Callable[[str], None]

MISTAKES = re.compile(
    r"command not found|: not found$|No such file or directory|executable file not found"
    r"|ModuleNotFoundError|ImportError|SyntaxError|[Ss]yntax error|usage: |unrecognized arguments"
    r"|Permission denied|file or directory not found|no tests ran",
    re.MULTILINE,
)
# Between environments an import that fails is what one looks for.
MISTAKES_IN_ENVIRONMENTS = re.compile(
    MISTAKES.pattern.replace("|ModuleNotFoundError|ImportError", ""), re.MULTILINE
)
_TAIL = 2000
_FIRST = {
    Outcome.REPRODUCED: "failure",
    Outcome.OTHER: "state that is neither good nor bad",
    Outcome.ERROR: "trial without an outcome",
}


def short(point: Point) -> str:
    """`jax@cd04d0f xla@662eb45`: enough to know a state by."""
    return " ".join(f"{name}@{str(value)[:10]}" for name, value in point.values)


class FirstFailure:
    """The first failing trial decides what is being searched for, so its words are shown before hours are spent. So are
    those of the first that could not be run, or not be tested.
    """

    def __init__(
        self, run_dir: Callable[[], Path], say: Say, mistakes: re.Pattern[str] = MISTAKES
    ) -> None:
        self._run_dir, self._say, self._mistakes = run_dir, say, mistakes
        self._shown = {Outcome.CLEAN}

    def __call__(self, event: Event) -> None:
        if not isinstance(event, events.TrialEnded) or event.record.outcome in self._shown:
            return
        record = event.record
        self._shown.add(record.outcome)
        if event.replayed:
            return
        words = last_words(self._run_dir() / record.path)
        self._say(
            f"the first {_FIRST[record.outcome]}, at {short(record.point)} ({record.why}), said:"
        )
        for line in words.splitlines()[-12:]:
            self._say(f"  | {without_secrets(line)}")
        if record.outcome is Outcome.ERROR and not record.timed_out:
            self._say("!!! IT COULD NOT BE RUN: THIS LOOKS LIKE A MISTAKE IN THE COMMAND.")
            self._say("!!! Stop with Ctrl-C and mend it, unless it comes and goes.")
        elif record.outcome is Outcome.REPRODUCED:
            self._check(words, record)

    def _check(self, words: str, record: TrialRecord) -> None:
        if self._mistakes.search(f"{words}\n{record.why}"):
            self._say(
                "!!! THIS LOOKS LIKE A MISTAKE IN THE COMMAND, NOT LIKE THE FAILURE YOU SEEK."
            )
            self._say("!!! Stop with Ctrl-C and mend it, unless this is what you look for.")
        else:
            self._say(
                "  check that this is the failure you seek: another one would be bisected too"
            )


class StepsLeft:
    """After every answer: how many candidates are left, and about how many trials and how much time."""

    def __init__(self, search: Bisection, say: Say) -> None:
        self._search, self._say = search, say
        self._durations: list[float] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, events.TrialEnded):
            self._durations.append(event.record.duration)
        elif isinstance(event, events.PointSettled):
            interval = self._search.answer
            left = self._search.expected_questions()
            if interval is None or self._search.done or not self._durations:
                return
            typical = sum(self._durations) / len(self._durations)
            self._say(
                f"{len(interval.changes)} of {self._search.timeline.changes} changes are left at "
                f"{interval.mass:.0%}; about {left} more trials, {show_duration(left * typical)}"
            )


class LogFiles:
    """`info.log` and `debug.log` of a run directory, appended to when it is resumed."""

    def __init__(self, directory: Path) -> None:
        self._info, self._debug = (
            _Scrubbed(_Patient(directory / name, "ab"), encoding="utf-8", write_through=True)
            for name in ("info.log", "debug.log")
        )
        self._directory = directory
        self._trials = 0

    def listeners(self, stage_dir: Callable[[], Path]) -> list[Listener]:
        def record(event: Event) -> None:
            self._debug.write(f"{type(event).__name__}: {_event_words(event)}\n")
            if isinstance(event, events.TrialEnded):
                self._note(event)
                words = last_words(stage_dir() / event.record.path)
                for line in words.splitlines():
                    self._debug.write(f"  | {line}\n")

        return [record]

    def _note(self, event: events.TrialEnded) -> None:
        self._trials += 1
        record = event.record
        again = ", from an earlier start" if event.replayed else ""
        self._info.write(
            f"[{_now()}] trial {self._trials}: {record.outcome.value} in "
            f"{show_duration(record.duration)} ({short(record.point)}): {record.why}{again}\n"
        )

    def say(self, text: str) -> None:
        stamp = _now()
        for file in (self._info, self._debug):
            file.write(f"[{stamp}] {text}\n")

    def close(self) -> None:
        self._info.close()
        self._debug.close()


class _Patient(io.FileIO):
    """What a full disk does not take is gone: the journal is what a run cannot go on without, not its log."""

    def write(self, data: "ReadableBuffer", /) -> int:
        with suppress(OSError):
            super().write(data)
        return memoryview(data).nbytes


class _Scrubbed(io.TextIOWrapper):
    """A file that never gets an address with credentials."""

    def write(self, text: str) -> int:
        return super().write(without_secrets(text))


def last_words(directory: Path) -> str:
    """The ends of both streams of a trial, or of its build if it never ran."""
    return "\n".join(
        tail for name in ("stdout.log", "stderr.log") if (tail := _tail(directory / name))
    ) or _tail(directory / BUILD_LOG)


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL))
            return file.read().decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _event_words(event: Event) -> str:
    content: Mapping[str, object] = vars(event)
    words = [
        f"{name}={short(value)}"
        if isinstance(value, Point)
        else f"{name}={_record_words(value)}"
        if isinstance(value, TrialRecord)
        else f"{name}={value}"
        for name, value in content.items()
    ]
    return " ".join(words)


def _record_words(record: TrialRecord) -> str:
    return (
        f"{short(record.point)} {record.outcome.value} ({record.why}) exit={record.exit_code} "
        f"signal={record.signal} in {record.duration:.2f}s at {record.path}"
    )
