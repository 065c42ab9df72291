"""Whatever stands before the lines of a log, the same failure gets the same class and decision."""

import pytest
from benchmarks.faults.prefixes import FAILURES, FORMATS, told
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta.attribution.logs.prefixes import LineFormat, learn

BODY = ["starting", "step 1 loss 2.0", "Traceback (most recent call last):",
        '  File "/srv/train.py", line 9, in main', "    run()", "ValueError: no"]  # fmt: skip


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_is_the_same_under_every_prefix(failure: str) -> None:
    _, kind, action = FAILURES[failure]
    for form in FORMATS:
        result = told(form, failure)
        assert (result.finding.failure_class, result.decision.action) == (kind, action), form


def test_a_prefix_leaves_the_text() -> None:
    for form, written in FORMATS.items():
        lines = [written(second, text) for second, text in enumerate(BODY)]
        known = learn(lines)
        texts = [known.read(line).text.strip() for line in lines]
        assert texts == [text.strip() for text in BODY], form


@pytest.mark.parametrize(
    ("line", "rank", "node"),
    [
        ("[1,3]<stderr>:x", 3, None),
        ("[1,mpirank:3,algo-2]<stderr>:x", 3, "algo-2"),
        ("[prterun-node7-4242@1,3]<stdout>: x", 3, None),
        ("Sun Nov 15 05:35:21 2026[3]<stderr>:x", 3, None),
        ("[2026-11-15T05:35:21.123456][rank3] x", 3, None),
        ("[rank3][2026-11-15 05:35:21,123] x", 3, None),
        ("[rank3]: x", 3, None),
        ("(worker1, rank=3, pid=2345, ip=10.0.0.1) x", 3, "10.0.0.1"),
        ("[pod/train-worker-0/pytorch] x", None, "train-worker-0"),
        ("Nov 15 05:35:21 gpu-node7 python[4242]: x", None, "gpu-node7"),
        ('{"rank": 3, "hostname": "n7", "message": "x"}', 3, "n7"),
        ("node7:4242:4243 [3] NCCL WARN x", None, "node7"),
    ],
)
def test_a_prefix_tells_who_wrote_the_line(line: str, rank: int | None, node: str | None) -> None:
    spoken = LineFormat().read(line)
    assert (spoken.rank, spoken.node) == (rank, node)


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: CUDA error: unknown error",
        "train.py: error: unrecognized arguments: --lrr",
        "slurmstepd: error: *** JOB 4171 ON node-7 CANCELLED AT 2026-11-15T05:35:21 ***",
        "ERROR: Could not consume arg: --lrr",
        "error while loading shared libraries: libnccl.so.2",
    ],
)
def test_what_a_program_says_is_no_prefix_however_often_it_says_it(line: str) -> None:
    assert learn([line] * 8).read(line).text == line


@pytest.mark.parametrize(
    "bar",
    [
        "Training:  12%|█▏   | 120/1000 [00:12<01:00,  9.9it/s, loss=0.3]",
        "  3%|▎         | 1.2k/40.0k [00:01<00:40, 960it/s]",
    ],
)
def test_text_behind_a_progress_bar_is_a_line_of_its_own(bar: str) -> None:
    assert LineFormat().read(bar + "Traceback (most recent call last):").text == BODY[2]
    assert LineFormat().read(bar).text == bar


@settings(deadline=None)
@given(st.lists(st.text(max_size=200), max_size=12))
def test_of_any_text_the_reader_of_prefixes_leaves_a_part(lines: list[str]) -> None:
    known = learn(lines)
    assert all(known.read(line).text in line for line in lines)
