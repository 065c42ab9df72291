"""Attribution over the corpus of real failures: what it is for, and the promises that may never break."""

import gzip
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from benchmarks.faults.corpus import Case, cases

from aorta.attribution import Action, Attribution, Evidence, LogSource, attribute

CASES = cases()
_COLOUR = re.compile(rb"\x1b\[[0-9;]*m")
# Their messages say that a write failed, but not why: a file system that is ill says the same.
RESTARTED_TO_BE_SAFE = {"quota_exceeded", "disk_full_checkpoint"}


def name_of(case: Case) -> str:
    return case.name


@cache
def told(case: Case) -> Attribution:
    """What all its evidence says: asked for by every test here, and found out once."""
    return attribute(case.evidence())


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_real_failure_gets_its_class_its_root_and_its_decision(case: Case) -> None:
    result = told(case)
    assert result.finding.failure_class == case.failure_class, result.finding.summary
    assert not case.root_ranks or result.finding.root.rank in case.root_ranks
    if case.name in RESTARTED_TO_BE_SAFE:
        assert result.decision.rule == "uncertain"
    else:
        assert result.decision.action == case.decision, result.decision.reason


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_no_loss_of_evidence_turns_a_restart_into_a_stop(case: Case) -> None:
    """Without exit codes, without kernel log, or with the logs of one rank alone."""
    whole = case.evidence()
    poorer = [
        case.evidence(with_failures=False),
        replace(whole, kernel_logs=(), flight_recorder=()),
        *(replace(whole, logs=tuple(log for log in whole.logs if log.rank != rank)) for rank in (0, 1)),
        replace(whole, logs=()),
    ]  # fmt: skip
    for evidence in poorer:
        action = attribute(evidence).decision.action
        assert action is not Action.STOP or case.decision == "STOP"


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_one_interleaved_coloured_packed_log_tells_the_same_class(
    case: Case, tmp_path: Path
) -> None:
    whole = case.evidence()
    if any(log.rank is None for log in whole.logs):
        mixed = whole
    else:
        mixed = replace(whole, logs=(LogSource(_interleaved(whole, tmp_path)),))
    assert attribute(mixed).finding.failure_class == told(case).finding.failure_class


def test_the_same_bug_has_the_same_fingerprint_in_both_forms_and_other_bugs_have_others() -> None:
    prints = {case.name: told(case).finding.fingerprint for case in CASES}
    assert prints["import_error"] == prints["import_error_interleaved"]
    assert prints["value_error"] == prints["value_error_interleaved"]
    alike = [name for name in prints if prints[name] == prints["value_error"]]
    assert alike == ["value_error", "value_error_interleaved"]


def test_evidence_lines_stand_where_they_are_said_to_stand() -> None:
    for case in CASES:
        for line in told(case).finding.evidence:
            rows = (
                _COLOUR.sub(b"", Path(line.file).read_bytes()).decode(errors="replace").split("\n")
            )
            assert line.text.split()[-1] in rows[line.line - 1]


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
