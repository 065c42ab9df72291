"""What no row knows, read by its words: a linear model over them, fitted on failures whose cause is
known.

A failure is told by its exception's type and message, the functions that raised it, and the lines
around it; all of them count as words, without the values, paths and names that differ from job to
job. Each word speaks for or against each class, and for or against its being met again after a
restart. Which mistake it is may be open while it is plain that it is one: what the classes of
mistakes have together tells that. The weights are data (`word_model.tsv`, written by `python -m
benchmarks.attribution_words --write`): one line a word. How often such readings were right on
failures held back from the fit stands in `confidence.toml`.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache
from importlib import resources
from itertools import pairwise

from aorta.attribution.events import Event
from aorta.attribution.meaning import plain, words_in
from aorta.attribution.policy import MISTAKES
from aorta.attribution.reading import LogLine, ReadableLog, cleaned, ends_of
from aorta.attribution.taxonomy import FailureClass
from aorta.attribution.tracebacks import FRAME, Frame

WEIGHTS = "word_model.tsv"
SCALE = 100  # weights are stored as whole numbers
MISTAKE = "mistake"
_BIAS = "(all)"
_TAIL = 8 << 10  # bytes of a log
_LINES = 12
_LONGEST = 1200  # characters of a message, and of a line around it
_TYPE = re.compile(r"^(?:[A-Za-z_]\w*\.)*(?P<kind>[A-Za-z_]\w*)(?::\s|:?$)")
_VALUE = re.compile(r"'[^'\s]{1,80}'|\"[^\"\s]{1,80}\"|`[^`\s]{1,80}`|\b0x[0-9a-fA-F]+\b")
_FIGURE = re.compile(r"\b\d{4,}\w*\b|\b\d+\.\d+\w*\b")
_WORD = re.compile(r"<\w+>|[a-z][a-z'+]*[a-z+]|\b\d{1,3}\b|!=|==")
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_ENDING = re.compile(r"(?:ations?|ings?|ions?|ed|es|s|ly|ment)$")
_PACKAGE = re.compile(r"(?:site|dist)-packages/(\w+)")
# How much each kind of word says beside the words of the message itself.
_OF_TYPE, _PAIR, _LATER, _AROUND, _AROUND_AN_EXCEPTION = 1.0, 0.7, 0.5, 0.5, 0.2
_NOTION, _TWO_NOTIONS, _INNER_FRAME, _OUTER_FRAME, _ALWAYS = 0.7, 0.5, 0.5, 0.2, 0.5
_INNERMOST = 3


@dataclass(frozen=True)
class Said:
    """What a failure says, without what differs from job to job."""

    kind: str = ""  # the type of its exception, without its module
    message: str = ""
    later: str = ""  # the lines under the message's first
    frames: tuple[str, ...] = ()  # `package file function`, outermost first
    around: tuple[str, ...] = ()  # the last lines of the log

    def as_dict(self) -> dict[str, object]:
        return {name: value for name, value in asdict(self).items() if value}


@dataclass(frozen=True)
class Guess:
    """The class that the words speak for most, how much, how much for being met again, and how much
    for all classes of mistakes together; all from 0 to 1, and to be measured."""

    failure_class: FailureClass
    share: float
    mistake: float
    mistakes: float


def said_by(event: Event | None, logs: Sequence[ReadableLog], rank: int | None) -> Said:
    """What an event and the last lines of its log say; without an event, the last lines of all
    logs; of this rank, where it is known.
    """
    sources = [log for log in logs if event is None or log == event.source] or logs
    own = (line for log in sources for line in _last_lines(log))
    lines = [line.text for line in own if rank is None or line.rank in {None, rank}][-_LINES:]
    raised = None if event is None else event.raised
    text = "" if event is None else (raised.exception if raised else event.text)
    shown = [Frame(f["file"], 0, f["function"] or "") for f in map(FRAME.match, lines) if f]
    frames = raised.frames if raised else shown
    around = [line for line in _statements(lines) if line not in text]
    return replace(
        said_of(text, raised is not None),
        frames=tuple(_frame_words(frame) for frame in frames),
        around=tuple(normalised(line) for line in around),
    )


def _statements(lines: Sequence[str]) -> Iterator[str]:
    """The lines that are neither frames of a traceback nor the source that is shown under one."""
    in_traceback = False
    for line in lines:
        is_frame = FRAME.match(line) is not None
        in_traceback = is_frame or (in_traceback and line.startswith("    "))
        if line.strip() and not in_traceback:
            yield line


def said_of(text: str, raised: bool) -> Said:
    """What a message says by itself."""
    first, _, rest = text.partition("\n")
    kind = _TYPE.match(first) if raised else None
    message = first[kind.end() :] if kind else first
    return Said(kind["kind"] if kind else "", normalised(message), normalised(rest))


def normalised(text: str) -> str:
    """A text as plain words, without the values, paths and figures that differ from job to job."""
    return _FIGURE.sub("#", plain(_VALUE.sub(" <value> ", text[:_LONGEST])))


def _last_lines(log: ReadableLog) -> list[LogLine]:
    rows = [row for row in re.split(r"[\r\n]+", ends_of(log, 0, _TAIL)[1]) if row.strip()]
    return [line for row in rows[-2 * _LINES :] for line in cleaned(row.encode(), log, 0)]


def _frame_words(frame: Frame) -> str:
    package = _PACKAGE.search(frame.file)
    file = frame.file.rsplit("/", 1)[-1].removesuffix(".py")
    return " ".join([package[1] if package else "-", file, frame.function.strip("<>")])


def features(said: Said) -> dict[str, float]:
    """The words of what was said, each with how much it counts; together always as much."""
    found: dict[str, float] = {_BIAS: _ALWAYS}
    for word, much in _weighted(said):
        found[word] = max(found.get(word, 0.0), much)
    length = math.sqrt(sum(much * much for much in found.values()))
    return {word: much / length for word, much in found.items()}


def _weighted(said: Said) -> Iterator[tuple[str, float]]:
    if said.kind:
        yield f"type:{said.kind}", _OF_TYPE
        yield from ((stem(part.lower()), 0.5) for part in _PART.findall(said.kind))
    yield from _of_text(said.message, 1.0)
    yield from _of_text(said.later, _LATER)
    yield from _of_frames(said.frames)
    for line in said.around:
        yield from _of_text(line, _AROUND_AN_EXCEPTION if said.kind else _AROUND)


def _of_text(text: str, much: float) -> Iterator[tuple[str, float]]:
    words = [stem(word) for word in _WORD.findall(text)]
    yield from ((word, much) for word in words)
    yield from ((f"{one} {two}", much * _PAIR) for one, two in pairwise(words))
    for clause in re.split(r"(?<=[\w)'\"\]>])[.!?;]\s+", text):
        notions = sorted(words_in(clause))
        yield from ((f"notion:{one}", much * _NOTION) for one in notions)
        pairs = ((one, two) for i, one in enumerate(notions) for two in notions[i + 1 :])
        yield from ((f"notion:{one}+{two}", much * _TWO_NOTIONS) for one, two in pairs)


def _of_frames(frames: Sequence[str]) -> Iterator[tuple[str, float]]:
    inner = len(frames) - _INNERMOST
    for index, frame in enumerate(frames):
        package, _, rest = frame.partition(" ")
        much = _INNER_FRAME if index >= inner else _OUTER_FRAME
        if package != "-" and index >= inner:
            yield f"package:{package}", much
        yield from ((f"in:{word}", much) for word in re.findall("[a-z]+", rest.lower()))


@lru_cache(maxsize=4096)
def stem(word: str) -> str:
    """A word without its ending, roughly: `failed`, `fails` and `fail` are one."""
    if len(word) <= 5:
        return word.rstrip("s") if len(word) > 3 else word
    short = _ENDING.sub("", word)
    return short if len(short) >= 3 else word


class WordModel:
    """Weights of words: `rows` holds for each word its `column:weight` entries, taken apart only
    where it is said.

    The last column speaks of being met again, the others of classes.
    """

    def __init__(self, columns: Sequence[str], rows: Mapping[str, str]) -> None:
        self.columns = tuple(columns)
        self._rows = rows

    def guess(self, said: Said) -> Guess:
        sums = [0.0] * len(self.columns)
        for word, much in features(said).items():
            for entry in self._rows.get(word, "").split():
                column, _, weight = entry.partition(":")
                sums[int(column)] += much * int(weight) / SCALE
        return guessed(dict(zip(self.columns, sums, strict=True)))


def guessed(sums: Mapping[str, float]) -> Guess:
    """What words come to that speak so much for each column."""
    classes = {name: total for name, total in sums.items() if name != MISTAKE}
    best = max(classes, key=lambda name: classes[name])
    shares = {name: math.exp(total - classes[best]) for name, total in classes.items()}
    whole = sum(shares.values())
    mistakes = sum(share for name, share in shares.items() if name in MISTAKES)
    met_again = 1.0 / (1.0 + math.exp(-sums[MISTAKE]))
    return Guess(FailureClass(best), 1.0 / whole, met_again, mistakes / whole)


def word_model(text: str) -> WordModel:
    """The model in a file's text: its columns, then a line a word."""
    head, *lines = text.splitlines()
    rows = (line.partition("\t") for line in lines)
    return WordModel(head.split(), {word: entries for word, _, entries in rows})


@cache
def fitted_model() -> WordModel:
    return word_model(
        resources.files("aorta.attribution").joinpath(WEIGHTS).read_text(encoding="utf-8")
    )
