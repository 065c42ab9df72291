"""What looks like a secret is taken out; what does not stays; and no text is too long to be looked
at.
"""

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aorta.scrub.secrets import (
    JWT_OR_BEGIN,
    PROVIDERS,
    REDACTED,
    providers_in,
    safe_value,
    without_secrets,
)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"pull ghp_{'hunter2' * 6} now", f"pull {REDACTED} now"),
        ("https://me:pw@host/x", f"https://{REDACTED}@host/x"),
        ("a token=abc,b=1", f"a token={REDACTED}"),
        ("Bearer hunter2hunter2hunter2 def", f"Bearer {REDACTED} def"),
        ("https://host/a@b", "https://host/a@b"),
        ("expandable_segments:True", "expandable_segments:True"),
        ("sha256:9f86d081884c7d659a2feaa0c55ad015", "sha256:9f86d081884c7d659a2feaa0c55ad015"),
    ],
)
def test_only_the_secret_is_taken_out(text: str, left: str) -> None:
    assert without_secrets(text) == left


def test_a_variable_that_is_named_after_a_secret_loses_its_whole_value() -> None:
    assert safe_value("MY_API_KEY", "plain") == REDACTED
    assert safe_value("NCCL_ALGO", "plain") == "plain"


@pytest.mark.parametrize("piece", ["x", "-eyJaaaaaaaa", "://a", "aB1", "hf_", "-----BEGIN "])
def test_a_text_made_to_be_slow_is_looked_at_in_one_pass(piece: str) -> None:
    assert safe_value("X", piece * (200_000 // len(piece)))


def test_what_begins_like_a_jwt_is_looked_at_once_however_often_it_begins() -> None:
    assert [match.span() for match in JWT_OR_BEGIN.finditer("-eyJaaaaaaaa" * 1000)] == [(1, 12_000)]


_PIECES = st.sampled_from(
    [
        *("eyJ", "-eyJ", ".eyJ", ".", "-", "_", ":", "/", "a", "aaaaaaaa", " ", "SG."),
        *(
            "sk-",
            "sk-aaaaaaaaaaaaaaaaaaaa",
            "hvs.",
            "aaaaaaaaaaaaaaaaaaaaaaaa",
            "ghp_",
            ".atlasv1.",
        ),
    ]
)
_TOKEN = re.compile(r"[A-Za-z0-9_\-.:/+=~@]{13,}")
_ANY_PROVIDER = re.compile("(?<![A-Za-z0-9])(?:" + "|".join(PROVIDERS) + ")")


@settings(deadline=None, max_examples=500, suppress_health_check=list(HealthCheck))
@given(st.lists(_PIECES, max_size=14).map("".join))
def test_credentials_are_those_that_one_pattern_of_all_shapes_finds(text: str) -> None:
    expected = [
        match.span()
        for token in _TOKEN.finditer(text)
        for match in _ANY_PROVIDER.finditer(text, token.start(), token.end())
    ]
    assert [(span.start, span.end) for span in providers_in(text)] == expected
