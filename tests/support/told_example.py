"""The example that the documents tell, and the check that what they tell is what the tool says.

Between `<!-- example -->` and `<!-- /example -->` every line of a fenced block is a line of the
real output, in its order; a line `...` stands for lines that are left out. Times and the registry's
port differ from run to run and are folded away.
"""

import re
from collections.abc import Sequence
from pathlib import Path

DAYS = tuple(
    f"2024-{day}"
    for day in (
        *("08-28", "09-03", "09-06", "09-09", "09-12", "09-15", "09-16", "09-17", "09-18", "09-19"),
        *("09-20", "09-21", "09-27", "10-03", "10-06", "10-09", "10-12", "10-13", "10-14", "10-15"),
    )
)
FIRST_BAD = "2024-09-19"
ARGUMENTS = ("bisect", "--container", "jax", "--container-url-template")
COMMAND = ("--output-prefix", "triage", "--", "test-jax.sh", "//tests:nn_test_gpu")

_EXAMPLE = re.compile(r"<!-- example -->(.*?)<!-- /example -->", re.DOTALL)
_BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FOLDED = (
    (re.compile(r"^\[ *[\d.]+m?s\] "), "[time] "),
    (re.compile(r"\b[\d.]+m?s\b(?= \(|$)"), "time"),
    (re.compile(r"127\.0\.0\.1:\d+"), "registry"),
    (re.compile(r"(report:|written to) \S+/"), r"\1 "),
)


def told_lines(document: Path) -> list[str]:
    """Every line of output that the document shows, the command lines left out."""
    found = _EXAMPLE.findall(document.read_text(encoding="utf-8"))
    lines = [
        line for text in found for block in _BLOCK.findall(text) for line in block.splitlines()
    ]
    return [line for line in lines if not line.startswith(("$ ", "    "))]


def untold(told: Sequence[str], said: Sequence[str]) -> list[str]:
    """The lines of a document that the output does not bear out, in order; empty if it is all
    true.
    """
    output = [folded(line) for line in said]
    wrong: list[str] = []
    place, anywhere = 0, False
    for line in told:
        if line == "...":
            anywhere = True
            continue
        wanted = folded(line)
        until = len(output) if anywhere else place + 1
        found = next(
            (i for i in range(place, min(until, len(output))) if output[i] == wanted), None
        )
        if found is None:
            wrong.append(line)
        else:
            place, anywhere = found + 1, False
    return wrong


def folded(line: str) -> str:
    for noise, stand_in in _FOLDED:
        line = noise.sub(stand_in, line)
    return line.rstrip()
