"""Does it fail, how, and how often? The first failure that is seen says what counts as the failure
from then on.
"""

import json
import statistics
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aorta.attribution import (
    Action,
    Attribution,
    CycleState,
    Evidence,
    FailureClass,
    LogSource,
    RankEnd,
    attribute,
)
from aorta.core.durations import show_duration
from aorta.core.errors import InfrastructureError
from aorta.core.failure import Failure, failure_of
from aorta.core.raised import Raised
from aorta.core.stats import rate_to_json
from aorta.core.trial import Outcome, TrialEnd
from aorta.engine.events import Event, Reason, RunStarted
from aorta.engine.judge import NOTHING, HitCount
from aorta.engine.rundir import write_atomically
from aorta.reduce.draft import oracle_from
from aorta.reduce.files import watch_opened
from aorta.reduce.launcher import is_launched
from aorta.run.request import RunReport
from aorta.solve.state import Stage, StageResult, State, Status
from aorta.solve.subject import Subject, run_command, subject_of
from aorta.solve.symptoms import (
    NOT_A_NUMBER,
    STACKS_ON_ABORT,
    end_after,
    stands_at,
    symptom_of,
)

LOOK = "reproduce-look"  # trials before it is known what counts as the failure
MOST_LOOKS = 20
_PATIENCE = 0.75  # of the budget, for a first run
_OPENED = "opened.json"
_TAIL = 32_768
_SURE_OF_A_MISTAKE = 0.7
_A_GUESS = 0.5  # below this the words of a failure say less than the type of its exception
_MISTAKES = frozenset(
    {
        FailureClass.IMPORT_ERROR,
        FailureClass.SYNTAX_ERROR,
        FailureClass.BAD_ARGUMENTS,
        FailureClass.BAD_CONFIG,
    }
)
"""Whoever started it mends these in a minute: nothing is worth a search."""

_PERHAPS_MISTAKES = frozenset(
    {FailureClass.MISSING_FILE, FailureClass.PERMISSION_DENIED, FailureClass.DISK_FULL}
)
"""So are these, unless they come and go: a second run tells."""


class Reproduce(Stage):
    name = "reproduce"

    def __call__(self, state: State) -> StageResult:
        subject = subject_of(state.request)
        if state.request.oracle is not None:
            state.views.say(f"looked for: {_sought(state.request.oracle)}")
        if "reduce" in subject.known and subject.oracle is not None:
            return _from_reduction(subject.known["reduce"], subject)
        try:
            seen = _first_failure(state, subject)
        except _StillRunning as wrong:
            return StageResult(self.name, "budget", str(wrong))
        if seen is None:
            return _did_not_fail(state)
        failure = _failure(seen.end, subject)
        failure |= {"oracle": dict(seen.oracle), "said": seen.said, "opened": _opened(state)}
        if not state.request.is_search_wanted:
            failure["mistake"], again = _is_mistake(state, subject, seen)
            seen = replace(seen, hits=seen.hits + again)
        else:
            failure["mistake"] = False
        if failure["mistake"]:
            rate = rate_to_json(state.shared.counts[LOOK], state.shared.counts[LOOK])
            answer = {**failure, "rate": rate, "signature": failure["summary"]}
            return StageResult(
                self.name, "done", "a mistake that a search cannot mend", answer=answer
            )
        report = _measured(state, subject, seen)
        unsure = failure["confidence"] < _SURE_OF_A_MISTAKE
        if report.tally.clean and unsure and failure["class"] in _MISTAKES:
            # A mistake fails every time: what comes and goes is none.
            failure = _by_its_exception(failure, failure_of(seen.end))
        return _result(state, report, failure, seen)


@dataclass(frozen=True)
class _Seen:
    """How it ended when it failed first, and what to look for from then on."""

    said: str
    oracle: Mapping[str, Any]
    end: TrialEnd
    hits: HitCount  # of all looks at it

    @property
    def at_once(self) -> bool:
        """No run before it ended well."""
        return self.hits.trials == 1


def _is_mistake(state: State, subject: Subject, seen: _Seen) -> tuple[bool, HitCount]:
    """Whether it failed in a way that its user can mend at once, and not by chance; and what one
    more look at it saw, if that took one.
    """
    failure = _failure(seen.end, subject)
    if not failure["mistake"] or not seen.at_once:
        return False, NOTHING
    if failure["class"] not in _PERHAPS_MISTAKES:
        return True, NOTHING
    report = _look(state, subject, "again", 1)
    ends = _failing_ends(state, report, symptoms=False)
    same = [end for end in ends if _failure(end, subject)["class"] == failure["class"]]
    return bool(same), HitCount(len(same), report.tally.evidence)


def _sought(oracle: Mapping[str, Any]) -> str:
    """What counts as the failure, where the command line says so.

    >>> _sought({"kind": "regex", "pattern": "nan", "stream": "both"})
    "'nan' in what it writes, whatever its exit code"
    """
    if oracle["kind"] != "regex":
        return ", ".join(f"{key} {value}" for key, value in oracle.items() if value)
    exits = "in a run that fails" if oracle.get("with_failure") else "whatever its exit code"
    return f"{oracle['pattern']!r} in what it writes, {exits}"


def _from_reduction(run_dir: Path, subject: Subject) -> StageResult:
    """What a reduction that is gone on from has measured already."""
    result = json.loads((run_dir / "result.json").read_bytes())
    first = result["original"]
    logs = sorted(path for path in (run_dir / "logs").rglob("*") if path.is_file())
    found = attribute(Evidence(logs=tuple(LogSource(path, rank=0) for path in logs))).finding
    kind, confidence = found.failure_class, found.confidence
    said = "".join(path.read_text("utf-8", "replace")[-_TAIL:] for path in logs)
    if kind is FailureClass.UNKNOWN and NOT_A_NUMBER.search(said):
        kind, confidence = FailureClass.NAN, 0.6
    answer = {
        "class": kind.value,
        "confidence": round(confidence, 3),
        "summary": found.summary,
        "advice": [],
        "mistake": False,
        "oracle": dict(subject.oracle or {}),
        "rate": rate_to_json(first["reproduced"], first["of"]),
        "signature": result["signature"],
        "failure": result.get("failure"),
        "median_sec": first["median_sec"],
    }
    return StageResult("reproduce", "done", "", str(run_dir), answer=answer)


def _first_failure(state: State, subject: Subject) -> _Seen | None:
    """None where it never failed."""
    limit = min(MOST_LOOKS, state.request.max_trials or MOST_LOOKS)
    before = NOTHING
    for name, most in (("first", 1), ("more", limit - 1)):
        if most < 1:
            return None
        report = _look(state, subject, name, most)
        ends = _failing_ends(state, report, symptoms=subject.oracle is None)
        before += HitCount(len(ends), max(len(ends), report.tally.evidence))
        if ends:
            return _Seen(*_drafted(subject, ends[0]), ends[0], before)
    return None


def _drafted(subject: Subject, end: TrialEnd) -> tuple[str, Mapping[str, Any]]:
    """What counts as the failure: what was said beforehand, else what this one shows."""
    if subject.oracle is not None:
        return "showed the failure", subject.oracle
    shown = None if end.failed or end.timed_out else symptom_of(end)
    return oracle_from(end) if shown is None else (shown.said, shown.oracle)


def _opened(state: State, more: Collection[str] = ()) -> list[str]:
    """Which files of its working directory it was seen to open, with these, which are kept; none
    where it ran on another machine.
    """
    place = state.run.private / _OPENED
    known = json.loads(place.read_bytes()) if place.is_file() else []
    names = sorted({*known, *(name for name in more if state.path.name not in Path(name).parts)})
    if len(names) > len(known):
        write_atomically(place, json.dumps(names))
    return names


def _failing_ends(state: State, report: RunReport, *, symptoms: bool) -> list[TrialEnd]:
    """Of the trials that failed, timed out, or exited well with a symptom."""
    found: list[TrialEnd] = []
    for record in report.records:
        end = state.shared.end_in(report.run_dir / record.path)
        if end is None:
            continue
        ails = symptoms and symptom_of(end) is not None
        if record.outcome is Outcome.REPRODUCED or end.timed_out or ails:
            found.append(end)
    return found


def _look(state: State, subject: Subject, name: str, most: int) -> RunReport:
    """Trials of the original command until the first that fails, kept out of sight."""
    opened: set[str] = set()
    left = state.seconds_left(LOOK)
    limit = _PATIENCE * left if left is not None and state.request.timeout is None else None
    with ExitStack() as watching:
        ended = watching.enter_context(end_after(limit))

        def watch(event: Event) -> None:
            """From here on: what was opened before, we opened ourselves."""
            nonlocal opened
            if isinstance(event, RunStarted):
                opened = watching.enter_context(watch_opened(subject.cwd))

        report = run_command(
            state,
            replace(
                subject, env={**subject.env, **STACKS_ON_ABORT}, oracle=_to_the_end(subject.oracle)
            ),
            stage="reproduce",
            counted_as=LOOK,
            folder=state.run.private / LOOK / name,
            trials=most,
            retries=0,
            listeners=[watch],
        )
    _opened(state, opened)
    if ended.is_set() and limit is not None:
        raise _StillRunning(_still_running(report, limit))
    _check_possible(state, report)
    return report


class _StillRunning(Exception):  # noqa: N818 - nothing went wrong
    """The command did not come to its end before the budget did."""


def _still_running(report: RunReport, seconds: float) -> str:
    logs = sorted((report.run_dir / "trials").rglob("stderr.log"))
    written = logs[-1].read_text("utf-8", "replace")[-_TAIL:] if logs else ""
    where = stands_at(written)
    return (
        f"it still runs after {show_duration(seconds)}{f', at {where}' if where else ''}: "
        "give it longer with --budget, or, if it hangs, say how long a run may take with --timeout"
    )


def _to_the_end(oracle: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """A run that is ended where the pattern shows does not say any more what it died of."""
    if oracle is None or oracle.get("kind") != "regex":
        return oracle
    return {**oracle, "stop_on_match": False}


def _check_possible(state: State, report: RunReport) -> None:
    """Nothing can be run here, perhaps; a spent budget leaves what is known."""
    if report.ending.reason is Reason.INFRASTRUCTURE and not state.is_spent:
        raise InfrastructureError(report.ending.detail)


def _failure(end: TrialEnd, subject: Subject) -> dict[str, Any]:
    """The class of the failure, from its logs or from what a launch already found."""
    if subject.finding is not None:
        known = subject.finding.get("finding") or {}
        return {
            "class": known.get("class", "unknown"),
            "confidence": known.get("confidence", 0.0),
            "summary": known.get("summary", ""),
            "advice": [],
            "mistake": False,
        }
    found = _attributed(end, subject)
    finding = found.finding
    kind, confidence, summary = finding.failure_class, finding.confidence, finding.summary
    if finding.state is not CycleState.FAILED:  # the oracle says that it failed, its exit does not
        summary = f"{kind.value}: it exited with code 0"
    shown, failed, own = symptom_of(end), end.failed or end.timed_out, failure_of(end)
    if end.out_of_memory:
        kind, confidence = FailureClass.HOST_OOM, 0.99
        summary = "killed by the kernel for want of memory"
    elif shown is not None and not failed:
        kind, confidence, summary = shown.kind, shown.confidence, shown.summary
    elif shown is not None and kind is FailureClass.UNKNOWN and shown.kind is FailureClass.NAN:
        kind, confidence, summary = shown.kind, max(0.6, confidence), shown.summary
    elif kind is FailureClass.UNKNOWN and own.headline:
        summary = own.text
    elif confidence < _A_GUESS and _wraps(finding.failure) and own.causes and not _wraps(own):
        summary = f"{kind.value}: {_last_words(end, own.causes[0].first)}"
    if not is_launched(subject.words):
        summary = summary.removeprefix("rank 0: ")
    advice = dict.fromkeys(a.text for a in (*finding.advice, *found.decision.advice))
    said = {
        "class": kind.value,
        "confidence": round(confidence, 3),
        "summary": summary,
        "advice": list(advice),
        "mistake": kind in _MISTAKES | _PERHAPS_MISTAKES
        and confidence >= _SURE_OF_A_MISTAKE
        and found.decision.action is Action.STOP,
    }
    return _by_its_exception(said, own) if confidence < _A_GUESS else said


def _wraps(failure: Failure | None) -> bool:
    """Whether it only says that something else failed: `CalledProcessError` and the like."""
    return failure is not None and bool(failure.causes) and all(c.wraps for c in failure.causes)


def _last_words(end: TrialEnd, raised: Raised) -> str:
    """What the exception said, as it was written; else its template."""
    begun = f"{raised.type}:"
    lines = f"{end.stdout.tail}\n{end.stderr.tail}".splitlines()
    said = [line[line.index(begun) :] for line in lines if begun in line]
    return said[-1].strip() if said else raised.text


def _by_its_exception(said: dict[str, Any], failure: Failure) -> dict[str, Any]:
    """The class by the exception's type, where its words allow no more than a guess; without one,
    the words of the failure, without what varies in them.
    """
    guessed, causes = said["class"], [cause for cause in failure.causes if not cause.wraps]
    if not causes:
        words = failure.headline
        return {**said, "summary": f"{guessed}: {words}"} if words else said
    is_assertion = causes[0].first.type.endswith("AssertionError")
    kind = FailureClass.ASSERTION if is_assertion else FailureClass.USER_EXCEPTION
    summary = str(said["summary"]).replace(f"{guessed}: ", f"{kind.value}: ", 1)
    return {**said, "class": kind.value, "summary": summary, "advice": []}


def _attributed(end: TrialEnd, subject: Subject) -> Attribution:
    """From its two streams; a launcher's are of many ranks, and its exit is its own."""
    streams = [s.path for s in (end.stderr, end.stdout) if s.path.is_file() and s.bytes_seen]
    many = is_launched(subject.words)
    hung = end.timed_out or end.hung
    ended = RankEnd(
        rank=0,
        exit_code=None if hung else end.exit_code,
        signal=None if hung else end.signal,
        hung=hung,
    )
    logs = tuple(LogSource(path, rank=None if many else 0) for path in streams)
    return attribute(Evidence(logs=logs, failures=(ended,) if hung or not many else ()))


def _measured(state: State, subject: Subject, seen: _Seen) -> RunReport:
    """Trials until the failure rate is known; what earlier looks saw counts."""
    return run_command(
        state,
        replace(subject, oracle=seen.oracle),
        stage="reproduce",
        counted_as="reproduce",
        folder=state.folder("reproduce"),
        trials=None,
        seen=seen.hits,
    )


def _result(state: State, report: RunReport, failure: dict[str, Any], seen: _Seen) -> StageResult:
    tally = report.tally
    every = seen.hits + HitCount.of(tally)
    _check_possible(state, report)
    seconds = [r.duration for r in report.records if r.outcome is not Outcome.ERROR]
    document = report.to_json()
    answer = {
        **failure,
        "rate": rate_to_json(every.hits, every.trials),
        "looks": seen.hits.trials,
        "signature": document["signature"] or failure["summary"],
        "failure": document["failure"] or failure_of(seen.end).to_json(),
        "median_sec": round(statistics.median(seconds), 4) if seconds else None,
    }
    spent = report.ending.reason is not Reason.DONE
    status: Status = "done"
    why = ""
    if every.hits <= 1 and every.trials >= MOST_LOOKS:
        why = (
            f"it failed {every.hits} of {every.trials} times: it fails in less than "
            f"{100 * every.high(0.05):.0f} % of runs (95 % sure), too seldom to look for its cause"
        )
        status = "no_answer"
    elif not tally.reproduced and tally.evidence:
        status, why = "no_answer", "it did not fail again"
        if spent:
            status, why = "budget", report.ending.detail
    return StageResult("reproduce", status, why, str(report.run_dir), answer=answer)


def _did_not_fail(state: State) -> StageResult:
    tried = state.shared.counts.get(LOOK, 0)
    high = 100 * HitCount(0, tried).high(0.05)
    why = (
        f"it did not fail in {tried} trials: it fails in less than {high:.0f} % of runs (95 % sure)"
        ", or not here"
    )
    return StageResult("reproduce", "no_answer", why, answer={"rate": rate_to_json(0, tried)})
