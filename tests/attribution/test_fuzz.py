"""Whatever a log holds, attribution answers, never raises, and never stops a job for noise."""

import gzip
import json
import random
from pathlib import Path

from benchmarks.faults.corpus import cases
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aorta.attribution import Action, Evidence, LogSource, LogTail, RankEnd, attribute
from aorta.attribution.events import patterns
from aorta.attribution.evidence import read_dumps

SHREDS = st.deferred(lambda: st.sampled_from(_shreds()))


def _shreds() -> list[str]:
    return (
        [hit for row in patterns() for hit in row.hits]
        + [
            "Traceback (most recent call last):",
            '  File "a.py", line 3, in f',
            "[rank1]: ",
            "\x1b[31m",
        ]
        + ["During handling of the above exception, another exception occurred:", "\r", "", "7: "]
        + [
            "Root FoundCause (first observed failure):",
            "  rank      : 1",
            "  exitcode  : -9",
            "step 5",
        ]
    )


@settings(max_examples=50, deadline=None)
@given(st.lists(SHREDS, max_size=40), st.integers(0, 3))
def test_shreds_of_real_failures_in_any_order_are_answered(shreds: list[str], ranks: int) -> None:
    failures = tuple(RankEnd(rank, exit_code=rank) for rank in range(ranks))
    result = attribute(Evidence(tails=(LogTail("\n".join(shreds)),), failures=failures))
    assert 0 <= result.finding.confidence <= 1
    assert result.decision.reason


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=2000))
def test_noise_is_answered_and_never_stops_a_job(noise: bytes) -> None:
    tail = LogTail(noise.decode("latin-1"), rank=0)
    result = attribute(Evidence(tails=(tail,), failures=(RankEnd(0, exit_code=1),)))
    assert result.decision.action is not Action.STOP


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.binary(max_size=400), st.booleans())
def test_files_that_are_no_logs_are_answered(tmp_path: Path, noise: bytes, packed: bool) -> None:
    log = tmp_path / "rank_0.err"
    log.write_bytes(gzip.compress(noise)[: len(noise)] if packed else noise)
    dump = tmp_path / "dump_0"
    dump.write_bytes(noise)
    assert read_dumps([dump]) == () or noise[:1] in b"{["
    assert attribute(Evidence(logs=(LogSource(log, 0),), flight_recorder=(dump,))).finding


# torn off right behind what was survived, or was another job's, nothing is left to tell
HOLDS_ANOTHER_END = {
    "helper_usage_then_error",
    "last_attempt_echoed",
}


def test_a_restarted_failure_stays_restarted_when_its_log_breaks_off() -> None:
    """A node that dies takes the unwritten end of its log along; what is left may not say STOP."""
    chance = random.Random(0)
    for case in cases():
        if case.decision == "STOP" or case.name in HOLDS_ANOTHER_END:
            continue
        for log in case.evidence().logs:
            text = log.path.read_bytes()
            torn = text[: chance.randrange(len(text) + 1)].decode("utf-8", "replace")
            result = attribute(Evidence(tails=(LogTail(torn, log.rank, name=log.path.name),)))
            assert result.decision.action is not Action.STOP, (case.name, result.decision.reason)


def test_a_log_that_vanishes_while_it_is_read_is_no_error(tmp_path: Path) -> None:
    gone = LogSource(tmp_path / "gone.log", 0)
    assert attribute(Evidence(logs=(gone,))).decision.action is Action.UNKNOWN


@settings(max_examples=50)
@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_dumps_of_any_json_are_read_or_passed_over(document: object) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        dump = Path(scratch) / "dump_3.json"
        dump.write_text(json.dumps(document))
        assert isinstance(read_dumps([dump]), tuple)
