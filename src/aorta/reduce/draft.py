"""`aorta reduce init`: runs a command once and writes a first spec from how it really failed."""

import os
import re
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

from aorta.core.documents import dump_yaml
from aorta.core.durations import show_duration
from aorta.core.errors import NoAnswerError, UsageError
from aorta.core.oracle import checked_pattern, status_words
from aorta.core.templates import ANYTHING, is_error, lines_of, template, words_in
from aorta.core.trial import TrialEnd, TrialSpec
from aorta.executors import Executor
from aorta.reduce.proposals import Proposal, proposal_for
from aorta.workloads.startable import check_startable

_LONGEST_PATTERN = 160
_ANYTHING = ".{1,80}?"
_FILE = re.compile(r"(?<![\w.])\w[\w-]*\.[A-Za-z]\w{1,5}(?![\w.(])")
_FIRST_SENTENCE = re.compile(r".{12,}?[.;](?= [A-Z])")
# A spec with places for what was found; behind the second document's mark its end without axes.
_TEMPLATE = Path(__file__).with_name("draft.yaml")


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
    check_startable(words, cwd)
    proposal = proposal_for(words, cwd)
    with tempfile.TemporaryDirectory(prefix="aorta-init-") as scratch, closing(executor):
        trial = TrialSpec(words, Path(scratch), cwd, id="init", timeout=timeout)
        executor.start(trial)
        end = next(iter(executor.wait()))
        said, oracle = oracle_from(end)
    text = _text(proposal, oracle, said, file)
    return Draft(text, oracle, end.failed or end.timed_out, said, len(proposal.axes))


def oracle_from(end: TrialEnd) -> tuple[str, dict[str, Any]]:
    """How it ended, and an oracle: a pattern if it ended well, else the exit code, of which
    `same_failure` says which failure is meant.
    """
    if end.lost is not None:
        raise NoAnswerError(f"the command could not be run: {end.lost}")
    said = f"ended with {status_words(end)}"
    if end.timed_out:
        shown = [s.last_at for s in (end.stdout, end.stderr) if s.last_at is not None]
        silent = end.duration - max(shown, default=0.0)
        oracle = {"kind": "hang", "longer_than": f"{max(1, int(end.duration))}s"}
        if silent > end.duration / 2:
            oracle = {"kind": "hang", "silent_for": f"{max(1, int(silent / 2))}s"}
        return f"did not end in {show_duration(end.duration)}", oracle
    if end.signal is not None:
        return said, {"kind": "exit_code", "codes": [-end.signal]}
    errors = [] if end.failed else [line for line in lines_of(end.stdout.tail) if is_error(line)]
    pattern = pattern_for(errors[-1]) if errors else None
    if pattern is not None:
        return said, {"kind": "regex", "pattern": pattern, "stream": "stdout"}
    return said, {"kind": "exit_code"}


def pattern_for(line: str) -> str | None:
    """A pattern for the first sentence of this line, with anything where its template has a slot
    and any folder before a file; None where nothing is left.

    >>> pattern_for("OutOfMemoryError: Tried to allocate 1.5 GiB. GPU 0 has 139 GiB")
    'OutOfMemoryError: Tried to allocate .{1,80}?\\\\.'
    """
    text = template(line)
    first = _FIRST_SENTENCE.match(text)
    text = (first[0] if first else text)[:_LONGEST_PATTERN]
    if not any(re.search("[A-Za-z]{3}", word) for word in words_in(text)):
        return None
    fixed = text.removeprefix(ANYTHING).removesuffix(ANYTHING).strip().split(ANYTHING)
    try:
        return checked_pattern(_ANYTHING.join(map(_in_any_folder, fixed)))
    except UsageError:
        return None


def _in_any_folder(text: str) -> str:
    """A pattern for this text; where its template lost a folder there may be one again."""
    parts = re.split(f"({_FILE.pattern})", text)  # every second one is a file
    escaped = [re.escape(part).replace("\\ ", " ") for part in parts]
    return "".join(rf"\S*{part}" if at % 2 else part for at, part in enumerate(escaped))


def _text(proposal: Proposal, oracle: dict[str, Any], said: str, file: Path) -> str:
    cwd = os.path.relpath(Path.cwd(), file.absolute().parent)
    axes = [dict(axis) for axis in proposal.axes]
    whole, _, no_axes = _TEMPLATE.read_text("utf-8").partition("---\n")
    return Template(whole).substitute(
        file=file,
        workload=dump_yaml({"workload": {"command": proposal.command, "cwd": cwd}}),
        said=said,
        oracle=dump_yaml({"oracle": oracle}),
        axes=dump_yaml({"axes": axes}) if axes else no_axes,
    )
