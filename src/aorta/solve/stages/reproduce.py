"""Does it fail, how, and how often? The first failure says what counts as the failure."""

import json
import re
import shutil
import statistics
from collections.abc import Mapping
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
from aorta.core.failure import failure_of
from aorta.core.oracle import MetricOracle, early_and_late
from aorta.core.stats import rate_to_json
from aorta.core.trial import Outcome, StreamEnd, TrialEnd
from aorta.engine.events import Reason
from aorta.engine.judge import NOTHING, HitCount
from aorta.engine.rundir import write_atomically
from aorta.executors.process_tree import watch_opened
from aorta.reduce.draft import oracle_from
from aorta.reduce.launcher import is_launched
from aorta.run.request import RunReport
from aorta.solve.request import WANTED
from aorta.solve.state import Stage, StageResult, State, Status
from aorta.solve.subject import Subject, environment_of, run_command, subject_of

LOOK = "reproduce-look"  # trials before it is known what counts as the failure
MOST_LOOKS = 20
_PATIENCE = 0.75  # of the budget, for a first run
_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<name>\S+)', re.MULTILINE)
_NOT_A_NUMBER = r"(?i)(?<![\w.])(?:nan|[-+]?inf)(?![\w.])"
_NUMBER = r"([0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)"
# Times that rise and rates that fall; an exact doubling is seen though it is noisy. The speeds of
# progress bars are not read: each kind of work has a bar of its own.
_GOT_SLOW = {
    rf"(?i)(?:step|iter(?:ation)?|batch)[_ -]?time\b[^\w\n.-]{{0,3}}{_NUMBER}": {"above": 1.8},
    rf"(?i)\bthroughput\b[^\w\n.-]{{0,3}}{_NUMBER}": {"below": 0.5556},
    rf"(?i)(?<![\w.]){_NUMBER} ?(?:steps|samples|tokens|images|examples)/s(?:ec)?\b": {
        "below": 0.5556
    },
}
_MOST_READ = 1 << 22  # bytes of a stream in which steps are looked for
_SURE_OF_A_MISTAKE = 0.7
_A_GUESS = 0.5  # below this the words of a failure say less than the type of its exception
# Whoever started it mends these in a minute: nothing is worth a search.
MISTAKES = frozenset({"import_error", "syntax_error", "bad_arguments", "bad_config"})
# So are these, unless they come and go: further runs tell.
_PERHAPS_MISTAKES = frozenset({"missing_file", "permission_denied", "disk_full"})


class Reproduce(Stage):
    name = "reproduce"

    def __call__(self, state: State) -> StageResult:
        request, subject = state.request, subject_of(state.request)
        seen = _first_failure(state, subject)
        if isinstance(seen, StageResult):
            return seen
        failure = {**_failure(seen.end, subject), "oracle": dict(seen.oracle)}
        wanted = request.good is not None or request.stages != WANTED or subject.spec is not None
        if wanted or seen.hits.trials > 1:
            failure["mistake"] = False  # somebody knows better, or it came and went
        if failure["mistake"] and failure["class"] in MISTAKES:
            return _user_error(failure, seen.hits)
        # Trials until the failure rate is known; what earlier looks saw counts.
        report = run_command(
            state,
            replace(subject, oracle=seen.oracle),
            stage=self.name,
            counted_as=self.name,
            folder=state.folder(self.name),
            trials=None,
            seen=seen.hits,
        )
        if failure["mistake"] and report.tally.reproduced == report.tally.evidence > 0:
            return _user_error(failure, seen.hits + HitCount.of(report.tally))
        failure["mistake"] = False
        return _result(state, report, failure, seen)


@dataclass(frozen=True)
class _Seen:
    """How it ended when it failed first, and what to look for from then on."""

    oracle: Mapping[str, Any]
    end: TrialEnd
    hits: HitCount  # of all looks at it


def _user_error(failure: dict[str, Any], seen: HitCount) -> StageResult:
    """It failed in a way that its user can mend at once, and not by chance."""
    rate = rate_to_json(seen.hits, seen.trials)
    answer = {**failure, "rate": rate, "signature": failure["summary"]}
    return StageResult("reproduce", "done", "a mistake that a search cannot mend", answer=answer)


def _first_failure(state: State, subject: Subject) -> _Seen | StageResult:
    """What it looks like; or the result of this stage, where it never failed."""
    before = NOTHING
    for name, most in (("first", 1), ("more", MOST_LOOKS - 1)):
        patience = _patience(state)
        report = _look(state, subject, name, most, patience)
        ends = _failing_ends(state, report, by_numbers=subject.oracle is None)
        before += HitCount(len(ends), max(len(ends), report.tally.evidence))
        if ends and patience is not None and ends[0].duration >= patience:
            shutil.rmtree(state.run.private / LOOK)  # with a longer budget it is looked at again
            return StageResult("reproduce", "budget", _still_runs(ends[0]))
        if ends:
            return _Seen(_drafted(subject, ends[0]), ends[0], before)
    why = f"{_seldom(before)}, or not here"
    status: Status = "budget" if before.trials < MOST_LOOKS and state.is_spent else "no_answer"
    rate = rate_to_json(0, before.trials)
    return StageResult("reproduce", status, why, answer={"rate": rate})


def _drafted(subject: Subject, end: TrialEnd) -> Mapping[str, Any]:
    """What counts as the failure: what was said beforehand, else what this one shows."""
    if subject.oracle is not None:
        return subject.oracle
    stream, _ = not_a_number_in(end)
    if stream and not (end.failed or end.timed_out):
        return {"kind": "regex", "pattern": _NOT_A_NUMBER, "stream": stream}
    return slowness_in(end)[0] or oracle_from(end)[1]


def not_a_number_in(end: TrialEnd) -> tuple[str, str]:
    """The stream and the line in which a number is none; empty where all are some."""
    for name, stream in (("stdout", end.stdout), ("stderr", end.stderr)):
        for line in stream.tail.splitlines():
            if re.search(_NOT_A_NUMBER, line):
                return name, line.strip()
    return "", ""


def slowness_in(end: TrialEnd) -> tuple[dict[str, Any], str]:
    """Of a run that ends well and got slow on the way: the oracle that holds late steps against
    early ones, in whatever it shrinks to, and the speeds in words; else empty.
    """
    streams = {} if end.failed or end.timed_out else {"stdout": end.stdout, "stderr": end.stderr}
    for name, stream in streams.items():
        text = _beginning_and_end(stream)
        for pattern, limit in _GOT_SLOW.items():
            fixed = {"kind": "metric", "pattern": pattern, "stream": name, "relative": True}
            oracle = fixed | limit
            speeds = early_and_late(re.findall(pattern, text), rises="above" in limit)
            if speeds and MetricOracle.model_validate(oracle).is_bad(speeds[1] / speeds[0]):
                return oracle, f"it got slower: {speeds[0]:g} at first, {speeds[1]:g} at its end"
    return {}, ""


def _beginning_and_end(stream: StreamEnd) -> str:
    """The tail alone holds no early step."""
    if not stream.path.is_file():
        return stream.tail
    with stream.path.open("rb") as file:
        begun = file.read(_MOST_READ).decode("utf-8", "replace")
    return begun if stream.bytes_seen <= _MOST_READ else f"{begun}\n{stream.tail}"


def _failing_ends(state: State, report: RunReport, *, by_numbers: bool) -> list[TrialEnd]:
    """Of the trials that failed or timed out; `by_numbers`: or whose numbers show a failure."""
    ends = [(r.outcome, state.shared.end_in(report.run_dir / r.path)) for r in report.records]
    return [
        end
        for outcome, end in ends
        if end is not None
        and (
            outcome is Outcome.REPRODUCED
            or end.timed_out
            or (by_numbers and any((*not_a_number_in(end), *slowness_in(end))))
        )
    ]


def opened_names(state: State) -> Path:
    """Lists the files of its working directory that the command was seen to open."""
    return state.run.private / "opened.json"


def _patience(state: State) -> float | None:
    """Seconds that a run may take where a budget is all that limits it; the same when resumed."""
    place = state.run.private / LOOK / "patience.json"
    if not place.is_file():
        left, isolated = state.seconds_left(LOOK), environment_of(state.request).isolated
        is_free = left is None or isolated or state.request.timeout is not None
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(place, json.dumps(None if is_free else _PATIENCE * (left or 0.0)))
    seconds: float | None = json.loads(place.read_text())
    return seconds


def _look(
    state: State, subject: Subject, name: str, most: int, patience: float | None
) -> RunReport:
    """Trials of the original until one fails; a hang is aborted, so that it writes its stacks."""
    if patience is not None:
        is_text = isinstance(subject.command, str)
        words = ("bash", "-c", subject.text) if is_text else subject.words
        aborting = ("timeout", "-s", "ABRT", "-k", "5", f"{patience:.1f}", *words)
        stacks = {**subject.env, "PYTHONFAULTHANDLER": "1"}
        subject = replace(subject, command=aborting, env=stacks)
    oracle = subject.oracle
    if oracle is not None and oracle.get("kind") == "regex":
        # A run that is ended where the pattern shows does not say any more what it died of.
        oracle = {**oracle, "stop_on_match": False}
    with watch_opened(subject.cwd) as opened:
        report = run_command(
            state,
            replace(subject, oracle=oracle),
            stage="reproduce",
            counted_as=LOOK,
            folder=state.run.private / LOOK / name,
            trials=most,
            retries=0,
        )
    if not (place := opened_names(state)).is_file():
        names = sorted(name for name in opened if state.path.name not in Path(name).parts)
        write_atomically(place, json.dumps(names))
    _check_possible(state, report)
    return report


def _still_runs(end: TrialEnd) -> str:
    """With the innermost frames of the first stack, where a Python wrote its own."""
    frames = list(_FRAME.finditer(end.stderr.tail))
    own = [found for found in frames if "/lib/python" not in found["file"]] or frames
    where = ", ".join(f"{Path(f['file']).name}:{f['line']} {f['name']}" for f in own[:3])
    return (
        f"it still runs after {show_duration(end.duration)}{f', at {where}' if where else ''}: "
        "give it longer with --budget, or, if it hangs, say how long a run may take with --timeout"
    )


def _check_possible(state: State, report: RunReport) -> None:
    """Nothing can be run here, perhaps; a spent budget leaves what is known."""
    if report.ending.reason is Reason.INFRASTRUCTURE and not state.is_spent:
        raise InfrastructureError(report.ending.detail)


def _failure(end: TrialEnd, subject: Subject) -> dict[str, Any]:
    """The class of the failure and what it said, from its logs and how it ended."""
    found = _attributed(end, subject)
    finding, (_, line), (_, slowness) = found.finding, not_a_number_in(end), slowness_in(end)
    kind, confidence, summary = finding.failure_class, finding.confidence, finding.summary
    advice = [a.text for a in (*finding.advice, *found.decision.advice)]
    if finding.state is not CycleState.FAILED:  # the oracle says that it failed, its exit does not
        summary = f"{kind.value}: it exited with code 0"
    if end.out_of_memory:
        kind, confidence = FailureClass.HOST_OOM, 0.99
        summary = "killed by the kernel for want of memory"
    elif line and (kind is FailureClass.UNKNOWN or not (end.failed or end.timed_out)):
        kind, confidence = FailureClass.NAN, 0.6 if end.failed else 0.9
        summary = f"a number that is none: {line[:160]}"
    elif slowness:
        kind, confidence, summary = FailureClass.UNKNOWN, 0.0, slowness
    elif confidence < _A_GUESS:
        kind, summary = _by_its_exception(kind, summary, end)
        advice = []
    if not is_launched(subject.words):
        summary = summary.removeprefix("rank 0: ")
    return {
        "class": kind.value,
        "confidence": round(confidence, 3),
        "summary": summary,
        "advice": list(dict.fromkeys(advice)),
        "mistake": kind in MISTAKES | _PERHAPS_MISTAKES
        and confidence >= _SURE_OF_A_MISTAKE
        and found.decision.action is Action.STOP,
    }


def _by_its_exception(kind: FailureClass, summary: str, end: TrialEnd) -> tuple[FailureClass, str]:
    """By its exception, where the summary is only a guess; without one, by its words."""
    failure = failure_of(end)
    inner = [cause.first for cause in failure.causes if not cause.wraps]
    if not inner:
        return kind, f"{kind.value}: {failure.headline}" if failure.headline else summary
    raised = inner[0]
    is_assertion = raised.type.endswith("AssertionError")
    kind = FailureClass.ASSERTION if is_assertion else FailureClass.USER_EXCEPTION
    lines = f"{end.stdout.tail}\n{end.stderr.tail}".splitlines()
    said = [line[line.index(raised.type) :] for line in lines if f"{raised.type}:" in line]
    return kind, f"{kind.value}: {said[-1].strip() if said else raised.text}"


def _attributed(end: TrialEnd, subject: Subject) -> Attribution:
    """From its two streams; a launcher's are of many ranks, and its exit is its own."""
    streams = [s.path for s in (end.stderr, end.stdout) if s.path.is_file() and s.bytes_seen]
    many = is_launched(subject.words)
    hung = end.timed_out or end.hung
    ended = RankEnd(0, hung=True) if hung else RankEnd(0, end.exit_code, end.signal)
    logs = tuple(LogSource(path, rank=None if many else 0) for path in streams)
    return attribute(Evidence(logs=logs, failures=(ended,) if hung or not many else ()))


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
    status: Status = "done"
    why = ""
    if every.hits <= 1 and every.trials >= MOST_LOOKS:
        status, why = "no_answer", f"{_seldom(every)}, too seldom to look for its cause"
    elif not tally.reproduced and tally.evidence:
        status, why = "no_answer", "it did not fail again"
        if report.ending.reason is not Reason.DONE:
            status, why = "budget", report.ending.detail
    return StageResult("reproduce", status, why, str(report.run_dir), answer=answer)


def _seldom(seen: HitCount) -> str:
    return (
        f"it failed {seen.hits} of {seen.trials} times: it fails in less than "
        f"{100 * seen.high(0.05):.0f} % of runs (95 % sure)"
    )
