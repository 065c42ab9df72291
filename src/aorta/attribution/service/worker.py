"""One analysis in a process of its own, so that neither a large log nor a slow file system slows
the answers to agents.
"""

import json
import os
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from aorta.attribution.analysis import attribute
from aorta.attribution.documents import decision_document, finding_document, past_cycle
from aorta.attribution.jail import PathJail
from aorta.attribution.nouns import Advice, Attribution, Evidence, LogSource, LogTail, PastCycle
from aorta.attribution.rank_end import RankEnd
from aorta.attribution.service.models import CycleReport, FailureReport
from aorta.attribution.sources import find_logs
from aorta.core.errors import UsageError
from aorta.executors.process_tree import die_with_parent

N = TypeVar("N", int, float)

_FAILURE = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nMemoryError\n'
_BEHIND_THE_ANSWERS = 10  # how nice a worker is to the process that answers agents


def prepare(parent: int) -> None:
    """Load what every analysis needs, leave Ctrl-C to the parent, die with it, stay behind it."""
    if os.nice(0) < _BEHIND_THE_ANSWERS:
        os.nice(_BEHIND_THE_ANSWERS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(parent)
    attribute(Evidence(tails=(LogTail(_FAILURE),)))  # compiles the patterns, 100 ms


@dataclass(frozen=True)
class AnalysisRules:
    """What an analysis is told besides the evidence."""

    no_progress_limit: int = 3
    with_question: bool = False  # whether somebody will be asked for a second opinion


@dataclass(frozen=True)
class StoredCycle:
    """What the store holds of a cycle: its reports, and name and answer of those before. JSON."""

    reports: Sequence[str]
    earlier: Sequence[tuple[str, str]] = ()
    before: Sequence[str] = ()  # the reports of the cycle before
    silent: frozenset[str] = (
        frozenset()
    )  # paths that do not answer: who looks there does not return


@dataclass(frozen=True)
class Analysed:
    answer: dict[str, Any]  # as it is stored and sent
    question: str | None = None


def analyse(told: StoredCycle, jail: PathJail, rules: AnalysisRules) -> Analysed:
    result = attribute(gather(told, jail), no_progress_limit=rules.no_progress_limit)
    if told.silent:
        result = _with_storage_advice(result, len(told.silent))
    answer = {
        "finding": finding_document(result.finding),
        "decision": decision_document(result.decision),
    }
    return Analysed(answer, _question(result) if rules.with_question else None)


def _question(result: Attribution) -> str:
    from aorta.attribution.opinion import question  # a third of what a worker would load, for few

    return question(result)


def _with_storage_advice(result: Attribution, silent: int) -> Attribution:
    words = f"{silent} of the files told of did not answer and could not be read: a mount may hang"
    advice = (*result.decision.advice, Advice("storage", words))
    return replace(result, decision=replace(result.decision, advice=advice))


def paths_in(reports: Iterable[str]) -> set[str]:
    """Every path that an analysis of these reports would look at."""
    found: set[str] = set()
    for body in reports:
        report = json.loads(body)
        found.update(report.get("log_paths", ()))
        found.update(f["error_file"] for f in report.get("failures", ()) if f.get("error_file"))
    return found


def gather(told: StoredCycle, jail: PathJail) -> Evidence:
    reports = [CycleReport.model_validate_json(body) for body in told.reports]
    failures = {
        f.rank: replace(_failure(f, jail, told.silent), agent=r.agent)
        for r in reports
        for f in r.failures
    }
    nodes = {rank: failure.node for rank, failure in failures.items()}
    paths = {path for r in reports for path in r.log_paths}
    logs = tuple(_logs(paths - told.silent, jail, nodes))
    return Evidence(
        logs=logs,
        tails=tuple(_tails(reports, nodes, {log.rank for log in logs} - {None})),
        failures=tuple(failures.values()),
        history=tuple(_history(told.earlier)),
        earlier_logs=tuple(_logs(_log_paths(told.before) - paths - told.silent, jail, {})),
        heartbeat_step=_most(report.heartbeat_step for report in reports),
        lived_sec=_most(report.lifetime for report in reports),
        follow_links=False,
    )


def _most(values: Iterable[N | None]) -> N | None:
    """The largest of what agents told; None where none told."""
    return max((value for value in values if value is not None), default=None)


def _log_paths(reports: Iterable[str]) -> set[str]:
    return {path for body in reports for path in json.loads(body).get("log_paths", ())}


def _failure(report: FailureReport, jail: PathJail, silent: frozenset[str]) -> RankEnd:
    failure, error_file = report.as_failure(), report.error_file
    if error_file in silent:
        return failure
    if error_file and jail.allows(error_file):
        return replace(failure, error_file=jail.admit(error_file))
    return failure


def _logs(
    paths: Iterable[str], jail: PathJail, nodes: Mapping[int, str | None]
) -> Iterator[LogSource]:
    """What is there of the paths that may be read. An empty or missing one is no error."""
    for path in sorted(paths):
        try:
            found = find_logs([jail.admit(path)])
        except (UsageError, OSError):
            continue
        for log in found:
            yield log if log.rank is None else replace(log, node=nodes.get(log.rank))


def _tails(
    reports: Iterable[CycleReport], nodes: Mapping[int, str | None], at_hand: set[int | None]
) -> Iterator[LogTail]:
    for report in reports:
        for tail in report.tails:
            if tail.rank in at_hand:
                continue  # the log itself says more than its end
            node = None if tail.rank is None else nodes.get(tail.rank)
            yield LogTail(tail.text, tail.rank, node, f"tail from {report.agent}")


def _history(earlier: Iterable[tuple[str, str]]) -> Iterator[PastCycle]:
    for name, answer in earlier:
        finding = json.loads(answer).get("finding")
        cycle = past_cycle(finding, name) if finding else None
        if cycle is not None:
            yield cycle
