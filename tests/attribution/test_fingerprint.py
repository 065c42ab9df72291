"""The fingerprint: the same bug, whatever the cycle, host, path, process, address and step; another
bug, another one.
"""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from aorta.attribution import Evidence, LogTail, RankEnd, attribute


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


def fingerprint(bug: Bug, here: Occasion) -> str:
    evidence = Evidence(
        tails=(LogTail(log_of(bug, here), here.rank),),
        failures=(RankEnd(here.rank, exit_code=1),),
    )
    return attribute(evidence).finding.fingerprint


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
