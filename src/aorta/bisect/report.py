"""`report.md`: the answer for people, with the exact commands that show both sides of it."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from aorta.bisect.findings import Findings, differently, without_contradictions
from aorta.bisect.investigation import Investigation
from aorta.bisect.run import MAIN, BisectRun
from aorta.bisect.trials import NOT_BUILT_WORDS
from aorta.bisect.watching import short
from aorta.core.durations import show_duration
from aorta.core.errors import Exit
from aorta.core.names import slug
from aorta.core.stats import counted
from aorta.core.trial import Outcome
from aorta.engine.events import Reason, TrialRecord
from aorta.engine.rundir import write_atomically, write_json

SUMMARY = "summary.json"  # in the form of JAX-Toolbox' triage tool

HEADLINES = {
    "found": "One change brings the failure",
    "range": "The change is one of these",
    "pair": "These changes break it together",
    "inconsistent": "The two ends do not differ as they should",
    "did_not_reproduce": "The failure did not appear",
    "never_good": "No container without the failure was found",
    "partial": "Stopped before the answer was sure",
}


def headline(findings: Findings) -> str:
    """One line, on every surface: what was found, and how sure it is, or what was in the way.
    Between environments: `numpy 2.3.1 → 2.3.2 brings the failure (97 %)`.
    """
    status, culprits, confidence = findings.status, findings.culprits, findings.confidence
    named = " and ".join(culprit_words(culprit) for culprit in culprits)
    if status == "partial" and findings.exit_code == Exit.INFRASTRUCTURE and findings.warnings:
        return findings.warnings[-1]
    if status in {"found", "pair"} and _is_of_environments(culprits):
        verb = "brings the failure" if len(culprits) == 1 else "bring the failure together"
        return f"{named} {verb} ({100 * (confidence or 0):.0f} %)"
    words = HEADLINES[status]
    if status == "found" and len(culprits) == 1 and culprits[0].get("removed"):
        # What the good end has and the bad end lacks, as with --find-fix.
        repair = {**culprits[0], "removed": False}
        words = f"One change repairs the failure: {culprit_words(repair)}"
    elif status in {"found", "pair"} and culprits:
        words += f": {named}"
    elif culprits:
        words += f": {len(culprits)} candidates"
    return words if confidence is None else f"{words} (probability {confidence:.1%})"


def _is_of_environments(culprits: Sequence[Mapping[str, Any]]) -> bool:
    """Those of one answer are named in its headline, partners too."""
    return bool(culprits) and all("kind" in culprit for culprit in culprits)


def write_answer(run: BisectRun, findings: Findings, shown: "ShownStates") -> Findings:
    """The artifacts, also of a run that was cut short; returns the findings as written."""
    path, answers = run.path, run.answers
    records = [record for answer in answers.values() for record in answer.records]
    findings = without_contradictions(findings, records)
    # Last what was in the way, such as git that could not check a commit out.
    cut, said = run.interrupted, findings.warnings
    detail = cut.ending.detail if cut and cut.ending.reason is Reason.INFRASTRUCTURE else ""
    more = [detail] if detail and not any(detail in words for words in said) else []
    findings = replace(
        findings,
        output_dir=str(path),
        metric=run.metric.document() if run.metric else None,
        failed_differently=differently(records, are_left_out=run.request.spec.is_guarded),
        warnings=sorted([*said, *more], key=lambda words: detail in words),
    )
    for name, answer in answers.items():
        for record in answer.records:
            target = (run.stage_path(name) / record.path).parent
            words = "_".join(f"{name}-{str(value)[:16]}" for name, value in record.point.values)
            # Readable, and unique by the configuration's key: versions may share a prefix.
            readable = f"{slug(words)[:_NAME]}-{record.point.config_key[:8]}"
            _relink(path / "probes" / readable, target)
    for side, (stage, key) in shown.items():
        _link_side(path, side, run.stage_path(stage), answers[stage].records, key)
    summary = list(summary_lines(findings))
    write_json(path / "result.json", "aorta.bisect/1", {**findings.document(), "summary": summary})
    if run.request.summary:
        write_atomically(path / SUMMARY, json.dumps(_summary(run, findings)))
    lines = report_lines(findings, records)
    write_atomically(path / "report.md", "\n".join(lines) + "\n")
    run.logs.say(headline(findings))
    run.session.run.describe(status=findings.status)
    return findings


def report_lines(findings: Findings, records: Sequence[TrialRecord]) -> Iterator[str]:
    yield f"# {headline(findings)}"
    yield ""
    yield from _culprits(findings)
    yield from _section("Warnings", [f"- {warning}" for warning in findings.warnings])
    yield from _section("Versions", list(_versions(findings)))
    yield from _section("Reproduce", list(_reproduce(findings)))
    yield from _section("Probes", list(_probes(records)))


def _section(title: str, lines: Sequence[str]) -> Iterator[str]:
    """Nothing where there is nothing to say."""
    yield from (f"## {title}", "", *lines, "") if lines else ()


def _culprits(findings: Findings) -> Iterator[str]:
    for culprit in findings.culprits[:50]:
        verb = "taken away" if culprit.get("removed") else "added"
        what = culprit.get("kind") or f"{culprit.get('commit') or culprit['bad']} ({verb})"
        yield f"- **{culprit['package']}** {what}"
        for name in ("title", "author", "date", "url"):
            if culprit.get(name):
                yield f"  - {name}: {culprit[name]}"
        if culprit.get("moves_with"):
            yield f"  - moves with it, because it asks for them: {', '.join(culprit['moves_with'])}"
        yield f"  - good: `{culprit['good']}`, bad: `{culprit['bad']}`"
    if len(findings.culprits) > 50:
        yield f"- and {len(findings.culprits) - 50} more, see result.json"
    if findings.partner and not _is_of_environments(findings.culprits):
        yield (
            f"- it fails only together with **{findings.partner['package']}** "
            f"{findings.partner['commit']}"
        )
    if metric := findings.metric:
        yield ""
        yield (
            f"`{metric['name']}` is {metric['good']['mean']:.4g} on the good side and "
            f"{metric['bad']['mean']:.4g} on the bad side, with a noise of {metric['noise']:.2g}."
        )
    if findings.seen:
        yield ""
        good, bad = ("{failed} of {of} trials".format(**findings.seen[s]) for s in ("good", "bad"))
        yield f"The good side failed in {good}, the bad side in {bad}."
    if findings.failed_differently:
        first, *kinds = findings.failed_differently
        yield ""
        yield first
        yield ""
        yield from (f"- {kind.strip()}" for kind in kinds)
    yield ""


def _versions(findings: Findings) -> Iterator[str]:
    if not findings.good:
        return
    yield "| package | last good | first bad |"
    yield "|---|---|---|"
    for name in findings.good:
        yield f"| {name} | {findings.good[name]} | {findings.bad.get(name, '')} |"
    containers = findings.containers
    if containers["last_good"] or containers["first_bad"]:
        yield f"| container | {containers['last_good']} | {containers['first_bad']} |"


def _reproduce(findings: Findings) -> Iterator[str]:
    """With what was seen of each side, which may be another thing than what was said of it."""
    for side, command in findings.reproduce.items():
        if command:
            failed, of = (findings.seen.get(side, {}).get(name, 0) for name in ("failed", "of"))
            seen = f"failed in {failed} of {counted(of, 'trial')}" if of else "no trial could judge"
            yield from (f"The {side} side, which {seen}:", "", "```sh", command, "```", "")


def _probes(records: Sequence[TrialRecord]) -> Iterator[str]:
    if records:
        yield "| # | state | asked for | outcome | why | time |"
        yield "|---|---|---|---|---|---|"
    for number, record in enumerate(records, 1):
        why = record.why.replace("|", "/")[:80]
        yield (
            f"| {number} | {short(record.point)} | {record.point.purpose.value} | "
            f"{record.outcome.value} | {why} | {show_duration(record.duration)} |"
        )


def summary_lines(findings: Findings) -> Iterator[str]:
    """For the terminal, once it is over."""
    yield headline(findings)
    in_headline = _is_of_environments(findings.culprits) and findings.status in {"found", "pair"}
    several = len(findings.culprits) > 1 and not in_headline
    for culprit in findings.culprits[:10] if several else []:
        yield f"  {culprit_words(culprit)}"
    if findings.partner and not in_headline:
        partner: Mapping[str, Any] = findings.partner
        yield f"  only together with {partner['package']} {partner['commit'][:12]}"
    for warning in findings.warnings:
        yield f"  warning: {warning}"
    yield from (f"  {line}" for line in findings.failed_differently)
    yield (
        f"  {counted(findings.builds, 'state')}, {counted(findings.tests, 'trial')}; "
        f"report: {findings.output_dir}/report.md"
    )


def culprit_words(culprit: Mapping[str, Any]) -> str:
    """One line for people; of an environment what changed: `numpy 2.3.1 → 2.3.2`."""
    if kind := culprit.get("kind"):
        name = "Python" if kind == "python" else culprit.get("package")
        return f"{name} {culprit.get('good')} → {culprit.get('bad')}"
    verb = "removing" if culprit.get("removed") else "at"
    commit = str(culprit.get("commit") or culprit.get("bad") or "")
    title = f" {culprit['title']!r}" if culprit.get("title") else ""
    author = f" by {culprit['author']}" if culprit.get("author") else ""
    return f"{culprit.get('package')} {verb} {commit[:12]}{title}{author}"


# -- the two states that matter, and every probe, as links


ShownStates = Mapping[str, tuple[str, str]]
"""The two states that matter, by side: the stage that tried one, and the key of its
configuration there.
"""


def shown_of(outcome: Investigation) -> ShownStates:
    """By the last search that tried a state; None where its ends are alike or it never ran."""
    interval = outcome.last.interval
    if interval is None or outcome.main.alike:
        return {}
    shown: dict[str, tuple[str, str]] = {}
    for side, vector in (("good", interval.good), ("bad", interval.bad)):
        wanted = frozenset(outcome.last.versions(vector).items())
        for found in (*outcome.beside, *outcome.searched):
            for record in found.answer.records:
                if found.version_set(record.point) == wanted:
                    shown[side] = (found.stage, record.point.config_key)
    return shown


_NAME = 100
_GOOD_AND_BAD = {"good": ("last-known-good", "clean"), "bad": ("first-known-bad", "reproduced")}


def _link_side(
    run_dir: Path, side: str, stage_dir: Path, records: Sequence[TrialRecord], key: str
) -> None:
    """`last-known-good` or `first-known-bad` for the state of this key, if it was tried."""
    name, wanted = _GOOD_AND_BAD[side]
    mine = [record for record in records if record.point.config_key == key]
    telling = [record for record in mine if record.outcome.value == wanted]
    for record in (telling or mine)[-1:]:
        _relink(run_dir / name, stage_dir / record.path)


def _relink(link: Path, target: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.relpath(target, link.parent))


# -- `summary.json` of JAX-Toolbox: `container`, `versions` and `result`


def _summary(run: BisectRun, findings: Findings) -> dict[str, Any]:
    """Every trial so far in its form."""
    containers: list[dict[str, Any]] = []
    versions: list[dict[str, Any]] = []
    bisected = findings.containers.get("first_bad") or findings.containers.get("last_good")
    for stage, answer in run.answers.items():
        seen: dict[str, int] = {}
        for record in answer.records:
            values = {name: str(value) for name, value in record.point.values}
            trial = {
                **_summary_trial(record),
                "output_directory": str(run.stage_path(stage) / record.path),
            }
            if "container" in values:
                containers.append({"container": run.image_of(values["container"]), **trial})
                continue
            repetition = seen.setdefault(record.point.config_key, -1) + 1
            seen[record.point.config_key] = repetition
            about = {"container": bisected, "test_repetition": repetition}
            unchanged = findings.good if stage == MAIN else {}
            versions.append({**unchanged, **values, **trial, **about})
    found = {"container": containers, "versions": versions}
    return (
        {**found, "result": dict(_summary_result(findings, bisected))}
        if findings.culprits
        else found
    )


def _summary_trial(record: TrialRecord) -> dict[str, Any]:
    if record.outcome in {Outcome.REPRODUCED, Outcome.CLEAN}:
        kind = "TEST_YIELDED_RESULTS"
    else:
        kind = "BUILD_FAILURE" if NOT_BUILT_WORDS in record.why else "TEST_ERROR"
    metrics = {"exit_code": record.exit_code} if kind == "TEST_YIELDED_RESULTS" else {}
    seconds = None if kind == "BUILD_FAILURE" else round(record.duration, 3)
    return {"result": f"TestExecutionOutcome.{kind}", "test_time": seconds, "metrics": metrics}


def _summary_result(findings: Findings, image: str | None) -> Iterator[tuple[str, str | None]]:
    """`PKG_good` and `PKG_bad`; commits that could not be tested in brackets on both of them."""
    blamed = list(dict.fromkeys(one["package"] for one in findings.culprits))
    for name in blamed:
        mine = [one for one in findings.culprits if one["package"] == name]
        hidden = [str(one.get("commit") or one["bad"]) for one in mine[:-1]]
        between = f"[{','.join(hidden)}]" if hidden else ""
        yield f"{name}_good", ",".join(filter(None, (str(mine[0]["good"]), between)))
        yield f"{name}_bad", ",".join(filter(None, (between, str(mine[-1]["bad"]))))
    for name, version in findings.bad.items():
        if name not in blamed:
            yield f"{name}_ref", version
    yield "container", image
