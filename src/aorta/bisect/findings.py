"""What was found, as the document that scripts read."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, TypeGuard

from aorta.bisect.investigation import FinishedSearch, Investigation
from aorta.bisect.package import Package, moving
from aorta.core.axis import Purpose
from aorta.core.errors import Exit
from aorta.core.failure import failure_to_json, same_failure
from aorta.core.trial import Outcome
from aorta.engine.events import Reason, TrialRecord, failed_differently
from aorta.engine.question import Answer
from aorta.runtimes.git import Commit, web_address
from aorta.search.bisection import Bisection
from aorta.search.ends import EndsVerdict
from aorta.search.timeline import Change, Vector

_ANSWERS = {"found", "pair", "range"}
_NO_ANSWER = {"inconsistent", "did_not_reproduce", "never_good"}
_NOISY = 0.25

_ENDS = {
    EndsVerdict.BAD_DOES_NOT_FAIL: (
        "did_not_reproduce",
        "the bad end does not fail in any trial; check that good and bad are not swapped",
    ),
    EndsVerdict.BAD_UNTESTABLE: ("did_not_reproduce", "the bad end cannot be built or tested"),
    EndsVerdict.GOOD_FAILS_TOO: ("inconsistent", "the good end fails too"),
    EndsVerdict.GOOD_UNTESTABLE: ("inconsistent", "the good end cannot be built or tested"),
}


@dataclass(frozen=True)
class Findings:
    """The content of result.json."""

    status: str
    culprits: Sequence[Mapping[str, Any]] = ()
    confidence: float | None = None
    range: Sequence[Mapping[str, Any]] = ()
    partner: Mapping[str, Any] | None = None
    good: Mapping[str, str] = field(default_factory=dict)
    bad: Mapping[str, str] = field(default_factory=dict)
    containers: Mapping[str, str | None] = field(
        default_factory=lambda: {"last_good": None, "first_bad": None}
    )
    metric: Mapping[str, Any] | None = None  # the two levels of the number that decided
    rates: Mapping[str, float | None] = field(default_factory=lambda: {"good": None, "bad": None})
    seen: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # failures by side
    builds: int = 0
    tests: int = 0
    resumed_trials: int = 0
    skipped: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[str] = ()
    failure: Mapping[str, Any] | None = None
    failed_differently: Sequence[str] = ()  # how many trials did, and with which messages
    output_dir: str = ""
    reproduce: Mapping[str, str | None] = field(default_factory=lambda: {"good": None, "bad": None})
    exit_code: int = 0

    def document(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "exit_code"}


def findings_of(outcome: Investigation, answers: Sequence[Answer]) -> Findings:
    main, last = outcome.main, outcome.last
    status = _status(outcome)
    shown = last if last.interval and not main.alike else main
    timeline = shown.search.timeline
    good, bad = timeline.good_end, timeline.bad_end
    if shown.interval and not shown.alike:
        good, bad = shown.interval.good, shown.interval.bad
    candidates = last.interval if status not in _NO_ANSWER else None
    culprits = _culprits(outcome) if candidates else []
    return Findings(
        status=status,
        culprits=culprits,
        confidence=round(last.mass, 4) if candidates else None,
        range=_range_of(culprits) if len(culprits) > 1 else (),
        partner=_partner(outcome.partner),
        good=shown.versions(good),
        bad=shown.versions(bad),
        **good_and_bad_seen(shown.search),
        **counted(answers, outcome),
        skipped=list(skipped_states(main)),
        warnings=list(_warnings(outcome)),
        failure=failure_to_json(next((a.expected for a in answers if a.expected), None)),
        exit_code=exit_code(status, answers),
    )


def exit_code(status: str, answers: Sequence[Answer]) -> int:
    cut = next((a.ending for a in answers if a.ending.reason is not Reason.DONE), None)
    if cut is not None:
        return int(cut.exit_code)
    return int(Exit.NO_ANSWER if status in _NO_ANSWER else Exit.OK)


def _status(outcome: Investigation) -> str:
    main, last = outcome.main, outcome.last
    if main.answer.ending.reason is Reason.INFRASTRUCTURE:
        return "partial"
    if main.alike:
        return "inconsistent"
    if main.search.ends in _ENDS:
        return _ENDS[main.search.ends][0]
    candidates = last.interval
    if candidates is None or (not last.is_sure and not last.search.done):
        return "partial"
    (_, passes), (fails, _) = last.search.good_and_bad()
    if not fails or not passes:
        ever_failed = any(
            hits - (found.search.taken_on_trust.get(vector) is True)
            for found in outcome.searched
            for vector, (hits, _) in found.search.trials.items()
        )
        return "inconsistent" if fails or ever_failed else "did_not_reproduce"
    if last.single and len(_brought(*last.single)) == 1:
        return "found"
    together = len(candidates.changes) == len(candidates.packages) > 1
    return "pair" if together and last.is_sure else "range"


def without_contradictions(findings: Findings, records: Sequence[TrialRecord]) -> Findings:
    """The findings; those that contradict themselves or the trials become no answer."""
    wrong = list(_contradictions(findings, records))
    if not wrong:
        return findings
    return replace(
        findings,
        status="inconsistent",
        culprits=(),
        range=(),
        partner=None,
        confidence=None,
        warnings=(*findings.warnings, *wrong),
        exit_code=findings.exit_code or int(Exit.NO_ANSWER),
    )


def _contradictions(findings: Findings, records: Sequence[TrialRecord]) -> Iterator[str]:
    status, answered = findings.status, findings.status in _ANSWERS
    failed = sum(record.outcome is Outcome.REPRODUCED for record in records)
    if status == "did_not_reproduce" and failed:
        yield f"the failure appeared in {failed} trials, and still no end of the search shows it"
    if status in _NO_ANSWER and (findings.culprits or findings.confidence is not None):
        yield "there is no answer, and still candidates are named"
    if answered and not findings.culprits:
        yield "there is an answer, and no change is named"
    if answered and findings.seen:
        good, bad = findings.seen["good"], findings.seen["bad"]
        if not bad["failed"]:
            yield "no trial of the bad side failed"
        if good["failed"] >= good["of"]:
            yield "no trial of the good side passed"
    if answered and findings.good and findings.good == findings.bad:
        yield "the last good and the first bad state are the same"


def good_and_bad_seen(search: Bisection) -> dict[str, Any]:
    """What was seen of the two sides, not what was thought of them before."""
    good_and_bad = dict(zip(("good", "bad"), search.good_and_bad(), strict=True))
    return {
        "rates": {
            side: round(h / (h + m), 4) if h + m else None for side, (h, m) in good_and_bad.items()
        },
        "seen": {side: {"failed": h, "of": h + m} for side, (h, m) in good_and_bad.items()},
    }


# -- the changes


def _culprits(outcome: Investigation) -> list[dict[str, Any]]:
    """A merge is every commit that it brings."""
    found = outcome.last
    packages = moving(found.packages)
    return [
        entry
        for change in (found.interval.changes if found.interval else ())
        for entry in _candidates(packages[change.package], change)
    ]


def _candidates(package: Package, change: Change) -> Iterator[dict[str, Any]]:
    brought = _brought(package, change.rank)
    if len(brought) == 1 or package.repository is None:
        yield culprit(package, change)
        return
    for commit in package.repository.commits(brought):
        below = commit.parents[0] if commit.parents else package.versions[change.rank]
        about = {"good": below, "bad": commit.sha, **_about(package, commit)}
        yield {**culprit(package, change), **about}


def _brought(package: Package, rank: int) -> Sequence[str]:
    changes = package.changes
    return (package.versions[rank + 1],) if changes is None else changes[rank].brought


def culprit(package: Package, change: Change) -> dict[str, Any]:
    entry: dict[str, Any] = {"package": package.name}
    changes = package.changes
    if changes is None or package.repository is None:
        entry |= {"good": package.versions[change.rank], "bad": package.versions[change.rank + 1]}
        entry |= dict.fromkeys(("title", "author", "date", "url"))
        if package.times:
            entry["date"] = datetime.fromtimestamp(package.times[change.rank + 1], UTC).isoformat()
        return entry
    step = changes[change.rank]
    entry |= {"good": step.good, "bad": step.bad, **_about(package, step.commit)}
    entry["removed"] = step.removed
    return entry


def _about(package: Package, commit: Commit) -> dict[str, Any]:
    return {
        "title": commit.title,
        "author": commit.author,
        "date": commit.date,
        "url": web_address(package.spec.remote or package.remote_address, commit.sha),
        "commit": commit.sha,
    }


def _range_of(culprits: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    packages = dict.fromkeys(entry["package"] for entry in culprits)
    return [
        {
            "package": package,
            "commits": [c.get("commit") or c["bad"] for c in culprits if c["package"] == package],
        }
        for package in packages
    ]


def _has_partner(found: FinishedSearch | None) -> TypeGuard[FinishedSearch]:
    """Whether the culprit does no harm over the oldest of the other packages."""
    if found is None or found.fails_alone:
        return False
    return found.search.ends is EndsVerdict.DIFFER


def _partner(found: FinishedSearch | None) -> dict[str, Any] | None:
    """The one commit without which the culprit does no harm."""
    if not _has_partner(found) or found.single is None:
        return None
    package, rank = found.single
    entry = culprit(package, Change(0, rank))
    about = {key: entry[key] for key in ("title", "author", "date", "url")}
    commit = entry.get("commit") or entry["bad"]
    return {"package": package.name, "commit": commit, **about, "confidence": round(found.mass, 4)}


# -- what else there is to say


def skipped_states(main: FinishedSearch) -> Iterator[dict[str, Any]]:
    whys = {record.point.config_key: record.why for record in main.answer.records}
    whys |= main.undecided
    for vector in sorted(main.search.untestable):
        point = main.search.timeline.point(vector, Purpose.PROBE, 0)
        yield {"versions": main.versions(vector), "why": whys.get(point.config_key, "")}


def _warnings(outcome: Investigation) -> Iterator[str]:
    main, search = outcome.main, outcome.main.search
    if main.alike:
        yield main.alike
    if search.ends in _ENDS:
        untestable = search.ends in {EndsVerdict.BAD_UNTESTABLE, EndsVerdict.GOOD_UNTESTABLE}
        whys = [f": {record.why}" for record in main.answer.records if untestable]
        yield _ENDS[search.ends][1] + "".join(whys[-1:])
    elif search.ends is EndsVerdict.DIFFER:
        yield from _about_trust(outcome)
    about = _about_noise(outcome), _about_partner(outcome.partner)
    yield from (words for words in about if words)
    for broken, repaired in search.fixed_before:
        yield _about_repair(main, broken, repaired)


def _about_trust(outcome: Investigation) -> Iterator[str]:
    """What was taken as it was said: because it cannot be tested, or because that was asked for."""
    main, search = outcome.main, outcome.main.search
    tried = {search.timeline.vector(record.point) for record in main.answer.records}
    for vector in search.taken_on_trust.keys() & tried:
        side = "good" if vector == search.timeline.good_end else "bad"
        if not sum(search.trials[vector]) > 1:
            yield f"the {side} end cannot be built or tested: that it is {side} is taken as said"
    (_, passes), (fails, _) = outcome.last.search.good_and_bad()
    if outcome.last.interval and outcome.last.is_sure and not (passes and fails):
        yield "no trial shows one of the two sides of what is left"


def _about_repair(main: FinishedSearch, older: Vector, newer: Vector) -> str:
    broken, repaired = main.versions(older), main.versions(newer)
    moved = [name for name in broken if broken[name] != repaired[name]]
    words = ", ".join(f"{name} {broken[name][:12]}..{repaired[name][:12]}" for name in moved)
    return (
        "broken, repaired and broken again: the failure was already there and went away between "
        f"{words}; the answer is about the break after that"
    )


def _about_partner(found: FinishedSearch | None) -> str | None:
    if not _has_partner(found) or found.single:
        return None
    interval = found.interval
    return (
        "the culprit does no harm over the oldest of the other packages; which of "
        f"{len(interval.changes) if interval else 0} changes it needs is not known"
    )


def _about_noise(outcome: Investigation) -> str | None:
    """Simulated, the stated probability holds up to one failure in five trials of good states."""
    (failed, passed), _ = outcome.last.search.good_and_bad()
    if outcome.last.interval is None or failed < 2 or failed / (failed + passed) <= _NOISY:
        return None
    return (
        f"{failed} of {failed + passed} trials of the good side failed: that the stated "
        "probability holds was not seen for so noisy a test; ask for more (--confidence 0.99)"
    )


# -- counting


def counted(answers: Sequence[Answer], outcome: Investigation | None = None) -> dict[str, Any]:
    """What it took, every trial once. Without version searches, containers are the states."""
    every = (*outcome.searched, outcome.partner, *outcome.beside) if outcome else ()
    by_answer = {id(found.answer): found for found in every if found}
    states: set[object] = set()
    for answer in answers:
        found = by_answer.get(id(answer))
        for record in answer.records:
            states.add(found.version_set(record.point) if found else record.point.config_key)
    return {
        "builds": len(states),
        "tests": sum(len(answer.records) for answer in answers),
        "resumed_trials": sum(answer.ending.resumed_trials for answer in answers),
    }


def differently(records: Sequence[TrialRecord], *, are_left_out: bool) -> list[str]:
    """How many trials failed unlike the first that failed, and what those said."""
    first = None
    judged: list[TrialRecord] = []
    for record in records:
        if record.outcome is Outcome.REPRODUCED and record.failure:
            first = first or record.failure.in_any_version()
            if not same_failure(first, record.failure):
                judged.append(replace(record, outcome=Outcome.OTHER))
                continue
        judged.append(record)
    lines = failed_differently(judged)
    advice = [] if are_left_out else ["  --same-failure leaves such states out"]
    return [*lines, *advice] if lines else []
