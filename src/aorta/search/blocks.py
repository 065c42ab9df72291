"""The blocks that lines form, by indentation and paragraphs; a block goes or stays as a whole.

No language is known here. A wrong guess costs runs only: every accepted set was seen to reproduce.
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
    """By indentation. A blank line is as deep as the one before it."""
    depths: list[int] = []
    for line in lines:
        white = line[: len(line) - len(line.lstrip())]
        depths.append(len(white.expandtabs(_TAB)) if line.strip() or not depths else depths[-1])
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
