"""The blocks that lines form, by what they look like: what is indented below a line, what brackets
enclose, paragraphs.

A block goes as a whole or stays: half of a function is no function. Nothing here knows a language;
a wrong guess costs runs and never truth, because every set that is accepted was seen to reproduce.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

Items = frozenset[int]
_CLOSES = re.compile(r"^\s*(?:[)\]}]|</|end\b|fi\b|done\b|esac\b|#\s*endif\b)")
_GOES_ON = re.compile(
    r"^\s*[)\]}]*\s*(?:else|elif|except|finally|catch|case|then|do|#\s*el(?:se|if))\b"
)
_BELONGS_TO_NEXT = re.compile(r"^\s*(?:@\w|///?|/\*\*|\*|#\[)")
_OPENS = re.compile(r"^\s*#\s*if(?:n?def)?\b")
_ELSE = re.compile(r"^\s*#\s*el")
_ENDIF = re.compile(r"^\s*#\s*endif\b")
_QUOTED = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'")
_TAB = 8


@dataclass
class Block:
    """Some lines that stand at one depth, and the blocks below them."""

    own: list[int] = field(default_factory=list)
    inside: list["Block"] = field(default_factory=list)

    @property
    def lines(self) -> Items:
        return frozenset(self.own).union(*(block.lines for block in self.inside))


def levels_of(lines: Sequence[str]) -> list[list[Items]]:
    """Partitions of the lines into blocks, coarsest first; levels of single lines left out."""
    level = _paragraphs(_tree(lines), lines)
    found: list[list[Items]] = []
    while level:
        found.append([block.lines for block in level])
        level = [inner for block in level for inner in block.inside]
    return [groups for groups in found if any(len(group) > 1 for group in groups)]


def _tree(lines: Sequence[str]) -> list[Block]:
    depths = _depths(lines)
    top = Block()
    open_blocks: list[tuple[int, Block]] = [(-1, top)]
    for number, line in enumerate(lines):
        depth = depths[number]
        while open_blocks[-1][0] > depth:
            open_blocks.pop()
        at_same_depth = open_blocks[-1][0] == depth
        current = open_blocks[-1][1] if at_same_depth else None
        if current is not None and _continues(current, line, lines):
            current.own.append(number)
            continue
        if at_same_depth:
            open_blocks.pop()
        block = Block([number])
        open_blocks[-1][1].inside.append(block)
        open_blocks.append((depth, block))
    return top.inside


def _continues(block: Block, line: str, lines: Sequence[str]) -> bool:
    """Whether this line belongs to the block that stands open at its depth."""
    if not line.strip():
        return True
    if _CLOSES.match(line) or _GOES_ON.match(line):
        return True
    return not block.inside and all(
        _BELONGS_TO_NEXT.match(lines[number]) for number in block.own if lines[number].strip()
    )


def _depths(lines: Sequence[str]) -> list[int]:
    """By indentation, else by brackets. A blank line is as deep as the one before it."""
    indents = _below_conditionals(
        [_indent(line) if line.strip() else None for line in lines], lines
    )
    if not any(indents):
        return _bracket_depths(lines)
    depths: list[int] = []
    for indent in indents:
        depths.append(depths[-1] if indent is None and depths else indent or 0)
    return depths


def _below_conditionals(indents: list[int | None], lines: Sequence[str]) -> list[int | None]:
    """What stands between #if and #endif is deeper than these, however it is indented."""
    if sum(map(bool, map(_ENDIF.match, lines))) != sum(map(bool, map(_OPENS.match, lines))):
        return indents
    deepest = max((indent or 0 for indent in indents), default=0) + 1
    found, depth = list(indents), 0
    for number, line in enumerate(lines):
        if _ENDIF.match(line):
            depth = max(0, depth - 1)
        outside = _ENDIF.match(line) or _OPENS.match(line) or _ELSE.match(line)
        level = max(0, depth - 1) if _ELSE.match(line) else depth
        indent = found[number]
        if indent is not None:
            found[number] = level * deepest + (0 if outside else indent)
        if _OPENS.match(line):
            depth += 1
    return found


def _indent(line: str) -> int:
    white = line[: len(line) - len(line.lstrip())]
    return len(white.expandtabs(_TAB))


def _bracket_depths(lines: Sequence[str]) -> list[int]:
    depths, depth = [], 0
    for line in lines:
        bare = _QUOTED.sub("", line)
        depths.append(max(0, depth - bare.lstrip().startswith((")", "]", "}"))))
        depth = max(
            0, depth + sum(bare.count(c) for c in "([{") - sum(bare.count(c) for c in ")]}")
        )
    return depths


def _paragraphs(blocks: list[Block], lines: Sequence[str]) -> list[Block]:
    """Above flat lines a level of paragraphs, where blank lines part them."""
    paragraphs: list[Block] = []
    fresh = True
    for block in blocks:
        if fresh:
            paragraphs.append(Block())
        paragraphs[-1].inside.append(block)
        fresh = not lines[max(block.lines)].strip()
    return paragraphs if 1 < len(paragraphs) < len(blocks) else blocks
