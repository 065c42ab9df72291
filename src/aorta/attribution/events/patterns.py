"""The patterns: what failures look like in the words of each system, as data that a user's own file
may extend.

A rule file is one TOML file in `rules/`. Each pattern carries lines it must match (`hits`) and must
not (`misses`), which tests run.

on         "exception": the last line of a Python traceback and what follows it ("Type: message"),
           or the message of a C++ one
           "line": any line of any log; `triggers` are literals, one of which such a line must hold
           "exit": the sentence of a launcher, shell or scheduler on how a process ended; its groups
           rank or ranks, code, signal, node tell the rest
role       root: this can kill a job
           cascade: only follows from another rank's failure
           waiting: this rank waited in vain; the blame is on a rank that does not say so (or on the
           group `blamed`)
           confirm: names the cause of a death that another fact reports
certainty  certain: says this class and nothing else. What an exception says that no pattern is
           certain of is left to the classifier; a line that is only likely is an event all the same
frame, stack, source   what the innermost frame, all frames, and the program's own source line must
           match: who reads tells whose fault it is
before     what one of the lines just before must match
ends_the_rest  true: from this line on a launcher ends the ranks that are left
whole_message  true: later lines of an exception's message count too; without it only the first, as
           hints may name other failures
regex      Python syntax; the groups device, rank, node, file, key, blamed are taken over where they
           match
origin     "injected": seen in a failure that was really made; otherwise the public page that shows
           the line
"""

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from aorta.attribution.nouns import Certainty, FailureClass, Role
from aorta.core.documents import StrictModel, validated
from aorta.core.errors import RegistryError, SpecError, UsageError

RULE_FILES = (  # in this order: of patterns that are as sure, the first wins
    "frameworks", "torch", "jax", "ray", "storage", "driver", "nccl", "slurm", "kubernetes",
    "shell", "codes", "words", "names", "python",
)  # fmt: skip
_SHORTEST_TRIGGER = 4  # shorter literals would be found everywhere and make the fast pass slow


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


class PatternAdvice(StrictModel):
    kind: str
    text: str


@dataclass(frozen=True)
class RaisedAt:
    """Where an exception was raised, as far as its traceback tells."""

    frame: str | None = None  # innermost `file.py:function`
    source: str = ""  # the program's own innermost source line
    stack: str = ""  # all frames, outermost first: `train.py:main > loader.py:read`


class Pattern(StrictModel):
    """One pattern. `hits` and `misses` are its own tests: loading a user's file runs them."""

    id: str = Field(min_length=1)
    failure_class: FailureClass = Field(alias="class", strict=False)
    on: Literal["exception", "line", "exit"]
    regex: str = Field(min_length=1)
    role: Role = Field(default=Role.ROOT, strict=False)
    certainty: Certainty = Field(strict=False)
    triggers: Annotated[tuple[str, ...], BeforeValidator(_tuple)] = ()
    frame: str | None = None  # must match the innermost `file.py:function` of the traceback
    stack: str | None = None  # must match somewhere in the frames, outermost first
    source: str | None = None  # must match the program's own source line in the traceback
    before: str | None = None  # must match one of the lines just before; for patterns on `line`
    ends_the_rest: bool = False  # whether a launcher says here that it now ends who is left
    whole_message: bool = False  # whether more than an exception's first line is its own word
    hits: Annotated[tuple[str, ...], BeforeValidator(_tuple)] = Field(min_length=1)
    misses: Annotated[tuple[str, ...], BeforeValidator(_tuple)] = Field(min_length=1)
    advice: PatternAdvice | None = None
    origin: str

    @model_validator(mode="after")
    def _usable(self) -> "Pattern":
        for expression in (self.regex, self.frame, self.stack, self.source, self.before):
            try:
                re.compile(expression or "")
            except re.error as wrong:
                raise UsageError(f"{expression!r} is not a regular expression: {wrong}") from None
        if (self.on == "exception") == bool(self.triggers):
            raise UsageError(
                "a pattern on `line` or `exit` needs triggers; one on `exception` has none"
            )
        short = next((t for t in self.triggers if len(t) < _SHORTEST_TRIGGER), None)
        if short is not None:
            raise UsageError(
                f"the trigger {short!r} is too short; expected {_SHORTEST_TRIGGER} characters or "
                "more"
            )
        return self

    @cached_property
    def says(self) -> tuple[int, bool]:
        """How much it says: of patterns as sure, one that also knows the place says more."""
        return self.certainty.weight, self._asks_where

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        return re.compile(self.regex)

    def match(self, text: str, raised: RaisedAt | None = None) -> re.Match[str] | None:
        """The match, if `text` shows this pattern; `raised` is where, if that is known."""
        if self._asks_where and not self._fits_there(raised or RaisedAt()):
            return None
        return self._found_in(text)

    @cached_property
    def _asks_where(self) -> bool:
        return not (self.frame is None and self.source is None and self.stack is None)

    def _fits_there(self, raised: RaisedAt) -> bool:
        places = (
            (self.frame, raised.frame),
            (self.source, raised.source),
            (self.stack, raised.stack),
        )
        return all(asked is None or (place and re.search(asked, place)) for asked, place in places)

    def fits_after(self, lines: Iterable[str]) -> bool:
        """Whether the lines before a match are those this pattern asks for."""
        return self.before is None or any(re.search(self.before, line) for line in lines)

    def failing_test(self) -> str | None:
        """The first of its own tests that this pattern does not pass, or None."""
        for text in self.hits:
            if not self._found_in(text):
                return f"does not match its hit {text!r}"
            if self.triggers and not any(trigger in text for trigger in self.triggers):
                return f"none of its triggers occurs in its hit {text!r}"
        wrong = next((text for text in self.misses if self._found_in(text)), None)
        return None if wrong is None else f"matches its miss {wrong!r}"

    def _found_in(self, text: str) -> re.Match[str] | None:
        return self.compiled.search(text if self.whole_message else text.partition("\n")[0])


class _PatternFile(StrictModel):
    pattern: Annotated[tuple[Pattern, ...], BeforeValidator(_tuple)] = Field(min_length=1)


class Registry:
    """All patterns, a user's own first: the first pattern of the best certainty wins."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self.patterns = tuple(patterns)
        by_weight = sorted(self.patterns, key=lambda pattern: pattern.says, reverse=True)
        self.on_exception = tuple(pattern for pattern in by_weight if pattern.on == "exception")
        by_trigger: dict[str, list[Pattern]] = {}
        for pattern in self.patterns:
            for trigger in pattern.triggers:
                by_trigger.setdefault(trigger, []).append(pattern)
        self.by_trigger = {trigger: tuple(patterns) for trigger, patterns in by_trigger.items()}

    def exception(
        self, text: str, raised: RaisedAt | None = None
    ) -> tuple[Pattern, re.Match[str]] | None:
        """The pattern that says most about an exception."""
        return _first_to_match(self, text, raised)


@lru_cache(maxsize=4096)  # what ended one rank ended many, and is asked for more than once of each
def _first_to_match(
    registry: Registry, text: str, raised: RaisedAt | None
) -> tuple[Pattern, re.Match[str]] | None:
    for pattern in registry.on_exception:
        if (match := pattern.match(text, raised)) is not None:
            return pattern, match
    return None


@cache
def built_in() -> Registry:
    folder = resources.files("aorta.attribution").joinpath("rules")
    names = [f"{name}.toml" for name in RULE_FILES]
    texts = [(folder.joinpath(name).read_text(encoding="utf-8"), name) for name in names]
    return Registry([pattern for text, name in texts for pattern in _patterns(text, name)])


def with_user_file(path: Path) -> Registry:
    """The built-in patterns behind those of a user's file, which must pass their own tests."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as wrong:
        raise SpecError(f"cannot be read: {wrong}", where=str(path)) from None
    own = _patterns(text, str(path))
    for index, pattern in enumerate(own):
        problem = pattern.failing_test()
        if problem:
            raise SpecError(f"pattern {pattern.id!r} {problem}", where=f"{path}: pattern[{index}]")
    known = {pattern.id for pattern in built_in().patterns}
    twice = next((pattern.id for pattern in own if pattern.id in known), None)
    if twice is not None:
        raise RegistryError(f"pattern {twice!r} is built in; choose another id", where=str(path))
    return Registry((*own, *built_in().patterns))


def _patterns(text: str, name: str) -> tuple[Pattern, ...]:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as wrong:
        raise SpecError(f"is not TOML: {wrong}", where=name) from None
    patterns = validated(_PatternFile, data, file=name).pattern
    seen: set[str] = set()
    for index, pattern in enumerate(patterns):
        if pattern.id in seen:
            raise RegistryError(
                f"pattern {pattern.id!r} is defined twice", where=f"{name}: pattern[{index}]"
            )
        seen.add(pattern.id)
    return patterns
