"""The fingerprint: the same bug, whatever the cycle, host, path, process, address and step; another
bug, another one.
"""

import json
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta.attribution import Attribution, Evidence, Finding, LogTail, RankEnd, attribute
from aorta.attribution.documents import finding_document, past_cycle


def word(number: int) -> str:
    """Of three to nine letters. Drawn one by one, they take most of the time."""
    letters = ""
    while number or len(letters) < 3:
        number, letter = divmod(number, 26)
        letters += chr(ord("a") + letter)
    return letters


WORD = st.integers(0, 26**9 - 1).map(word)
HEX = st.integers(0, 16**12 - 1).map(lambda number: f"{number:012x}")


@dataclass(frozen=True)
class Bug:
    """What stays: where the program stands, what it raises, and the words of its message."""

    module: str
    function: str
    kind: str
    words: str


@dataclass(frozen=True)
class Occasion:
    """What changes from one cycle, host and run to the next."""

    root: str
    host: str
    port: int
    address: str
    step: int
    line: int
    rank: int
    moment: int
    folder: str


BUGS = st.builds(
    Bug,
    WORD,
    WORD,
    st.sampled_from(["ValueError", "RuntimeError", "KeyError", "MemoryError", "FileNotFoundError"]),
    st.lists(WORD, min_size=2, max_size=4, unique=True).map(" ".join),
)
OCCASIONS = st.builds(
    Occasion,
    st.lists(WORD, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts)),
    WORD.map(lambda name: f"{name}-07"),
    st.integers(1024, 65535),
    HEX.map(lambda digits: f"0x{digits}"),
    st.integers(0, 10**6),
    st.integers(1, 5000),
    st.integers(0, 7),
    st.integers(0, 59),
    HEX.map(lambda name: f"tmp{name[:8]}"),
)


def log_of(bug: Bug, here: Occasion) -> str:
    return (
        f"step {here.step} loss 0.5\n"
        "Traceback (most recent call last):\n"
        f'  File "{here.root}/train.py", line {here.line}, in <module>\n    main()\n'
        f'  File "{here.root}/{bug.module}.py", line {here.line + 7}, in {bug.function}\n    '
        "call()\n"
        f"{bug.kind}: {bug.words} at step {here.step}: <obj at {here.address}> from "
        f"{here.host}:{here.port}"
        f" in {here.root}/{here.folder} since 2026-11-15 05:35:{here.moment:02d}\n"
    )


def attributed(text: str, rank: int = 0, *history: Finding) -> Attribution:
    """As the service and the launcher do it: earlier findings come as their documents."""
    documents = [json.loads(json.dumps(finding_document(past))) for past in history]
    past = tuple(cycle for document in documents if (cycle := past_cycle(document)))
    failures = (RankEnd(rank, exit_code=1),)
    tails = (LogTail(text, rank),)
    return attribute(Evidence(tails=tails, failures=failures, history=past, lived_sec=20.0))


def fingerprint(bug: Bug, here: Occasion) -> str:
    return attributed(log_of(bug, here), here.rank).finding.fingerprint


@settings(max_examples=50, deadline=None)
@given(BUGS, OCCASIONS, OCCASIONS)
def test_the_same_bug_has_the_same_fingerprint_on_every_occasion(
    bug: Bug, first: Occasion, second: Occasion
) -> None:
    assert fingerprint(bug, first) == fingerprint(bug, second)


@settings(max_examples=50, deadline=None)
@given(BUGS, BUGS, OCCASIONS)
def test_bugs_that_differ_in_place_or_words_have_different_fingerprints(
    one: Bug, other: Bug, here: Occasion
) -> None:
    assert (fingerprint(one, here) == fingerprint(other, here)) == (one == other)


def raising(function: str, message: str, kind: str = "ValueError") -> str:
    return (
        "step 10 loss 0.5\nTraceback (most recent call last):\n"
        '  File "/srv/train.py", line 80, in <module>\n    main()\n'
        f'  File "/srv/train.py", line 44, in {function}\n    raise {kind}(text)\n'
        f"{kind}: {message}\n"
    )


@settings(max_examples=25, deadline=None)
@given(WORD, WORD)
def test_a_failure_whose_words_vary_is_the_same_in_the_next_cycle(one: str, other: str) -> None:
    words = "the gradient of layer {} is not finite after clipping"
    first = attributed(raising("step", words.format(one))).finding
    again = attributed(raising("step", words.format(other)), 0, first)
    assert (again.decision.action, again.decision.rule) == ("STOP", "repeated")
    assert again.finding.fingerprint == first.fingerprint


@pytest.mark.parametrize(
    "other",
    [
        raising("evaluate", "the gradient of layer left is not finite after clipping"),
        raising("step", "the gradient of layer left is not finite after clipping", "IndexError"),
        raising("step", "sequences of mixed length in one batch"),
        "RuntimeError: CUDA error: device-side assert triggered\n",
    ],
)
def test_another_failure_is_not_the_same_in_the_next_cycle(other: str) -> None:
    text = raising("step", "the gradient of layer left is not finite after clipping")
    first = attributed(text).finding
    next_one = attributed(other, 0, first)
    assert next_one.decision.rule != "repeated"
    assert next_one.finding.fingerprint != first.fingerprint


def test_a_cycle_that_was_recorded_with_its_fingerprint_alone_is_known_by_it() -> None:
    text = raising("step", "the gradient of layer left is not finite after clipping")
    old = replace(attributed(text).finding, failure=None)
    assert attributed(text, 0, old).decision.rule == "repeated"
    broken = {**finding_document(old), "failure": {"causes": [{"chain": 3}], "ended": "so"}}
    past = past_cycle(broken)
    assert past is not None
    assert past.failure is None
