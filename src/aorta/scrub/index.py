"""Where many values stand in a long text, found in one pass over it however many there are."""

import re
from collections.abc import Iterable, Iterator

from aorta.scrub.secrets.hints import folded_in_place

_KEY = 16  # so many characters of a value are looked for; the rest is compared where they stand
_ALSO_THE_SAME = str.maketrans(
    {0x131: "i", 0x17F: "s"}
)  # dotless i and long s, where case is ignored

Trie = dict[str, "Trie"]


class ValueIndex:
    def __init__(self, values: Iterable[str]) -> None:
        self._values: dict[str, list[tuple[str, str]]] = {}
        for value in values:
            folded = _folded(value)
            self._values.setdefault(folded[:_KEY], []).append((folded, value))
        self._lengths = sorted({len(key) for key in self._values})
        self._anywhere = re.compile(f"(?={_pattern_of(self._values)})")

    def places(self, text: str) -> Iterator[tuple[int, str]]:
        """(position, value) wherever a value stands in any case, in order of position."""
        folded = _folded(text)
        for hit in self._anywhere.finditer(folded):
            at = hit.start()
            for length in self._lengths:
                for spelt, value in self._values.get(folded[at : at + length], ()):
                    if folded.startswith(spelt, at):
                        yield at, value


def _folded(text: str) -> str:
    folded = folded_in_place(text)
    return folded if folded.isascii() else folded.translate(_ALSO_THE_SAME)


def _pattern_of(keys: Iterable[str]) -> str:
    """One expression for all of them that looks at each character of the text once or twice, not once a key."""
    trie: Trie = {}
    for key in keys:
        place = trie
        for char in key:
            place = place.setdefault(char, {})
        place[""] = {}
    return _expression(trie)


def _expression(trie: Trie) -> str:
    if "" in trie:
        return ""  # a key ends here: whatever follows, something stands at this place
    branches = [re.escape(char) + _expression(below) for char, below in trie.items()]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
