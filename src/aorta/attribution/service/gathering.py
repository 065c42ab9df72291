"""All that was reported of one cycle, as one body of evidence. Runs in a worker: the files it looks at may be slow."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from aorta.attribution.documents import past_cycle
from aorta.attribution.jail import PathJail
from aorta.attribution.nouns import Evidence, LogSource, LogTail, PastCycle
from aorta.attribution.rank_end import RankEnd
from aorta.attribution.service.models import CycleReport, FailureReport
from aorta.attribution.sources import find_logs
from aorta.core.errors import UsageError


@dataclass(frozen=True)
class Told:
    """What the store holds about a cycle: its reports, and the name and answer of each cycle before it. All JSON."""

    reports: Sequence[str]
    earlier: Sequence[tuple[str, str]] = ()


def gather(told: Told, jail: PathJail) -> Evidence:
    reports = [CycleReport.model_validate_json(body) for body in told.reports]
    failures = {f.rank: _failure(f, jail) for r in reports for f in r.failures}
    nodes = {rank: failure.node for rank, failure in failures.items()}
    logs = tuple(_logs({path for r in reports for path in r.log_paths}, jail, nodes))
    return Evidence(
        logs=logs,
        tails=tuple(_tails(reports, nodes, {log.rank for log in logs} - {None})),
        failures=tuple(failures.values()),
        history=tuple(_history(told.earlier)),
        follow_links=False,
    )


def _failure(report: FailureReport, jail: PathJail) -> RankEnd:
    failure, error_file = report.as_failure(), report.error_file
    if error_file and jail.allows(error_file):
        return replace(failure, error_file=jail.admit(error_file))
    return failure


def _logs(
    paths: Iterable[str], jail: PathJail, nodes: Mapping[int, str | None]
) -> Iterator[LogSource]:
    """What is there of the paths that may still be read. An empty or vanished one is no evidence, and no error."""
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
