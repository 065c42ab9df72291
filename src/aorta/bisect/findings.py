"""What was found, as the document that scripts read: statuses, culprits, versions, rates, counts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aorta.bisect.git import web_address
from aorta.bisect.investigation import Found, Outcome
from aorta.bisect.metric import Metric
from aorta.bisect.package import Package, moving
from aorta.core.exits import Exit
from aorta.core.point import Purpose
from aorta.engine.events import Reason
from aorta.engine.question import Answer
from aorta.search.ends import EndsVerdict
from aorta.search.interval import Interval
from aorta.search.timeline import Change

_NO_ANSWER = {"inconsistent", "did_not_reproduce", "never_good"}

_ENDS = {
    EndsVerdict.BAD_DOES_NOT_FAIL: (
        "did_not_reproduce",
        "the bad end does not fail, however often it is tried; check that good and bad are not swapped",
    ),
    EndsVerdict.BAD_UNTESTABLE: ("did_not_reproduce", "the bad end cannot be built or tested"),
    EndsVerdict.GOOD_FAILS_TOO: ("inconsistent", "the good end fails like the bad one"),
    EndsVerdict.GOOD_UNTESTABLE: (
        "inconsistent",
        "the good end cannot be built or tested, or fails in another way",
    ),
}


@dataclass
class Findings:
    """The content of result.json; `details` holds what only the report shows."""

    status: str
    culprits: list[dict[str, Any]] = field(default_factory=list)
    confidence: float | None = None
    range: list[dict[str, Any]] = field(default_factory=list)
    partner: dict[str, Any] | None = None
    good: dict[str, str] = field(default_factory=dict)
    bad: dict[str, str] = field(default_factory=dict)
    containers: dict[str, str | None] = field(
        default_factory=lambda: {"last_good": None, "first_bad": None}
    )
    metric: dict[str, Any] | None = None  # the two levels of the number that decided
    rates: dict[str, float | None] = field(default_factory=lambda: {"good": None, "bad": None})
    builds: int = 0
    tests: int = 0
    cached: int = 0
    checks: dict[str, int] = field(default_factory=lambda: {"builds": 0, "tests": 0})
    skipped: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    output_dir: str = ""
    reproduce: dict[str, str] = field(default_factory=dict)
    resumed_trials: int = 0
    differences: list[dict[str, Any]] = field(default_factory=list)  # of two environments
    exit_code: int = 0

    def document(self) -> dict[str, Any]:
        content = dict(vars(self))
        del content["exit_code"]
        return content


def findings_of(outcome: Outcome, answers: Sequence[Answer]) -> Findings:
    main = outcome.main
    findings = Findings(status=_status(outcome), warnings=list(outcome.warnings))
    _describe_ends(findings, main)
    shown = outcome.inner or main
    if (interval := shown.interval) and not main.alike:
        _describe_interval(findings, shown, interval, outcome.merge)
    _describe_partner(findings, outcome)
    _describe_skipped(findings, main)
    if words := _about_paths(shown):
        findings.warnings.append(words)
    for older in main.search.fixed_before:
        findings.warnings.append(_about_repair(main, older))
    count(findings, outcome, answers)
    findings.exit_code = exit_code(findings.status, answers)
    return findings


def levels_found(metric: Metric) -> dict[str, Any] | None:
    levels = metric.levels
    if levels is None:
        return None
    good, bad = levels.centres
    return {
        "name": metric.oracle.key or metric.oracle.pattern,
        "good": {"mean": good, "values": len(levels.good)},
        "bad": {"mean": bad, "values": len(levels.bad)},
        "noise": levels.spread,
    }


def exit_code(status: str, answers: Sequence[Answer]) -> int:
    cut = next((a.ending for a in answers if a.ending.reason is not Reason.DONE), None)
    if cut is not None:
        return int(cut.exit_code)
    return int(Exit.NO_ANSWER if status in _NO_ANSWER else Exit.OK)


def _status(outcome: Outcome) -> str:
    main = outcome.main
    ends = main.search.ends
    if main.alike:
        return "inconsistent"
    if ends in _ENDS:
        return _ENDS[ends][0]
    shown = outcome.inner or main
    interval = shown.interval
    if interval is None or (not shown.is_sure and not main.search.done):
        return "partial"
    if shown.single:
        return "found"
    together = len(interval.changes) == len(interval.packages) > 1
    return "pair" if together and shown.is_sure else "range"


def _describe_ends(findings: Findings, main: Found) -> None:
    search, ends = main.search, main.search.ends
    findings.good = main.versions(search.timeline.state(0))
    findings.bad = main.versions(search.timeline.state(search.timeline.changes))
    if main.alike:
        findings.warnings.append(main.alike)
    if ends in _ENDS:
        findings.warnings.append(_ENDS[ends][1] + _last_words(main, ends))
    if ends is EndsVerdict.DIFFER:
        good, bad = search.rates
        findings.rates = {"good": round(good, 4), "bad": round(bad, 4)}


def _last_words(main: Found, ends: EndsVerdict) -> str:
    if ends not in (EndsVerdict.BAD_UNTESTABLE, EndsVerdict.GOOD_UNTESTABLE):
        return ""
    whys = [record.why for record in main.answer.records]
    return f": {whys[-1]}" if whys else ""


def _describe_interval(
    findings: Findings, found: Found, interval: Interval, merge: str | None
) -> None:
    findings.confidence = round(interval.mass, 4)
    findings.good, findings.bad = found.versions(interval.good), found.versions(interval.bad)
    packages = moving(found.packages)
    findings.culprits = [
        culprit(packages[change.package], change, merge) for change in interval.changes
    ]
    if len(interval.changes) > 1:
        findings.range = [
            {
                "package": packages[index].name,
                "commits": [
                    changed_version(packages[index], change.rank)
                    for change in interval.changes
                    if change.package == index
                ],
            }
            for index in interval.packages
        ]


def culprit(package: Package, change: Change, merge: str | None = None) -> dict[str, Any]:
    good, bad = package.versions[change.rank], package.versions[change.rank + 1]
    said: dict[str, Any] = {"package": package.name, "good": good, "bad": bad}
    said |= dict.fromkeys(("title", "author", "date", "url"))
    if package.line is not None and package.repository is not None:
        commit = package.line.changed_by(change.rank)
        remote = package.spec.remote or package.repository.remote_address()
        said |= {
            "title": commit.title,
            "author": commit.author,
            "date": commit.date,
            "url": web_address(remote, commit.sha),
            "commit": commit.sha,
            "removed": package.line.takes_away(change.rank),
        }
    if merge:
        said["merge"] = merge
    return said


def changed_version(package: Package, rank: int) -> str:
    """The commit or version that a change is about."""
    if package.line is not None:
        return package.line.changed_by(rank).sha
    return package.versions[rank + 1]


def _describe_partner(findings: Findings, outcome: Outcome) -> None:
    partner = outcome.partner
    if partner is None or not (interval := partner.interval):
        return
    packages = moving(partner.packages)
    if partner.single is None:
        findings.warnings.append(
            f"the failure also needs one of {len(interval.changes)} other changes; which one is not sure"
        )
        return
    package, rank = partner.single
    findings.partner = {
        "package": package.name,
        "commit": changed_version(package, rank),
        **{
            key: value
            for key, value in culprit(
                packages[interval.changes[0].package], interval.changes[0]
            ).items()
            if key in {"title", "author", "date", "url"}
        },
        "confidence": round(interval.mass, 4),
    }


def _describe_skipped(findings: Findings, main: Found) -> None:
    whys: dict[str, str] = {}
    for record in main.answer.records:
        whys[record.point.config_key] = record.why
    whys |= main.undecided
    for vector in sorted(main.search.untestable):
        point = main.search.timeline.point(vector, Purpose.PROBE, 0)
        why = whys.get(point.config_key, "skipped as asked")
        findings.skipped.append({"versions": main.versions(vector), "why": why})


def _about_repair(main: Found, older: Interval) -> str:
    broken, repaired = main.versions(older.good), main.versions(older.bad)
    moved = [name for name in broken if broken[name] != repaired[name]]
    words = ", ".join(f"{name} {broken[name][:12]}..{repaired[name][:12]}" for name in moved)
    return (
        "broken, repaired and broken again: the failure was already there and went away between "
        f"{words}; the answer is about the break after that"
    )


def _about_paths(found: Found) -> str | None:
    """The last change of a line kept to some paths may be commits that touch none of them."""
    if not found.single or not found.single[0].spec.paths:
        return None
    package, rank = found.single
    line, repository, paths = package.line, package.repository, package.spec.paths
    if line is None or repository is None:
        return None
    good, bad = line.commits[rank].sha, line.commits[rank + 1].sha
    if repository.touching(good, bad, paths):
        return None
    return (
        f"no commit that touches {', '.join(paths)} brings the failure: "
        f"it came with another one of {good[:12]}..{bad[:12]}"
    )


def count(findings: Findings, outcome: Outcome, answers: Sequence[Answer]) -> None:
    """What finding the answer took, and apart from it what checking it took. Containers of days count as states."""
    sought: list[object] = []
    checked: list[object] = []
    for found in outcome.searched:
        for record in found.answer.records:
            is_check = record.point.purpose is Purpose.REPLAY
            (checked if is_check else sought).append(found.version_set(record.point))
    if partner := outcome.partner_search:
        checked += [partner.version_set(record.point) for record in partner.answer.records]
    own = {id(found.answer) for found in (*outcome.searched, outcome.partner_search) if found}
    days = [r.point for answer in answers if id(answer) not in own for r in answer.records]
    findings.builds = len(set(sought)) + len({point.config_key for point in days})
    findings.tests = len(sought) + len(days)
    findings.checks = {"builds": len(set(checked) - set(sought)), "tests": len(checked)}
    findings.cached = sum(found.cached for found in outcome.searched)
    findings.resumed_trials = sum(answer.ending.resumed_trials for answer in answers)


def culprit_words(said: Mapping[str, Any]) -> str:
    """One line for people."""
    verb = "removing" if said.get("removed") else "at"
    commit = said.get("commit") or said["bad"]
    title = f" {said['title']!r}" if said.get("title") else ""
    author = f" by {said['author']}" if said.get("author") else ""
    return f"{said['package']} {verb} {commit[:12]}{title}{author}"
