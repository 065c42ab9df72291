"""`aorta reduce init`: runs a command once and writes a first spec from how it really failed."""

import os
import re
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta.core.documents import dump_yaml
from aorta.core.durations import show_duration
from aorta.core.errors import NoAnswerError, UsageError
from aorta.core.oracle import checked_pattern, status_words
from aorta.core.trial import TrialEnd, TrialSpec
from aorta.core.words import error_line_of
from aorta.executors import Executor
from aorta.reduce.proposals import Proposal, proposal_for

_LONGEST_PATTERN = 160
_VARYING = re.compile(
    # The folder of a file is another one where its reduced copy lies.
    r"(?P<path>(?:[\w.~+-]*/)+(?P<file>[\w.+-]+)|(?<![\w.])\w[\w-]*\.[A-Za-z]\w{1,5}(?![\w.(]))"
    r"|(?P<address>0x[0-9a-fA-F]+)|[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
)
_MARKED_BY_PYTEST = re.compile(r"^E   +(\S.*)$", re.MULTILINE)
_PREFIX = re.compile(r"^\s*\[?(?:rank|default)\s*\d+\]?\s*:\s*")
_HEADER = """\
# What may shrink, and what counts as the failure. Check both, then:
#   aorta reduce --spec {file} --output reduce/MY-TICKET
# Paths are relative to this file.
"""
_BUDGET = """\
# Without trials_per_candidate and k_of_n_to_count_as_reproducing the failure rate is measured
# first, and the number of trials follows from it.
budget:
  max_wall_clock: 4h
"""
_AXES = """\
# One axis a thing that may get smaller. The variables reach the command through its environment.
# Other kinds: list ("a,b,c"), window (start and length), dir_subset, file_subset, world_size,
# ranks, env with type: float, or type: choice and choices: [original, ..., most wanted].
"""
_NO_AXES = """\
# Nothing was found that can be set from outside. Let the command read a variable, and name it here:
#  - name: NUM_STEPS
#    kind: env
#    type: int
#    initial: 5000
#    floor: 50
axes: []
"""


@dataclass(frozen=True)
class Draft:
    text: str
    oracle: dict[str, Any]
    failed: bool
    said: str  # how the command ended, in a few words
    axes: int


def draft_spec(
    words: tuple[str, ...], file: Path, executor: Executor, timeout: float | None
) -> Draft:
    """Run it once, look at its end, and write down what that suggests."""
    cwd = Path.cwd()
    proposal = proposal_for(words, cwd)
    with tempfile.TemporaryDirectory(prefix="aorta-init-") as scratch, closing(executor):
        trial = TrialSpec(words, Path(scratch), cwd, id="init", timeout=timeout)
        executor.start(trial)
        end = next(iter(executor.wait()))
        said, oracle = oracle_from(end)
    text = _text(proposal, oracle, said, file)
    return Draft(text, oracle, end.failed or end.timed_out, said, len(proposal.axes))


def oracle_from(end: TrialEnd) -> tuple[str, dict[str, Any]]:
    if end.lost is not None:
        raise NoAnswerError(f"the command could not be run: {end.lost}")
    if end.timed_out:
        return f"did not end in {show_duration(end.duration)}", _hang(end)
    for stream in (end.stderr, end.stdout):
        pattern = pattern_for(_assertion_of(stream.tail) or error_line_of(stream.tail))
        if pattern is not None and (end.failed or stream is end.stdout):
            name = "stderr" if stream is end.stderr else "stdout"
            return _status(end), {"kind": "regex", "pattern": pattern, "stream": name}
    if end.signal is not None:
        return _status(end), {"kind": "exit_code", "codes": [-end.signal]}
    return _status(end), {"kind": "exit_code"}


def _assertion_of(text: str) -> str:
    """The last line that pytest marks as failing: its summary is always printed."""
    marked = [found[1] for found in _MARKED_BY_PYTEST.finditer(text)]
    named = [line for line in marked if re.match(r"[\w.]*(?:Error|Exception|Failed)\b", line)]
    return (named or marked or [""])[-1 if named else 0]


def pattern_for(line: str) -> str | None:
    """A pattern for this line with any numbers and addresses; None where nothing is left."""
    text = _PREFIX.sub("", line).strip()[:_LONGEST_PATTERN]
    pattern, at = "", 0
    for match in _VARYING.finditer(text):
        pattern += re.escape(text[at : match.start()])
        if match["path"]:
            pattern += rf"\S*{re.escape(match['file'] or match['path'])}"
        else:
            pattern += "0x[0-9a-fA-F]+" if match["address"] else r"[-+\d.eE]+"
        at = match.end()
    pattern = (pattern + re.escape(text[at:])).replace("\\ ", " ")
    if not re.search(r"[A-Za-z]{3}", _VARYING.sub("", text)):
        return None
    try:
        return checked_pattern(pattern)
    except UsageError:
        return None


def _hang(end: TrialEnd) -> dict[str, Any]:
    last = max((s.last_at for s in (end.stdout, end.stderr) if s.last_at is not None), default=0.0)
    silent = end.duration - last
    if silent > end.duration / 2:
        return {"kind": "hang", "silent_for": f"{max(1, int(silent / 2))}s"}
    return {"kind": "hang", "longer_than": f"{max(1, int(end.duration))}s"}


def _status(end: TrialEnd) -> str:
    return f"ended with {status_words(end)}"


def _text(proposal: Proposal, oracle: dict[str, Any], said: str, file: Path) -> str:
    cwd = os.path.relpath(Path.cwd(), file.absolute().parent)
    axes = [dict(axis) for axis in proposal.axes]
    return "".join(
        [
            _HEADER.format(file=file),
            dump_yaml({"workload": {"command": proposal.command, "cwd": cwd}}),
            f"# Run once, it {said}.\n",
            dump_yaml({"oracle": oracle}),
            _BUDGET,
            _AXES,
            dump_yaml({"axes": axes}) if axes else _NO_AXES,
        ]
    )
