"""Secrets and ordinary lines that were written down before the detectors: of the first none may
ship, of the second nearly none may be damaged.
"""

import re
from pathlib import Path

import pytest

from aorta.scrub.files import Account, FileScrubber
from aorta.scrub.findings import Kind
from aorta.scrub.scrubber import Scrubber
from support.strange_secrets import Strange, blind_secrets, pieces_left, strange_secrets
from support.unseen_secrets import (
    further_ordinary_lines,
    further_secrets,
    ordinary_lines,
    printed_ordinary_lines,
    printed_secrets,
    seventh_ordinary_lines,
    seventh_secrets,
    sixth_ordinary_lines,
    sixth_secrets,
    unseen_secrets,
)

LOGS = Path(__file__).parents[1] / "attribution" / "corpus"
PRIVATE = re.compile(r"\bnode-\d+|\.invalid\b|192\.0\.2\.\d+|slurmstepd")
REMAINS = ("10", "5432", "STEPS", "SECRET", "POST")


def shipped(name: str, text: str) -> str:
    files = FileScrubber(Scrubber())
    files.learn(name, [text.encode()], ours=False)
    return b"".join(files.scrub(name, [text.encode()], Account(), ours=False)).decode()


@pytest.mark.parametrize(
    ("secrets", "kinds", "places"),
    [
        (strange_secrets(), 150, 40),
        (blind_secrets(), 90, 50),
        (unseen_secrets(), 140, 130),
        (further_secrets(), 110, 100),
        (printed_secrets(), 80, 80),
        (sixth_secrets(), 100, 100),
        (seventh_secrets(), 240, 160),
    ],
    ids=[
        "before the detectors",
        "never seen",
        "pieces of files",
        "further pieces",
        "printed",
        "sixth",
        "seventh",
    ],
)
def test_every_key_with_a_shape_and_nearly_every_other_secret_is_gone(
    secrets: list[Strange], kinds: int, places: int
) -> None:
    assert len({one.name for one in secrets}) >= kinds
    assert len({one.where for one in secrets}) >= places
    after = [(one, shipped(one.where, one.text)) for one in secrets]
    left = [one for one, text in after if pieces_left(one, text)]
    assert [(one.name, one.where) for one in left if one.by_shape] == []
    by_name = sum(not one.by_shape for one in secrets)
    assert len(left) <= 0.03 * by_name, left
    assert all(any(word in text for word in REMAINS) for _, text in after)


@pytest.mark.parametrize(
    "lines",
    [
        ordinary_lines(),
        further_ordinary_lines(),
        printed_ordinary_lines(),
        sixth_ordinary_lines(),
        seventh_ordinary_lines(),
    ],
    ids=len,
)
def test_lines_that_only_speak_of_keys_and_tokens_stay(lines: list[str]) -> None:
    damaged = [line for line in lines if Scrubber().text(line).taken]
    assert len(damaged) <= 0.01 * len(lines), damaged


def test_of_ordinary_log_lines_at_most_one_in_a_hundred_is_damaged() -> None:
    """Real output of real frameworks; the few lines that do name a machine are left out, and a
    path that is taken out is no damage.
    """
    text = "\n".join(file.read_text(errors="replace") for file in sorted(LOGS.rglob("rank_*")))
    lines = [line for line in dict.fromkeys(text.splitlines()) if not PRIVATE.search(line)]
    assert len(lines) >= 500
    scrubber = Scrubber()
    scrubbed = scrubber.text("\n".join(lines))
    damage = {one.where: one.value for one in scrubbed.taken if one.kind is not Kind.PATH}
    assert len(damage) <= 0.01 * len(lines), damage
    paths = {one.value for one in scrubbed.taken if one.kind is Kind.PATH}
    assert [path for path in paths if path.startswith(("/usr/", "/opt/rocm", "/dev/"))] == []
