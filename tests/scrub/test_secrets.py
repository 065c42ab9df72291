"""What looks like a secret is taken out; what does not stays; and no text is too long to be looked at."""

import pytest

from aorta.scrub.secrets import REDACTED, safe_value, without_secrets


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
