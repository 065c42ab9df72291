"""A linear model of the words of a failure, for what no pattern is certain of.

`Said` (exception type and message, last lines of the log) -> `Guess` (a class and how sure it is).
The weights (`model.tsv`, `python -m benchmarks.attribution_model --write`) are calibrated on
failures held back from the fit.
"""

import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import resources
from itertools import combinations, pairwise

from aorta.attribution.documents import USER_ERRORS, Certainty, FailureClass
from aorta.attribution.events import ANY_EXCEPTION, QUOTED, Event
from aorta.attribution.logs import ReadableLog, cleaned, tail_of
from aorta.attribution.logs.prefixes import LogLine
from aorta.core.raised import FRAME

WEIGHTS = "model.tsv"
SCALE = 100  # weights are stored as whole numbers
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
_URL = re.compile(r"\bhttps?://\S+")
_OBJECT = re.compile(r"\b(?:s3|gs|gcs|hdfs|az|abfss?|oss|file|dbfs|r2)://[^\s'\"`,;)\]]*")
_PATH = re.compile(r"(?:(?<=[\s'\"`(=:\[<,])|^)(?:~|\.{1,2})?/[\w.@%+~{}*-]+(?:/[\w.@%+~{}*-]*)*")
_SOURCE = re.compile(
    r"[\w./-]+\.(?:cc|cpp|cu|cuh|h|hpp|rs|go|java|jl|py|scala)(?:[:(]\d+\)?)?"
)  # where in a program
_PASSING_PATH = re.compile(r"^/(?:tmp|run|proc|dev/shm|var/run)/|\.(?:tmp|lock|incomplete|part)\b")
_NAME = re.compile(r"\b[\w./-]*\w\.(?P<ending>[a-z][a-z0-9]{1,12})\b")
_LIBRARY = re.compile(r"\b[\w./+-]+\.so(?:\.\d+)*\b|\b[\w-]+\.(?:dll|dylib)\b")
_OPTION = re.compile(r"(?:(?<=[\s'\"`(=\[,])|^)--?[a-z][\w-]+")
_SETTING = re.compile(
    r"`[A-Za-z_][\w.]*(?:=[^`]*)?`|\b[a-z]\w*_\w+ ?(?:=(?!=)|\(\d+\))|"
    r"['\"][a-z]+(?:[_.][a-z0-9]+)+['\"]"
    r"|\b[A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+(?==| environment| is not set)"
)
_IDENTIFIER = re.compile(r"(?<![\w<.`'\"=])[a-z]+(?:_[a-z0-9]+)+\b(?!\.| ?\()")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z][a-z])|(?<=[a-z])(?=[A-Z])")
_ENDINGS = {
    "<weights>": "pt pth ckpt safetensors pdparams h5 hdf5 gguf onnx engine plan nemo msgpack "
    "keras pb params",
    "<data>": "parquet arrow tfrecord tfrecords mds tar jsonl csv tsv jpg jpeg png wav flac mp3 "
    "mp4 npy npz lmdb zst gz rec idx",
    "": "json yaml yml toml cfg ini txt bin model zip sh log lock pkl pickle conf db index xml",
}
_KINDS = {ending: kind for kind, endings in _ENDINGS.items() for ending in endings.split()}
# How much each kind of word says beside the words of the message itself.
_OF_TYPE, _PAIR, _LATER, _AROUND, _AROUND_AN_EXCEPTION = 1.0, 0.7, 0.5, 0.5, 0.2
_NOTION, _TWO_NOTIONS, _ALWAYS = 0.7, 0.5, 0.5
# What a scheduler's own commands write is no word of the job: patterns know it.
OF_THE_SCHEDULER = re.compile(r"(?:srun|slurmstepd\S*|sbatch|salloc): (?!.*(?:pyxis|enroot))")
# Types that say the program is wrong, whatever their words speak of.
OF_THE_PROGRAM = re.compile(
    r"(?:Attribute|Name|Index|Type|UnboundLocal|ZeroDivision|Recursion|StopIteration|"
    r"Tracer\w*)Error\b|KeyError(?:: \S+)?$"
)
# Notions of which words alone stop no job: another node or another hour may not show it.
_NOT_ITS_OWN = ("passing", "device", "kernel", "credential", "peer")
# The notions without which an assertion is none of these.
_ASSERTED = (
    (USER_ERRORS, ("setting", "written_path", "weights", "module", "version")),
    ({FailureClass.DATA_ERROR}, ("record", "written_path")),
    ({FailureClass.NAN}, ("gone_bad",)),
)
# How often a type that blames the program was no more than that: 82 of 232 reports.
_OF_PROGRAM_TYPE = 0.36
_LIKELY = 0.8
_SAYS_NOTHING = {FailureClass.USER_EXCEPTION, FailureClass.UNKNOWN}


@dataclass(frozen=True)
class Said:
    """What a failure says, without what differs from job to job."""

    kind: str = ""  # the type of its exception, without its module
    message: str = ""
    later: str = ""  # the lines under the message's first
    around: tuple[str, ...] = ()  # the last lines of the log


@dataclass(frozen=True)
class Guess:
    """The class that words speak for most; how sure that is, and that it is some user error."""

    failure_class: FailureClass
    confidence: float
    user_error: float


def said_by(event: Event | None, logs: Sequence[ReadableLog], rank: int | None) -> Said:
    """What an event and the last lines of its log, or of all logs, say; of this rank, if known."""
    sources = [log for log in logs if event is None or log == event.source] or logs
    raised = None if event is None else event.raised
    text = "" if event is None else (raised.exception if raised else event.text)
    around = (line for line in _statements(last_lines(sources, rank)) if line not in text)
    said = said_of(text, raised is not None)
    return replace(said, around=tuple(normalised(line) for line in around))


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


def last_lines(logs: Sequence[ReadableLog], rank: int | None) -> list[str]:
    """The last lines of these logs that are a rank's own, or nobody's; of all without a rank."""
    own: list[LogLine] = []
    for log in logs:
        rows = [row for row in re.split(r"[\r\n]+", tail_of(log, _TAIL)) if row.strip()]
        rows = [row for row in rows if OF_THE_SCHEDULER.match(row) is None][-2 * _LINES :]
        own += (line for row in rows for line in cleaned(row.encode(), log, 0))
    return [line.text for line in own if rank is None or line.rank in {None, rank}][-_LINES:]


def plain(text: str) -> str:
    """A text as lower-case words; paths, options, names and the like by the name of their form."""
    text = _URL.sub(" <url> ", text)
    text = _LIBRARY.sub(" <library> ", text)
    text = _SOURCE.sub(" ", text)
    text = _OBJECT.sub(_path_of, text)
    text = _PATH.sub(_path_of, text)
    text = _NAME.sub(_named, text)
    text = _OPTION.sub(lambda found: f" <option> {found[0].lstrip('-')} ", text)
    text = _IDENTIFIER.sub(lambda found: f" <name> {found[0]} ", text)
    text = _SETTING.sub(lambda found: f" <setting> {found[0]} ", text)
    text = _HUMP.sub(" ", text.replace("_", " "))
    return " ".join(text.lower().replace("`", " ").split())


def _path_of(found: re.Match[str]) -> str:
    ending = found[0].rstrip("'\".,:)").rpartition(".")[2]
    passing = "<passing>" if _PASSING_PATH.search(found[0]) else ""
    return f" <path> {_KINDS.get(ending, '')} {passing} "


def _named(found: re.Match[str]) -> str:
    kind = _KINDS.get(found["ending"])
    return found[0] if kind is None else f" <path> {kind} "


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
    for line in said.around:
        yield from _of_text(line, _AROUND_AN_EXCEPTION if said.kind else _AROUND)


def _of_text(text: str, much: float) -> Iterator[tuple[str, float]]:
    words = [stem(word) for word in _WORD.findall(text)]
    yield from ((word, much) for word in words)
    yield from ((f"{one} {two}", much * _PAIR) for one, two in pairwise(words))
    notions = sorted(name for name, regex in _lexicon().items() if regex.search(text))
    yield from ((f"notion:{one}", much * _NOTION) for one in notions)
    pairs = combinations(notions, 2)
    yield from ((f"notion:{one}+{two}", much * _TWO_NOTIONS) for one, two in pairs)


@cache
def _lexicon() -> dict[str, re.Pattern[str]]:
    """What messages speak of, in the words any system uses: worth a point of class."""
    words = tomllib.loads(_data("lexicon.toml"))
    notions = {**words["nouns"], **words["verbs"]}
    return {name: re.compile(rf"(?<![\w<])(?:{regex})(?![\w>])") for name, regex in notions.items()}


@lru_cache(maxsize=4096)
def stem(word: str) -> str:
    """A word without its ending, roughly: `failed`, `fails` and `fail` are one."""
    if len(word) <= 5:
        return word.rstrip("s") if len(word) > 3 else word
    short = _ENDING.sub("", word)
    return short if len(short) >= 3 else word


@dataclass(frozen=True)
class ConfidenceFit:
    """How a share that the model states is turned into how often such shares were right."""

    slope: float = 1.0
    offset: float = 0.0

    def __call__(self, share: float) -> float:
        bounded = min(max(share, 1e-6), 1 - 1e-6)
        odds = self.slope * math.log(bounded / (1 - bounded)) + self.offset
        return 1 / (1 + math.exp(-odds))


@cache
def _model() -> tuple[list[str], dict[str, str], ConfidenceFit, ConfidenceFit]:
    """From `model.tsv`: classes, weights by word, and how sure of a class and of a user error."""
    classes, calibrations, *lines = _data(WEIGHTS).splitlines()
    numbers = [float(number) for number in calibrations.split()]
    weights = {word: entries for word, _, entries in (line.partition("\t") for line in lines)}
    return classes.split(), weights, ConfidenceFit(*numbers[:2]), ConfidenceFit(*numbers[2:])


def _data(name: str) -> str:
    return resources.files("aorta.attribution").joinpath(name).read_text(encoding="utf-8")


def shares_of(sums: Mapping[str, float], said: Said) -> tuple[FailureClass, float, float]:
    """The class that has most, its share, and the share of all user errors together. Of an
    assertion only what it speaks of counts: the rest is an assertion.
    """
    most = max(sums.values())
    parts = {name: math.exp(total - most) for name, total in sums.items()}
    whole = sum(parts.values())
    if said.kind == "AssertionError":
        for kinds, notions in _ASSERTED:
            if not _speaks_of(said.message, notions):
                unnamed = sum(parts.pop(name, 0.0) for name in kinds)
                parts[FailureClass.ASSERTION] += unnamed
    best = max(parts, key=lambda name: parts[name])
    user_errors = sum(part for name, part in parts.items() if name in USER_ERRORS)
    return FailureClass(best), parts[best] / whole, user_errors / whole


@lru_cache(maxsize=4096)  # what ended one rank ended many
def classified(said: Said) -> Guess:
    """What a failure is by its words. Types that blame the program are taken at their word."""
    if said.kind and OF_THE_PROGRAM.match(f"{said.kind}: {said.message}".removesuffix(": ")):
        return Guess(FailureClass.USER_EXCEPTION, _OF_PROGRAM_TYPE, 0.0)
    classes, weights, of_class, of_user_error = _model()
    sums = dict.fromkeys(classes, 0.0)
    for word, much in features(said).items():
        for entry in weights.get(word, "").split():
            column, _, weight = entry.partition(":")
            sums[classes[int(column)]] += much * int(weight) / SCALE
    best, share, user_error = shares_of(sums, said)
    return Guess(best, of_class(share), of_user_error(user_error))


def may_stop(said: Said, failure_class: FailureClass) -> bool:
    """Whether words may end a job: of nothing that comes and goes or is another's."""
    own = failure_class in USER_ERRORS and failure_class is not FailureClass.CHECKPOINT_CORRUPT
    text = f"{said.message} {said.later}"
    return bool(said.kind) and own and not _speaks_of(text, _NOT_ITS_OWN)


def _speaks_of(text: str, notions: Iterable[str]) -> bool:
    return any(_lexicon()[notion].search(text) for notion in notions)


def comes_and_goes(headline: str) -> bool:
    """Whether an exception speaks of what may be gone after a restart: caches, locks, ranks."""
    return _speaks_of(plain(headline.partition(": ")[2]), ["passing"])


def named(events: Iterable[Event]) -> tuple[Event, ...]:
    """The events, with the classes of exceptions. What is quoted and says nothing is left out."""
    return tuple(event for each in events if (event := _with_class(each)) is not None)


def _with_class(event: Event) -> Event | None:
    if event.pattern not in {ANY_EXCEPTION, QUOTED}:
        return event
    guess = classified(said_by(event, (), None))
    if event.pattern == QUOTED and guess.failure_class in _SAYS_NOTHING:
        return None
    certainty = Certainty.LIKELY if guess.confidence >= _LIKELY else Certainty.WEAK
    return replace(event, failure_class=guess.failure_class, certainty=certainty)
