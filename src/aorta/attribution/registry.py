"""The pattern registry: rows of data, validated, extensible by a user's own file of the same form."""

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from aorta.attribution.taxonomy import Certainty, FailureClass, Role
from aorta.core.documents import StrictModel, validated
from aorta.core.errors import RegistryError, SpecError, UsageError

BUILT_IN = "patterns.toml"
_SHORTEST_TRIGGER = 4  # shorter literals would be found everywhere and make the fast pass slow


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


class PatternAdvice(StrictModel):
    kind: str
    text: str


@dataclass(frozen=True)
class Raised:
    """Where an exception was raised, as far as its traceback tells."""

    frame: str | None = None  # innermost `file.py:function`
    source: str = ""  # the program's own innermost source line


class Pattern(StrictModel):
    """One row. `hits` and `misses` are its own tests: loading a user's file runs them."""

    id: str = Field(min_length=1)
    failure_class: FailureClass = Field(alias="class", strict=False)
    on: Literal["exception", "line"]
    regex: str
    role: Role = Field(default=Role.ROOT, strict=False)
    certainty: Certainty = Field(strict=False)
    triggers: Annotated[tuple[str, ...], BeforeValidator(_tuple)] = ()
    frame: str | None = None  # must match the innermost `file.py:function` of the traceback
    source: str | None = None  # must match the program's own source line in the traceback
    before: str | None = None  # must match one of the lines just before; for rows on `line`
    whole_message: bool = False  # whether more than an exception's first line is its own word
    hits: Annotated[tuple[str, ...], BeforeValidator(_tuple)] = Field(min_length=1)
    misses: Annotated[tuple[str, ...], BeforeValidator(_tuple)] = Field(min_length=1)
    advice: PatternAdvice | None = None
    origin: str

    @model_validator(mode="after")
    def _usable(self) -> "Pattern":
        for expression in (self.regex, self.frame, self.source, self.before):
            try:
                re.compile(expression or "")
            except re.error as wrong:
                raise UsageError(f"{expression!r} is not a regular expression: {wrong}") from None
        if (self.on == "line") != bool(self.triggers):
            raise UsageError("a row on `line` needs triggers; a row on `exception` has none")
        short = next((t for t in self.triggers if len(t) < _SHORTEST_TRIGGER), None)
        if short is not None:
            raise UsageError(
                f"the trigger {short!r} is too short; expected {_SHORTEST_TRIGGER} characters or more"
            )
        return self

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        return re.compile(self.regex)

    def match(self, text: str, raised: Raised | None = None) -> re.Match[str] | None:
        """The match, if `text` shows this pattern; `raised` is where, if that is known."""
        spoken = text if self.whole_message else text.split("\n", 1)[0]
        found = self.compiled.search(spoken)
        for wanted, place in ((self.frame, raised and raised.frame), (self.source, raised and raised.source)):  # fmt: skip
            if wanted is not None and not (place and re.search(wanted, place)):
                return None
        return found

    def fits_after(self, lines: Iterable[str]) -> bool:
        """Whether the lines before a match are those this row asks for."""
        return self.before is None or any(re.search(self.before, line) for line in lines)

    def failing_test(self) -> str | None:
        """The first of its own tests that this row does not pass, or None."""
        for text in self.hits:
            if not self._shows(text):
                return f"does not match its hit {text!r}"
            if self.triggers and not any(trigger in text for trigger in self.triggers):
                return f"none of its triggers occurs in its hit {text!r}"
        wrong = next((text for text in self.misses if self._shows(text)), None)
        return None if wrong is None else f"matches its miss {wrong!r}"

    def _shows(self, text: str) -> bool:
        return (
            self.compiled.search(text if self.whole_message else text.split("\n", 1)[0]) is not None
        )


class _PatternFile(StrictModel):
    pattern: Annotated[tuple[Pattern, ...], BeforeValidator(_tuple)] = Field(min_length=1)


class Registry:
    """All rows, a user's own before the built-in ones: the first row of the best certainty wins."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self.patterns = tuple(patterns)
        self.on_exception = tuple(row for row in self.patterns if row.on == "exception")
        by_trigger: dict[str, list[Pattern]] = {}
        for row in self.patterns:
            for trigger in row.triggers:
                by_trigger.setdefault(trigger, []).append(row)
        self.by_trigger = {trigger: tuple(rows) for trigger, rows in by_trigger.items()}

    def exception(
        self, text: str, raised: Raised | None = None
    ) -> tuple[Pattern, re.Match[str]] | None:
        """The row that says most about an exception."""
        best: tuple[Pattern, re.Match[str]] | None = None
        for row in self.on_exception:
            if best is not None and row.certainty.weight <= best[0].certainty.weight:
                continue
            found = row.match(text, raised)
            if found is not None:
                best = (row, found)
        return best


@cache
def built_in() -> Registry:
    text = resources.files("aorta.attribution").joinpath(BUILT_IN).read_text(encoding="utf-8")
    return Registry(_rows(text, BUILT_IN))


def with_user_file(path: Path) -> Registry:
    """The built-in rows behind those of a user's file, whose rows must pass their own tests."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as wrong:
        raise SpecError(f"cannot be read: {wrong}", where=str(path)) from None
    own = _rows(text, str(path))
    for index, row in enumerate(own):
        problem = row.failing_test()
        if problem:
            raise SpecError(f"pattern {row.id!r} {problem}", where=f"{path}: pattern[{index}]")
    known = {row.id for row in built_in().patterns}
    twice = next((row.id for row in own if row.id in known), None)
    if twice is not None:
        raise RegistryError(f"pattern {twice!r} is built in; choose another id", where=str(path))
    return Registry((*own, *built_in().patterns))


def _rows(text: str, name: str) -> tuple[Pattern, ...]:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as wrong:
        raise SpecError(f"is not TOML: {wrong}", where=name) from None
    rows = validated(_PatternFile, data, file=name).pattern
    seen: set[str] = set()
    for index, row in enumerate(rows):
        if row.id in seen:
            raise RegistryError(
                f"pattern {row.id!r} is defined twice", where=f"{name}: pattern[{index}]"
            )
        seen.add(row.id)
    return rows
