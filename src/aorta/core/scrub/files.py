"""Scrubbing one file's bytes by what its name says it is. It is given bytes and gives bytes: it opens nothing."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml

from aorta.core.scrub.scrubber import Scrubber, Span, count_groups
from aorta.core.scrub.structure import ScrubError, learn_document, scrub_document
from aorta.core.yaml_rules import Dumper, Loader

_JSON, _JSON_LINES, _YAML = (".json",), (".jsonl", ".ndjson"), (".yaml", ".yml")
_BOMS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig"))


@dataclass(frozen=True)
class ScrubbedFile:
    data: bytes
    spans: tuple[Span, ...]

    @property
    def counts(self) -> dict[str, int]:
        return count_groups(self.spans)


@dataclass(frozen=True)
class _Content:
    """A file taken apart: its text, and the documents in it when it is a structured one."""

    text: str
    encoding: str
    documents: list[Any] | None
    join: Callable[[list[Any]], str]


def is_text(data: bytes) -> bool:
    return _encoding(data) == "utf-16" or b"\0" not in data


def learn_file(scrubber: Scrubber, name: str, data: bytes) -> None:
    """First pass: remember what this file gives away."""
    content = _taken_apart(name, data)
    scrubber.learn(content.text)
    for document in content.documents or ():
        learn_document(scrubber, document)


def scrub_file(scrubber: Scrubber, name: str, data: bytes) -> ScrubbedFile:
    """Second pass. A file with nothing to hide comes back byte for byte."""
    content = _taken_apart(name, data)
    if content.documents is None:
        scrubbed = scrubber.text(content.text)
        return (
            ScrubbedFile(_encoded(scrubbed.text, content), scrubbed.spans)
            if scrubbed.spans
            else ScrubbedFile(data, ())
        )
    documents: list[Any] = []
    spans: list[Span] = []
    for document in content.documents:
        clean, found = scrub_document(scrubber, document)
        documents.append(clean)
        spans.extend(found)
    if not spans:
        outside = scrubber.text(
            content.text
        )  # comments, repeated keys: text that is in no document
        if not outside.spans:
            return ScrubbedFile(data, ())
        spans.extend(outside.spans)
    return ScrubbedFile(_encoded(content.join(documents), content), tuple(spans))


def _taken_apart(name: str, data: bytes) -> _Content:
    if not is_text(data):
        raise ScrubError("found binary data, expected text: it cannot be scrubbed", where=name)
    encoding = _encoding(data)
    try:
        text = data.decode(encoding, "strict" if encoding == "utf-16" else "surrogateescape")
    except UnicodeDecodeError:
        raise ScrubError(
            "the text is cut off inside a character; it cannot be scrubbed", where=name
        ) from None
    low = name.lower()
    try:
        if low.endswith(_JSON):
            return _Content(text, encoding, [json.loads(text)], _json_like(text))
        if low.endswith(_JSON_LINES):
            return _Content(text, encoding, _json_lines(text, name), _joined_lines)
        if low.endswith(_YAML):
            documents = list(yaml.load_all(text, Loader=Loader))
            return _Content(text, encoding, documents, _joined_yaml)
    except (ValueError, RecursionError, yaml.YAMLError) as wrong:
        raise ScrubError(
            f"this file should parse and does not ({_place(wrong)}); repair it, or leave it out with a policy",
            where=name,
        ) from None
    return _Content(text, encoding, None, _joined_lines)


def _json_lines(text: str, name: str) -> list[Any]:
    documents = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            documents.append(json.loads(line))
        except ValueError:
            raise ScrubError(
                f"line {number} should be JSON and is not; repair it, or leave the file out with a policy",
                where=name,
            ) from None
    return documents


def _json_like(text: str) -> Callable[[list[Any]], str]:
    indent = 2 if "\n" in text.strip() else None
    end = "\n" if text.endswith("\n") else ""
    return lambda documents: json.dumps(documents[0], indent=indent, ensure_ascii=False) + end


def _joined_lines(documents: list[Any]) -> str:
    return "".join(json.dumps(document, ensure_ascii=False) + "\n" for document in documents)


def _joined_yaml(documents: list[Any]) -> str:
    text: str = yaml.dump_all(
        documents, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100
    )
    return text


def _encoding(data: bytes) -> str:
    return next((encoding for bom, encoding in _BOMS if data.startswith(bom)), "utf-8")


def _encoded(text: str, content: _Content) -> bytes:
    return text.encode(
        content.encoding, "strict" if content.encoding == "utf-16" else "surrogateescape"
    )


def _place(wrong: Exception) -> str:
    """Where it stops parsing, without a word of what stands there."""
    line = getattr(wrong, "lineno", None)
    mark = getattr(wrong, "problem_mark", None)
    if line is None and mark is not None:
        line = mark.line + 1
    return (
        f"line {line}"
        if line is not None
        else "nested too deeply"
        if isinstance(wrong, RecursionError)
        else "not valid"
    )
