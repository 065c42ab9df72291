"""Attribution over the corpus of real failures: what it is for, and the promises that may never
break.
"""

import gzip
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from benchmarks.faults.corpus import Case, cases

from aorta.attribution import Action, Attribution, Evidence, LogSource, attribute

CASES = cases()
pytestmark = pytest.mark.xdist_group("corpus")  # where `told` remembers
_COLOUR = re.compile(rb"\x1b\[[0-9;]*m")
# Their messages say that a write failed, but not why: a file system that is ill says the same.
RESTARTED_TO_BE_SAFE = {"quota_exceeded", "disk_full_checkpoint"}

_CHANGES = (
    (re.compile(rb"/srv/job/"), b"/home/u/checkout-b/"),
    (re.compile(rb"/srv/(?!job)"), b"/lustre/run.2/"),
    (re.compile(rb"/opt/venv/"), b"/conda/envs/x/"),
    (re.compile(rb"127\.0\.0\.1"), b"10.7.0.12"),
    (re.compile(rb"(?<=\]:)\d{2,5}\b"), b"40999"),
    (re.compile(rb"0x[0-9a-f]{8,16}"), b"0x7fffdeadbee0"),
    (re.compile(rb"(?<=pid )\d+|(?<=pid\(s\) )\d+|(?<=/torch_)\d+"), b"998877"),
    (re.compile(rb"(?<=2026-11-15 )\d\d:\d\d:\d\d"), b"23:01:59"),
)


@cache
def told(case: Case) -> Attribution:
    """What all its evidence says: asked for by every test here, and found out once."""
    return attribute(case.evidence())


def test_a_real_failure_gets_its_class_its_root_and_its_decision() -> None:
    for case in CASES:
        result = told(case)
        assert result.finding.failure_class == case.failure_class, (case, result.finding.summary)
        assert not case.root_ranks or result.finding.root.rank in case.root_ranks, case
        if case.name in RESTARTED_TO_BE_SAFE:
            assert result.decision.rule == "uncertain", case
        else:
            assert result.decision.action == case.decision, (case, result.decision.reason)


def test_no_loss_of_evidence_turns_a_restart_into_a_stop() -> None:
    """Without exit codes, without kernel log, or with the logs of one rank alone."""
    restarted = [case for case in CASES if case.decision != "STOP"]
    assert len(restarted) > 100
    for case in restarted:
        whole = case.evidence()
        poorer = {
            case.evidence(with_failures=False),
            replace(whole, kernel_logs=(), flight_recorder=()),
            *(replace(whole, logs=tuple(log for log in whole.logs if log.rank != rank)) for rank in (0, 1)),
            replace(whole, logs=()),
        }  # fmt: skip
        for evidence in poorer - {whole}:
            assert attribute(evidence).decision.action is not Action.STOP, case


def test_one_interleaved_coloured_packed_log_tells_the_same_class(tmp_path: Path) -> None:
    of_ranks = [case for case in CASES if all(log.rank is not None for log in case.evidence().logs)]
    assert len(of_ranks) > 100
    for case in of_ranks:
        whole = case.evidence()
        mixed = replace(whole, logs=(LogSource(_interleaved(whole, tmp_path)),))
        assert attribute(mixed).finding.failure_class == told(case).finding.failure_class, case


def test_the_same_bug_has_the_same_fingerprint_in_both_forms_and_other_bugs_have_others() -> None:
    prints = {case.name: told(case).finding.fingerprint for case in CASES}
    assert prints["import_error"] == prints["import_error_interleaved"]
    assert prints["value_error"] == prints["value_error_interleaved"]
    alike = [name for name in prints if prints[name] == prints["value_error"]]
    assert alike == ["value_error", "value_error_interleaved"]


def test_a_real_failure_keeps_its_fingerprint_on_another_host(tmp_path: Path) -> None:
    """Other paths, ports, addresses and process ids in every line of its logs."""
    for case in CASES:
        there = attribute(_elsewhere(case.evidence(), tmp_path)).finding
        assert there.fingerprint == told(case).finding.fingerprint, case


def test_most_failures_of_the_corpus_can_be_told_apart() -> None:
    """Those that share one left nothing but a signal or the scheduler's word, hung, or waited for
    somebody in the same collective.
    """
    prints: dict[str, set[str]] = {}
    for case in CASES:
        name = case.name.removesuffix("_interleaved")
        prints.setdefault(told(case).finding.fingerprint, set()).add(name)
    shared = {name for names in prints.values() if len(names) > 1 for name in names}
    silent = {"killed", "unknown", "segfault", "collective_timeout", "rendezvous_error", "host_oom"}
    silent |= {"time_limit", "hang"}
    assert {case.failure_class for case in CASES if case.name in shared} <= silent


def test_evidence_lines_stand_where_they_are_said_to_stand() -> None:
    for case in CASES:
        for line in told(case).finding.evidence:
            rows = (
                _COLOUR.sub(b"", Path(line.file).read_bytes()).decode(errors="replace").split("\n")
            )
            assert line.text.removesuffix(" …").split()[-1] in rows[line.line - 1]


def _elsewhere(evidence: Evidence, directory: Path) -> Evidence:
    moved = []
    for log in evidence.logs:
        text = log.path.read_bytes()
        for wording, other in _CHANGES:
            text = wording.sub(other, text)
        path = directory / log.path.name
        path.write_bytes(text)
        moved.append(replace(log, path=path))
    return replace(evidence, logs=tuple(moved))


def _interleaved(evidence: Evidence, directory: Path) -> Path:
    """All ranks in one gzipped file, prefixed, coloured, in turns of seven lines."""
    rows: list[list[bytes]] = []
    for log in evidence.logs:
        prefix = b"\x1b[36m[rank%d]:\x1b[0m " % (log.rank or 0)
        rows.append([prefix + line for line in log.path.read_bytes().split(b"\n") if line])
    mixed: list[bytes] = []
    while any(rows):
        for own in rows:
            mixed += own[:7]
            del own[:7]
    path = directory / "job.log.gz"
    path.write_bytes(gzip.compress(b"\n".join(mixed) + b"\n"))
    return path
