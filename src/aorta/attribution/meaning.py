"""What a message says, read as a sentence: what it speaks of, and what it says of it.

Every library words its errors in its own way, but they speak of few things (a file, a setting, a
peer, device memory) and say few things of them (it is not there, is not accepted, was lost, ran
out). A row on `sentence` names such a pair; this module finds the nouns and verbs of `lexicon.toml`
in a text. It knows nothing of rows, classes or tracebacks.
"""

import re
import tomllib
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from importlib import resources

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
_CLAUSE = re.compile(
    r"(?<=[\w)'\"\]`>])[.!?;]\s+|\s*\n\s*|,? (?:but|so|because|please) (?=you |try |make |check |"
    r"see )"
)
_ASIDE = re.compile(
    r"(?i)\W*(?:hints?|notes?|tips?|please|if|consider|try|see|for|to|in addition|or|make sure|"
    r"perhaps|maybe|this (?:may|might|could|can|usually)|"
    r"you (?:can|may|might|could)|it (?:may|might|could)|alternatively|possible|for example|"
    r"usually|check|did you forget)\b"
)
_ENDINGS = {
    "<weights>": {"pt", "pth", "ckpt", "safetensors", "pdparams", "h5", "hdf5", "gguf", "onnx", "engine", "plan", "nemo", "msgpack", "keras", "pb", "params"},
    "<data>": {"parquet", "arrow", "tfrecord", "tfrecords", "mds", "tar", "jsonl", "csv", "tsv", "jpg", "jpeg", "png", "wav", "flac", "mp3", "mp4", "npy", "npz", "lmdb", "zst", "gz", "rec", "idx"},
    "": {"json", "yaml", "yml", "toml", "cfg", "ini", "txt", "bin", "model", "zip", "sh", "log", "lock", "pkl", "pickle", "conf", "db", "index", "xml"},
}  # fmt: skip
_KINDS = {ending: kind for kind, endings in _ENDINGS.items() for ending in endings}
_LONGEST = 1200  # characters of a message that are read as sentences


@cache
def _lexicon() -> dict[str, re.Pattern[str]]:
    text = resources.files("aorta.attribution").joinpath("lexicon.toml").read_text(encoding="utf-8")
    words = tomllib.loads(text)
    named = {**words["nouns"], **words["verbs"]}
    return {
        name: re.compile(rf"(?<![\w<])(?:{pattern})(?![\w>])") for name, pattern in named.items()
    }


def known_words() -> frozenset[str]:
    return frozenset(_lexicon())


def says(text: str, needed: Sequence[Sequence[str]], never: Iterable[str]) -> bool:
    """Whether one clause of a text holds a word of each of these groups, and the text none that it
    must not hold.
    """
    clauses = clauses_of(text)
    if any(word in clause for word in never for clause in clauses):
        return False
    return any(all(any(word in clause for word in group) for group in needed) for clause in clauses)


def speaks_of(text: str, word: str) -> bool:
    """Whether a word of the lexicon stands anywhere in a text, in advice too."""
    return _lexicon()[word].search(plain(text[:_LONGEST])) is not None


@lru_cache(maxsize=256)
def clauses_of(text: str) -> tuple[frozenset[str], ...]:
    """The nouns and verbs of each clause. What only advises, or says what may be, is no
    statement.
    """
    stated = [part for part in _CLAUSE.split(text[:_LONGEST]) if part.strip()]
    told = [part for index, part in enumerate(stated) if index == 0 or not _ASIDE.match(part)]
    return tuple(words_in(plain(part)) for part in told)


def words_in(clause: str) -> frozenset[str]:
    """The nouns and verbs of a clause that is plain already."""
    return frozenset(name for name, pattern in _lexicon().items() if pattern.search(clause))


def plain(text: str) -> str:
    """A text as lower-case words: identifiers spelled out, and what has a form of its own by the
    name of that form.
    """
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
