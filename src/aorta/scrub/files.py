"""Scrubbing one file's bytes by what its name says it is. It is given bytes and gives bytes: it opens nothing."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml

from aorta.core.documents import Dumper, Loader
from aorta.scrub.scrubber import Scrubber, Span, count_groups
from aorta.scrub.shell import with_quoted_placeholders
from aorta.scrub.structure import ScrubError, learn_document, scrub_document

_JSON, _JSON_LINES, _YAML = (".json",), (".jsonl", ".ndjson"), (".yaml", ".yml")
_SHELL = (".sh", ".bash")
_BOMS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig"))
_COMMENT = re.compile(r"(?m)(?:^|(?<=\s))#.*$")


@dataclass(frozen=True)
class ScrubbedFile:
    data: bytes
    spans: tuple[Span, ...]
    put_together: bool = False  # from scrubbed parts, so that the whole was never looked at

    @property
    def counts(self) -> dict[str, int]:
        return count_groups(self.spans)


@dataclass(frozen=True)
class _Structured:
    """A file taken apart into documents. `outside` is its text that is in none of them: comments."""

    documents: list[Any]
    join: Callable[[list[Any]], str]
    outside: str = ""


def is_text(data: bytes) -> bool:
    return _encoding(data) == "utf-16" or b"\0" not in data


def scrub_bytes(scrubber: Scrubber, name: str, data: bytes) -> ScrubbedFile | None:
    """Somebody's own file: its text is searched and every other byte stays. None where it matches and is not text."""
    try:
        text = _decoded(name, data)
    except ScrubError:
        return None if scrubber.text(data.decode("latin-1")).spans else ScrubbedFile(data, ())
    scrubbed = scrubber.text(text)
    if not scrubbed.spans:
        return ScrubbedFile(data, ())
    is_shell = name.lower().endswith(_SHELL)
    after = with_quoted_placeholders(scrubbed.text) if is_shell else scrubbed.text
    return ScrubbedFile(_encoded(name, after, data), scrubbed.spans)


def learn_file(scrubber: Scrubber, name: str, data: bytes) -> None:
    """First pass: remember what this file gives away."""
    text = _decoded(name, data)
    structured = _taken_apart(name, text)
    scrubber.learn(text if structured is None else structured.outside)
    for document in structured.documents if structured else ():
        learn_document(scrubber, document)


def scrub_file(scrubber: Scrubber, name: str, data: bytes) -> ScrubbedFile:
    """Second pass. A file with nothing to hide comes back byte for byte."""
    before = _decoded(name, data)
    structured = _taken_apart(name, before)
    is_shell = name.lower().endswith(_SHELL)
    if structured is None:
        scrubbed = scrubber.text(before)
        after, spans = scrubbed.text, scrubbed.spans
        if is_shell:
            after = with_quoted_placeholders(after)
    else:
        after, spans = _scrub_structured(scrubber, structured, before)
    if not spans:
        return ScrubbedFile(data, ())
    put_together = is_shell or structured is not None
    return ScrubbedFile(_encoded(name, after, data), spans, put_together)


def _scrub_structured(
    scrubber: Scrubber, structured: _Structured, before: str
) -> tuple[str, tuple[Span, ...]]:
    documents: list[Any] = []
    spans = list(scrubber.text(structured.outside).spans)
    several = len(structured.documents) > 1
    for number, document in enumerate(structured.documents, start=1):
        clean, found = scrub_document(scrubber, document, within=f"[{number}]" if several else "")
        documents.append(clean)
        spans.extend(found)
    return (structured.join(documents), tuple(spans)) if spans else (before, ())


def _taken_apart(name: str, text: str) -> _Structured | None:
    """None for plain text. A comment goes when the file is written anew; clean ones never cause that."""
    low = name.lower()
    try:
        if low.endswith(_JSON):
            return _Structured([_from_json(text)], _json_like(text))
        if low.endswith(_JSON_LINES):
            lines = [line for line in text.split("\n") if line.strip()]
            return _Structured([_from_json(line) for line in lines], _lines_like(text))
        if low.endswith(_YAML):
            documents = list(yaml.load_all(text, Loader=Loader))
            return _Structured(documents, _joined_yaml, "\n".join(_COMMENT.findall(text)))
    except (ValueError, RecursionError, yaml.YAMLError) as wrong:
        raise ScrubError(
            f"should parse and does not ({_reason(wrong)}); repair it, or leave it out with a policy",
            where=name,
        ) from None
    return None


def _from_json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_object_of)


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A key that stands twice hides a value from whoever reads only the last one."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _DoubledKeyError
    return found


class _DoubledKeyError(ValueError):
    """Kept without the key: it may be private."""


def _json_like(text: str) -> Callable[[list[Any]], str]:
    indent = 2 if "\n" in text.strip() else None
    end = "\n" if text.endswith("\n") else ""
    ascii_only = text.isascii()
    return lambda documents: json.dumps(documents[0], indent=indent, ensure_ascii=ascii_only) + end


def _lines_like(text: str) -> Callable[[list[Any]], str]:
    ascii_only = text.isascii()
    return lambda documents: "".join(
        json.dumps(document, ensure_ascii=ascii_only) + "\n" for document in documents
    )


def _joined_yaml(documents: list[Any]) -> str:
    text: str = yaml.dump_all(
        documents, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100
    )
    return text


def _encoding(data: bytes) -> str:
    return next((encoding for bom, encoding in _BOMS if data.startswith(bom)), "utf-8")


def _decoded(name: str, data: bytes) -> str:
    if not is_text(data):
        raise ScrubError("is not text and cannot be scrubbed", where=name)
    encoding = _encoding(data)
    try:
        return data.decode(encoding, "strict" if encoding == "utf-16" else "surrogateescape")
    except UnicodeDecodeError:
        raise ScrubError("is cut off inside a character; repair it", where=name) from None


def _encoded(name: str, text: str, like: bytes) -> bytes:
    encoding = _encoding(like)
    try:
        return text.encode(encoding, "strict" if encoding == "utf-16" else "surrogateescape")
    except UnicodeEncodeError:
        raise ScrubError("holds half of a surrogate pair; repair it", where=name) from None


def _reason(wrong: Exception) -> str:
    """Where it stops parsing, without a word of what stands there."""
    if isinstance(wrong, RecursionError):
        return "nested too deeply"
    if isinstance(wrong, _DoubledKeyError):
        return "a key stands twice"
    mark = getattr(wrong, "problem_mark", None)
    line = mark.line + 1 if mark is not None else getattr(wrong, "lineno", None)
    return f"line {line}" if line is not None else "it holds a character that is not allowed"
