"""Files on their way out: our documents by field (one table for all schemas), others as text."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property, partial
from typing import Any

import yaml

from aorta.core.documents import Dumper, Loader, doubled_key
from aorta.core.errors import AortaError
from aorta.core.failure import reworded, wordings
from aorta.core.names import path_of
from aorta.scrub import vocabulary
from aorta.scrub.addresses import is_generic, is_public_domain
from aorta.scrub.findings import GROUPS, PLACEHOLDER, Kind, as_plain_word
from aorta.scrub.known import OUR_NAMES
from aorta.scrub.scrubber import Replacement, Scrubbed, Scrubber

_JSON, _JSON_LINES, _YAML = (".json",), (".jsonl", ".ndjson"), (".yaml", ".yml")
_SHELL, _CODE = (".sh", ".bash"), (".py",)
_LONGEST_TEXT = 4 << 20  # a longer one is looked at in parts
_MOST_SPANS = 500  # kept of one file for people; all are counted
# The end of a line that does not belong together with the next one.
_END_OF_TEXT = re.compile(rb"\n(?<![:=|>\\,({\[\-+]\n)(?<![A-Za-z0-9+/=]{40}\n)(?![ \t])")
_CONTROL = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f]")


class NotTextError(ValueError):
    """These bytes are no text."""


def as_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


_PROGRAMS = ("shrunken/*", "*/shrunken/*", "workload/*", "*/workload/*")


def is_program(path: str) -> bool:
    """What is run where it ships: there a placeholder is a plain word, as in the name of a file."""
    return any(fnmatchcase(path, glob) for glob in _PROGRAMS)


@dataclass
class Account:
    counts: Counter[Kind] = field(default_factory=Counter)
    spans: list[Replacement] = field(default_factory=list)

    def add(self, scrubbed: Scrubbed) -> None:
        self.counts.update(one.kind for one in scrubbed.taken)
        self.spans += scrubbed.taken[: _MOST_SPANS - len(self.spans)]

    @property
    def groups(self) -> dict[str, int]:
        """By group, without those of which nothing was taken out."""
        return dict(Counter(GROUPS[kind] for kind in self.counts.elements()))


@dataclass(frozen=True)
class FileScrubber:
    """Learn from files, then scrub them. `ours`: a document that we wrote; one that tells of a
    failure comes after the program, and then says what is left of what that `printed`. Raises
    NotTextError.
    """

    scrubber: Scrubber
    printed: Iterable[str] = ()
    taken: dict[str, Replacement] = field(default_factory=dict)  # out of the program, by value

    def learn(self, name: str, pieces: Iterable[bytes], *, ours: bool) -> None:
        for text, documents in _parts(name, _text_only(pieces), ours):
            for document in documents or ():
                learn_document(self.scrubber, document)
            rest = text if documents is None else _comments(name, text)
            self.scrubber.learn(rest, code=_is_code(name))

    def scrub(
        self, name: str, pieces: Iterable[bytes], account: Account, *, ours: bool
    ) -> Iterator[bytes]:
        """A YAML document of ours is written anew, so that nothing unparsed ships."""
        line = 1
        for text, documents in _parts(name, pieces, ours):
            if documents is not None:
                after = self._document(name, text, documents, account, line)
            else:
                scrubbed = self.scrubber.text(text, line=line, code=_is_code(name))
                account.add(scrubbed)
                is_run = is_program(name) or name.lower().endswith(_SHELL)
                marked = scrubbed.taken and is_run
                after = as_plain_word(scrubbed.text) if marked else scrubbed.text
            line += text.count("\n")
            yield as_bytes(after)
        if is_program(name) and not ours:
            self.taken.update((one.value, one) for one in account.spans)

    def whole(self, name: str, data: bytes, account: Account, *, ours: bool) -> bytes | None:
        """None if it is private and not text."""
        if b"\0" in data:
            return None if self.scrubber.text(data.decode("latin-1")).taken else data
        return b"".join(self.scrub(name, [data], account, ours=ours))

    def document(
        self, content: Any, account: Account, *, within: str = "", is_run: bool = False
    ) -> Any:
        walk = _Walk(self.scrubber, False, account, self._said_instead, is_run)
        return walk.value(content, (within,) if within else (), None)

    @cached_property
    def _said_instead(self) -> dict[str, str]:
        printed = map(as_plain_word, self.printed if self.taken else ())
        texts = ((said, self._without_taken(said)) for said in printed)
        return {k: v for said, now in texts if now != said for k, v in wordings(said, now).items()}

    def _without_taken(self, text: str) -> str:
        values = sorted(filter(text.__contains__, self.taken), key=len, reverse=True)
        either = "|".join([OUR_NAMES.pattern, *map(self._exactly, values)])
        stand_ins = {value: as_plain_word(self.taken[value].placeholder) for value in values}
        return re.sub(either, lambda found: stand_ins.get(found[0], found[0]), text)

    def _exactly(self, value: str) -> str:
        exact, is_part = re.escape(value), self.taken[value].kind in {Kind.TEXT, Kind.CREDENTIAL}
        return exact if is_part else rf"(?<![A-Za-z0-9]){exact}(?![A-Za-z0-9])"

    def _document(
        self, name: str, text: str, documents: Sequence[Any], account: Account, line: int
    ) -> str:
        at = f"[{line}]" if name.lower().endswith(_JSON_LINES) else ""
        is_run = is_program(name)
        clean = [self.document(one, account, within=at, is_run=is_run) for one in documents]
        if not name.lower().endswith(_YAML) and clean == documents:
            return text
        comments = self.scrubber.text(_comments(name, text), where="a comment")
        account.add(comments)
        marked = "".join(f"# {line}".rstrip() + "\n" for line in comments.text.splitlines())
        return marked + _written(name, clean, text)


def _is_code(name: str) -> bool:
    return name.lower().endswith(_CODE)


def _parts(
    name: str, pieces: Iterable[bytes], ours: bool
) -> Iterator[tuple[str, list[Any] | None]]:
    """Texts that are looked at one by one, and what each is as a document, if it is one of ours."""
    low = name.lower()
    if ours and low.endswith(_JSON_LINES):
        for line in b"".join(pieces).splitlines(keepends=True):
            yield as_text(line), _documents(".json", line)
    elif ours and low.endswith(_JSON + _YAML):
        data = b"".join(pieces)
        yield as_text(data), _documents(low, data)
    else:
        for part in _cut_between_lines(pieces):
            yield as_text(part), None


def _cut_between_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    waiting = b""
    for piece in pieces:
        waiting += piece
        if len(waiting) > _LONGEST_TEXT:
            ends = [
                match.end() for match in _END_OF_TEXT.finditer(waiting, _LONGEST_TEXT - (1 << 20))
            ]
            cut = ends[-1] if ends else len(waiting)
            yield waiting[:cut]
            waiting = waiting[cut:]
    if waiting:
        yield waiting


def _documents(low: str, data: bytes) -> list[Any] | None:
    """None where it does not parse, or hides a value behind a key that stands twice."""
    try:
        text = data.decode("utf-8-sig")
        if low.endswith(_YAML):
            return list(yaml.load_all(text, Loader=Loader))
        return [json.loads(text, object_pairs_hook=_object_of)]
    except (ValueError, RecursionError, yaml.YAMLError):
        return None


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if doubled_key(pairs) is not None:
        raise ValueError
    return dict(pairs)


def _comments(name: str, text: str) -> str:
    """Every comment of a YAML document: all that stands between its tokens."""
    if not name.lower().endswith(_YAML) or "#" not in text:
        return ""
    marks = [(token.start_mark.index, token.end_mark.index) for token in yaml.scan(text)]
    starts = [start for start, _ in marks[1:]]
    between = (text[end:start] for (_, end), start in zip(marks, starts, strict=False))
    found = [line for gap in between for line in re.findall(r"# ?([^\r\n]*)", gap)]
    return "".join(f"{line}\n" for line in found)


def _written(name: str, documents: list[Any], like: str) -> str:
    if name.lower().endswith(_YAML):
        text: str = yaml.dump_all(
            documents, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100
        )
        return text
    # In ASCII: a half of a surrogate pair has no other spelling.
    made = json.dumps(documents[0], indent=2 if "\n" in like.strip() else None)
    return made + ("\n" if like.endswith("\n") else "")


def _text_only(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for number, piece in enumerate(pieces):
        head = b"" if number else piece[: 1 << 16]
        if b"\0" in piece or len(_CONTROL.findall(head)) * 50 > len(head):
            raise NotTextError
        yield piece


Path = tuple[int | str, ...]

_RUN_BY_A_SHELL = ("command", "build")
_ORACLES = frozenset({"oracle", "gate"})  # also inside a workload's own config
_PAIR_NAMES, _PAIR_VALUES = ("name", "key", "variable"), ("value",)


class ScrubError(AortaError):
    kind = "scrub"


@dataclass
class _Walk:
    scrubber: Scrubber
    learning: bool
    account: Account
    said_instead: Mapping[str, str]  # of texts of a failure
    is_run: bool = False  # a spec, a recipe

    def value(self, value: Any, path: Path, named: str | None, tree: bool | None = None) -> Any:
        """`tree`: whether it stands in one that is kept, in one that is searched, or in none."""
        if isinstance(value, Mapping):
            return self._mapping(value, path, tree)
        if isinstance(value, list | tuple):
            return self._sequence(list(value), path, named, tree)
        if isinstance(value, str):
            value = reworded(value, self.said_instead) if "failure" in path else value
            return self._name(value, path) if tree else self._string(value, path, named)
        if isinstance(value, int | float) and not isinstance(value, bool):
            kind = self._kind(named, str(value))
            return self._whole(str(value), kind, path) if kind else value
        return value

    def _mapping(self, mapping: Mapping[Any, Any], path: Path, tree: bool | None) -> dict[Any, Any]:
        pair_name = next((mapping[k] for k in _PAIR_NAMES if isinstance(mapping.get(k), str)), None)
        after: dict[Any, Any] = {}
        for key, value in mapping.items():
            named = pair_name if pair_name and key in _PAIR_VALUES else key
            new_key = self._key(key, path) if isinstance(key, str) else key
            if new_key in after:
                problem = (
                    f"two keys become {new_key!r} once scrubbed; rename one in the run's files"
                )
                raise ScrubError(problem, where=path_of(path))
            step = new_key if isinstance(new_key, str) else str(new_key)
            below = _below(tree, str(key), value)
            after[new_key] = self.value(value, (*path, step), str(named), below)
        return after

    def _key(self, key: str, path: Path) -> str:
        return key if key in vocabulary.OWN_KEYS else self._text(key, (*path, "(key)"))

    def _sequence(
        self, items: list[Any], path: Path, named: str | None, tree: bool | None
    ) -> list[Any]:
        """In `["--token", "x"]` the flag names what follows it."""
        after = []
        flag = named
        for index, item in enumerate(items):
            after.append(self.value(item, (*path, index), flag, tree))
            is_flag = isinstance(item, str) and item.startswith("-") and " " not in item
            flag = item.lstrip("-") if is_flag and "=" not in item else named
        return after

    def _string(self, value: str, path: Path, named: str | None) -> str:
        kind = self._kind(named, value)
        is_kept = value in self.scrubber.rules.keep or PLACEHOLDER.fullmatch(value)
        if kind and not is_kept:
            return self._whole(value, kind, path)
        text = self._text(value, path)
        return as_plain_word(text) if path and path[-1] in _RUN_BY_A_SHELL else text

    def _kind(self, named: str | None, value: str) -> Kind | None:
        """Of a value whose name says that all of it is private."""
        if named is None or not value.strip() or not self.scrubber.rules.detect:
            return None
        if vocabulary.announces_secret(named):
            return Kind.CREDENTIAL if vocabulary.is_secret_value(named, value) else None
        if vocabulary.may_announce_secret(named) and vocabulary.is_dense(value):
            return Kind.CREDENTIAL
        low = named.lower().lstrip("_")
        is_name = not set(" /:") & set(value) and any(map(str.isalpha, value))
        if not is_name or is_generic(value) or is_public_domain(value):
            return None
        if low in vocabulary.HOST_NAMES:
            return Kind.HOST
        return Kind.USER if low in vocabulary.USER_NAMES else None

    def _name(self, value: str, path: Path) -> str:
        if path[-1] in vocabulary.ENUMERATIONS:
            return value
        if path[-1] == "pattern":
            return as_plain_word(self._put(value, path, lambda _: None, self.scrubber.pattern))
        return self._put(value, path, lambda _name: None, self.scrubber.name)

    def _text(self, value: str, path: Path) -> str:
        return self._put(value, path, self.scrubber.learn, self.scrubber.text)

    def _whole(self, value: str, kind: Kind, path: Path) -> str:
        remember, whole = self.scrubber.remember, self.scrubber.whole
        return self._put(value, path, partial(remember, kind), partial(whole, kind=kind))

    def _put(
        self, value: str, path: Path, learn: Callable[[str], None], scrub: Callable[..., Scrubbed]
    ) -> str:
        if self.learning:
            learn(value)
            return value
        scrubbed = scrub(value, where=path_of(path))
        self.account.add(scrubbed)
        # In a failure anything may stand in the place of what is no plain word.
        is_word = self.is_run and "failure" not in path
        return as_plain_word(scrubbed.text) if is_word else scrubbed.text


def learn_document(scrubber: Scrubber, document: Any) -> None:
    _Walk(scrubber, True, Account(), {}).value(document, (), None)


def scrub_document(scrubber: Scrubber, document: Any, account: Account | None = None) -> Any:
    """With private keys and values replaced, of which `account` takes note."""
    return FileScrubber(scrubber).document(document, account or Account())


def _below(tree: bool | None, key: str, value: object) -> bool | None:
    """Whether what stands under `key` is kept with everything below, or searched with it."""
    if key in vocabulary.PATHS or key == "failure":
        return False
    if key in vocabulary.KEPT_TREES and (tree is not False or key in _ORACLES):
        return True
    if tree is None and key in vocabulary.SEARCHED_TREES:
        return False
    texts = value if isinstance(value, list) else [value]
    is_name = key in vocabulary.NAMES and all(isinstance(text, str) for text in texts)
    return True if tree is None and is_name else tree
