"""Patterns that are tried only where they can match: looking for a substring is a hundred times faster."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Hinted:
    """`hints` are lower-case; text without any of them cannot match `pattern`.

    A pattern that `stays_in_line` is tried only in lines that hold a hint: no match of it holds a line break.
    """

    pattern: re.Pattern[str]
    hints: tuple[str, ...]
    stays_in_line: bool

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        folded = folded_in_place(text)
        if self.stays_in_line:
            for start, end in lines_with(folded, self.hints):
                yield from self.pattern.finditer(text, start, end)
        elif any(hint in folded for hint in self.hints):
            yield from self.pattern.finditer(text)


def hinted(pattern: str, *hints: str, flags: re.RegexFlag = re.NOFLAG) -> Hinted:
    return Hinted(re.compile(pattern, flags), hints, stays_in_line=False)


def hinted_in_line(pattern: str, *hints: str, flags: re.RegexFlag = re.NOFLAG) -> Hinted:
    return Hinted(re.compile(pattern, flags), hints, stays_in_line=True)


def lines_with(folded: str, hints: Iterable[str]) -> list[tuple[int, int]]:
    """(start, end) of every line that holds one of the hints, in order, without its line break."""
    found: dict[int, int] = {}
    for hint in hints:
        at = folded.find(hint)
        while at >= 0:
            end = folded.find("\n", at)
            end = len(folded) if end < 0 else end
            found[folded.rfind("\n", 0, at) + 1] = end
            at = folded.find(hint, end)
    return sorted(found.items())


def lines_at(text: str, places: Iterable[int]) -> Iterator[tuple[int, int]]:
    """(start, end) of every line that one of these places is in, once; the places come in order."""
    end = -1
    for place in places:
        if place > end:
            start = text.rfind("\n", 0, place) + 1
            end = text.find("\n", place)
            end = len(text) if end < 0 else end
            yield start, end


def occurrences(text: str, words: tuple[str, ...]) -> list[int]:
    """Where any of the lower-case words begins, in order, whatever its case."""
    folded = folded_in_place(text)
    found: list[int] = []
    for word in words:
        at = folded.find(word)
        while at >= 0:
            found.append(at)
            at = folded.find(word, at + 1)
    return sorted(found)


def folded_in_place(text: str) -> str:
    """In lower case, with every character where it was."""
    folded = text.lower()
    return folded if len(folded) == len(text) else _lower_of_same_length(text)


def _lower_of_same_length(text: str) -> str:
    """A few characters grow when lowered, which would shift every offset behind them."""
    return "".join(low if len(low := char.lower()) == 1 else char for char in text)
