"""What counts as the failure. Decided here and nowhere else.

An oracle says what to watch for while a trial runs (`watch`) and what its end means (`classify`). A
broken configuration must never look like a reproduction: what could not start, was ended by aorta
or by a scheduler, or ran out of time where time is not the bug, is an `error` and no evidence at
all; its executor says so (`lost`, `timed_out`). Every other end is the program's own, a kill by the
kernel for want of memory among them.
"""

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Protocol

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from aorta.core.documents import UNKNOWN_KIND, DocumentModel, Seconds, StrictModel, validated
from aorta.core.errors import UsageError
from aorta.core.failure import (
    PATTERN,
    WORKLOAD,
    Failure,
    failure_from_elsewhere,
    failure_of,
    named_failure,
    same_failure,
)
from aorta.core.raised import causes_in, lines_outside_tracebacks
from aorta.core.stats import Levels
from aorta.core.templates import CANNOT_EXECUTE, progress_in, said_in, why_not_started
from aorta.core.trial import SIGNALLED, Outcome, TrialEnd, Watch, WatchedPattern

_ENOUGH_ODDS = 20  # to one, before a single number is called good or bad
_FEWEST = 8  # numbers that tell a trend
Stream = Literal["stdout", "stderr", "both"]

ANOTHER_FAILURE = "another failure: "
"""How the reason begins where the oracle fired for a failure that is not the one meant."""


@dataclass(frozen=True)
class Classified:
    """One outcome, why in a few words, and what failed where something did. `is_named`: the oracle
    named the failure, by a pattern or a code; `harmless`: templates of lines of no failure.
    """

    outcome: Outcome
    why: str
    failure: Failure | None = None
    value: float | None = None  # the number, where one decided
    is_named: bool = False
    harmless: tuple[str, ...] = ()


class Deciding(Protocol):
    """What the engine needs of an oracle. A verb may wrap those below in further rules."""

    def watch(self) -> Watch:
        """What to look for while the trial runs."""

    def judge_end(self, end: TrialEnd) -> Classified | None:
        """The outcome where it is known, or None to leave it to the rules for every oracle."""


class _Oracle(DocumentModel):
    def watch(self) -> Watch:
        return Watch()


class ExitCodeOracle(_Oracle):
    """Any non-zero exit, or one of `codes`; `failure` is what another run learned of it."""

    kind: Literal["exit_code"] = "exit_code"
    codes: tuple[int, ...] | None = None
    failure: dict[str, Any] | None = None

    @field_validator("failure")
    @classmethod
    def _readable(cls, content: dict[str, Any] | None) -> dict[str, Any] | None:
        try:
            failure_from_elsewhere(content)
        except (LookupError, TypeError, ValueError, AttributeError) as wrong:
            raise UsageError(f"found no failure of a result here: {wrong!r}") from None
        return content

    @field_validator("codes", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        if isinstance(value, int):
            return (value,)
        if value in ([], ()):
            raise UsageError("names no code; expected some, or no codes at all: any but 0")
        return value

    def judge_end(self, end: TrialEnd) -> Classified | None:
        if end.timed_out:
            return None
        if self.codes is None:
            return _reproduced(end, status_words(end)) if end.failed else None
        # An exit code, and both spellings of a death by signal.
        status, number = end.ended.status, end.ended.signal_number
        wanted = any(n is not None and n in self.codes for n in (status, number and -number))
        # A set of several codes that somebody declared is the failure, whichever of them it is.
        several = len({SIGNALLED - code if code < 0 else code for code in self.codes}) > 1
        named = several or end.exit_code in CANNOT_EXECUTE
        return _reproduced(end, status_words(end), is_named=named) if wanted else None


class RegexOracle(_Oracle):
    """A pattern in the output, optionally only together with a non-zero exit."""

    kind: Literal["regex"] = "regex"
    pattern: str
    stream: Stream = "both"
    with_failure: bool = False
    stop_on_match: bool = True

    @field_validator("pattern")
    @classmethod
    def _usable(cls, pattern: str) -> str:
        return checked_pattern(pattern)

    def watch(self) -> Watch:
        stop = self.stop_on_match and not self.with_failure
        return Watch(patterns=(WatchedPattern(self.pattern, self.stream, stop),))

    def judge_end(self, end: TrialEnd) -> Classified | None:
        match = next((m for m in end.matches if m.pattern == self.pattern), None)
        if match is None or (self.with_failure and not end.failed):
            return None
        failure = named_failure(PATTERN, match.line)
        why = f"matched {match.line[:120]!r}"
        return Classified(Outcome.REPRODUCED, why, failure, is_named=True)


class HangOracle(_Oracle):
    """No output for `silent_for`, or running longer than `longer_than`."""

    kind: Literal["hang"] = "hang"
    silent_for: Seconds = None
    longer_than: Seconds = None

    @model_validator(mode="after")
    def _one_given(self) -> "HangOracle":
        if self.silent_for is None and self.longer_than is None:
            raise UsageError(
                "a hang oracle needs silent_for or longer_than, such as silent_for: 30s"
            )
        return self

    def watch(self) -> Watch:
        return Watch(silent_for=self.silent_for, longer_than=self.longer_than)

    def judge_end(self, end: TrialEnd) -> Classified | None:
        return _reproduced(end, "it hung") if end.hung else None


class PythonOracle(_Oracle):
    """A registered workload's own result: `failure_count > 0`, or a predicate by name."""

    kind: Literal["python"] = "python"
    predicate: str | None = None

    def judge_end(self, end: TrialEnd) -> Classified | None:
        result = end.result
        if result is None:
            return self._judge_without_result(end)
        if self.predicate is None:
            fired = int(result.get("failure_count", 0)) > 0
        else:
            answers = result.get("predicates", {})
            if self.predicate not in answers:
                return Classified(
                    Outcome.ERROR, f"the workload has no predicate {self.predicate!r}"
                )
            fired = bool(answers[self.predicate])
        if fired:
            words = _hint(end)
            return Classified(Outcome.REPRODUCED, words, named_failure(WORKLOAD, words))
        return None if not result.get("passed", True) else Classified(Outcome.CLEAN, "passed")

    def _judge_without_result(self, end: TrialEnd) -> Classified | None:
        """A crash is a failure; leaving with 0 and no word about passing is not a pass."""
        if end.timed_out:
            return None
        if not end.failed:
            return _error("the workload ended without a result")
        return _reproduced(end, status_words(end)) if self.predicate is None else None


class MetricOracle(_Oracle):
    """A number from a JSON file or a pattern's group, against a threshold or samples."""

    kind: Literal["metric"] = "metric"
    file: str | None = None
    key: str | None = None
    pattern: str | None = None
    stream: Stream = "both"
    above: float | None = None
    below: float | None = None
    good: tuple[float, ...] = ()
    bad: tuple[float, ...] = ()
    relative: bool = False  # how many times its late values are its early ones

    @field_validator("pattern")
    @classmethod
    def _with_group(cls, pattern: str | None) -> str | None:
        if pattern is not None and re.compile(checked_pattern(pattern)).groups != 1:
            raise UsageError("the pattern of a metric needs exactly one group around the number")
        return pattern

    @model_validator(mode="after")
    def _complete(self) -> "MetricOracle":
        if (self.file is None) == (self.pattern is None):
            raise UsageError(
                "a metric oracle needs either file (with key) or pattern, and not both"
            )
        if self.file is not None and self.key is None:
            raise UsageError("a metric oracle with file needs key, such as key: results.loss")
        self._check_decidable()
        return self

    def _check_decidable(self) -> None:
        """Whether what is given tells a bad number from a good one."""
        ways = [self.above is not None, self.below is not None, bool(self.good or self.bad)]
        if sum(ways) != 1 or bool(self.good) != bool(self.bad):
            raise UsageError("a metric oracle needs one of above, below, or good and bad samples")
        if self.relative and (self.pattern is None or self.good):
            raise UsageError("relative needs a pattern, and above or below")

    def watch(self) -> Watch:
        if self.pattern is None:
            return Watch(json_file=self.file)
        numbers = WatchedPattern(
            self.pattern, self.stream, stop=False, keep_last=True, keep_all=self.relative
        )
        return Watch(patterns=(numbers,))

    def judge_end(self, end: TrialEnd) -> Classified | None:
        problem = (end.result or {}).get("metrics_problem")
        if self.file is not None and problem is not None:
            return _error(str(problem))
        value = self.value_of(end)
        if value is None and self.relative and not end.failed and not end.timed_out:
            return Classified(Outcome.CLEAN, "too few numbers to tell late ones from early ones")
        if value is None:
            return None if end.failed or end.timed_out else _error("the metric is missing")
        if not math.isfinite(value):
            return Classified(Outcome.OTHER, f"the metric is {value}")
        bad = self.is_bad(value)
        if bad is None:
            return _error(f"the metric {value:g} lies between good and bad")
        return Classified(Outcome.REPRODUCED if bad else Outcome.CLEAN, f"the metric is {value:g}")

    def value_of(self, end: TrialEnd) -> float | None:
        """The last number a pattern saw, or the one the executor brought back from the file."""
        if self.pattern is not None:
            found = [m for m in end.matches if m.pattern == self.pattern and m.groups]
            if self.relative:
                texts = max((match.every for match in found), key=len, default=())
                trend = early_and_late(texts, rises=self.above is not None)
                return trend and trend[1] / trend[0]
            last = {m.groups[0] for m in found if m.at == max(other.at for other in found)}
            return _number(last.pop()) if len(last) == 1 else None  # two streams may disagree
        value: object = (end.result or {}).get("metrics_file")
        for part in (self.key or "").split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return _number(value)

    def is_bad(self, value: float) -> bool | None:
        if self.above is not None:
            return value > self.above
        if self.below is not None:
            return value < self.below
        odds = Levels(self.good, self.bad).log_odds((value,))
        return odds > 0 if abs(odds) >= math.log(_ENOUGH_ODDS) else None


def early_and_late(texts: Sequence[str], *, rises: bool) -> tuple[float, float] | None:
    """The median of the first half of a run's numbers, and of their last quarter the quarter that
    changed least. The first number warms up. None where there are too few.
    """
    numbers = [number for text in texts[1:] if (number := _number(text)) is not None]
    if len(numbers) < _FEWEST or min(numbers) <= 0:
        return None
    late = sorted(numbers[-(len(numbers) // 4) :], reverse=not rises)
    return statistics.median(numbers[: len(numbers) // 2]), late[len(late) // 4]


def _tag(value: object) -> str:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return f"tag:{kind}"


Oracle = Annotated[
    Annotated[ExitCodeOracle, Tag("tag:exit_code")]
    | Annotated[RegexOracle, Tag("tag:regex")]
    | Annotated[HangOracle, Tag("tag:hang")]
    | Annotated[PythonOracle, Tag("tag:python")]
    | Annotated[MetricOracle, Tag("tag:metric")],
    Discriminator(
        _tag,
        custom_error_type=UNKNOWN_KIND,
        custom_error_message="expected exit_code, regex, hang, python or metric",
    ),
    Field(),
]


class _OracleDocument(StrictModel):
    oracle: Oracle


def oracle_from_json(content: Mapping[str, Any], *, file: str) -> Oracle:
    return validated(_OracleDocument, {"oracle": content}, file=file).oracle


def known_failure(oracle: Oracle | None) -> Failure | None:
    """The failure that is meant, where an oracle brings it along; else the first that is seen."""
    return failure_from_elsewhere(oracle.failure) if isinstance(oracle, ExitCodeOracle) else None


def naming(oracle: Mapping[str, Any], failure: Mapping[str, Any] | None) -> dict[str, Any]:
    """The JSON of an oracle with the failure that is meant; only an exit code leaves that open."""
    open_to_any = oracle.get("kind") == ExitCodeOracle().kind
    return {**oracle, "failure": dict(failure)} if open_to_any and failure else dict(oracle)


def oracle_to_json(oracle: Oracle) -> dict[str, Any]:
    return {"kind": oracle.kind, **oracle.model_dump(mode="json", exclude_defaults=True)}


def classify(oracle: Deciding, end: TrialEnd, expected: Failure | None = None) -> Classified:
    """The outcome of one trial. With `expected`, a failure that is not the same is `other`."""
    if end.lost is not None:
        return _error(end.lost)
    if (end.result or {}).get("main_work_started") is False:  # in a registered workload's own word
        return _error(f"set-up failed: {_hint(end)}")
    found = oracle.judge_end(end) or _left_over(end)
    if found.is_named or found.outcome is Outcome.ERROR:
        return found
    errors, output = (
        said_in(lines_outside_tracebacks(text)) for text in (end.stderr.tail, end.stdout.tail)
    )
    if found.outcome is Outcome.CLEAN:  # what a clean run says is no failure's words
        return replace(found, harmless=tuple(dict.fromkeys((*errors, *output))))
    known = frozenset({expected.ended.status or 0}) if expected is not None else frozenset()
    not_started = why_not_started(end, known)
    if not_started is not None and not _has_raised(end):
        return _error(not_started)
    progress = progress_in(errors) + progress_in(output)
    return guarded(replace(found, harmless=progress), expected)


def _has_raised(end: TrialEnd) -> bool:
    """An exception of the program's own: it was started."""
    return any(not cause.wraps for cause in causes_in(end.stderr.tail))


def guarded(found: Classified, expected: Failure | None) -> Classified:
    """The outcome once it is known which failure is meant."""
    failure = found.failure
    if found.outcome is not Outcome.REPRODUCED or expected is None or failure is None:
        return found
    if found.is_named or same_failure(expected, failure):
        return found
    return replace(found, outcome=Outcome.OTHER, why=f"{ANOTHER_FAILURE}{failure.text}")


def checked_pattern(pattern: str) -> str:
    try:
        compiled = re.compile(pattern.encode())
    except re.error as wrong:
        raise UsageError(f"{pattern!r} is not a regular expression: {wrong}") from None
    if compiled.search(b""):
        raise UsageError(f"{pattern!r} matches empty output, so it would match every run")
    return pattern


def _left_over(end: TrialEnd) -> Classified:
    """The rules for every oracle, once the oracle itself has nothing to say."""
    if end.timed_out:
        return _error("ran out of time")
    if end.failed:
        return Classified(Outcome.OTHER, status_words(end), failure_of(end))
    return Classified(Outcome.CLEAN, "ended without the failure")


def _reproduced(end: TrialEnd, why: str, *, is_named: bool = False) -> Classified:
    return Classified(Outcome.REPRODUCED, why, failure_of(end), is_named=is_named)


def _error(why: str) -> Classified:
    return Classified(Outcome.ERROR, why)


def status_words(end: TrialEnd) -> str:
    """How it ended, for people: `exit 3`, `signal 9 (SIGKILL, out of memory)`."""
    notes = [end.ended.signal_name] if end.ended.signal_name else []
    if end.out_of_memory:
        notes.append("out of memory")
    if end.exit_code in CANNOT_EXECUTE:
        notes.append("what a shell says of a command that it cannot find or execute")
    status = f"exit {end.exit_code}" if end.signal is None else f"signal {end.signal}"
    return f"{status} ({', '.join(notes)})" if notes else status


def _hint(end: TrialEnd) -> str:
    details = (end.result or {}).get("failure_details") or [{}]
    first = details[0] if isinstance(details[0], dict) else {}
    return str(first.get("hint") or first.get("error") or "the workload reported a failure")[:200]


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except ValueError:
        return None
