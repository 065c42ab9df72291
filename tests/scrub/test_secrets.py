"""What looks like a secret is taken out; what does not stays; and no text is too long to be looked
at.
"""

import re
from pathlib import Path

import pytest

from aorta.scrub.findings import PLACEHOLDER, Kind, without_overlap
from aorta.scrub.known import KnownValues
from aorta.scrub.scrubber import Scrubber
from aorta.scrub.secrets import REDACTED, safe_value, without_secrets

LINES = sorted((Path(__file__).parent / "lines").glob("*.txt"))
_MARKED = re.compile("⟦(.*?)⟧", re.DOTALL)


def cases(file: Path) -> list[str]:
    """A case is a line; one that goes over several lines is indented below `>>>`."""
    found: list[str] = []
    for line in file.read_text("utf-8").splitlines():
        if line == ">>>":
            found.append("")
        elif line.startswith("    ") and found:
            found[-1] += f"{line[4:]}\n"
        elif line and not line.startswith("## "):
            found.append(line)
    return found


@pytest.mark.parametrize("file", LINES, ids=lambda file: file.stem)
def test_exactly_what_is_marked_goes(file: Path) -> None:
    """`⟦…⟧` marks what must go from a line of the file; the rest of it must stay."""
    for case in cases(file):
        text = _MARKED.sub(r"\1", case).replace("<NBSP>", "\u00a0")
        scrubber = Scrubber()
        scrubber.learn(text)
        after = PLACEHOLDER.sub("⟦⟧", scrubber.text(text).text)
        assert after == _MARKED.sub("⟦⟧", case).replace("<NBSP>", "\u00a0"), case


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


@pytest.mark.parametrize(
    "piece",
    [
        "x",
        "-eyJaaaaaaaa",
        "://a",
        "aB1",
        "hf_",
        "-----BEGIN ",
        "password",
        "password: ",
        "key=",
        "'",
    ],
)
def test_a_text_made_to_be_slow_is_looked_at_in_one_pass(piece: str) -> None:
    assert safe_value("X", piece * (50_000 // len(piece)))


@pytest.mark.parametrize(
    "recorded",
    [
        "RuntimeError: could not use quagga4<*>rhubarb in time",
        r"pattern: could not use quagga[-+\d.eE]+rhubarb in time",
        "login of zebra-quartz-<*> refused",
        r"zebra\-quartz\-[-+\d.eE]+ refused",
    ],
)
def test_a_secret_is_found_though_a_recorded_failure_lost_its_digits(recorded: str) -> None:
    known = KnownValues()
    known.add(Kind.CREDENTIAL, "quagga4711rhubarb")
    known.add(Kind.CREDENTIAL, "zebra-quartz-77ab")
    [span] = without_overlap(known.found_in(recorded), recorded)
    left = recorded[: span.start] + recorded[span.end :]
    assert not {"quagga", "rhubarb", "zebra", "quartz"} & set(re.findall("[a-z]+", left))
