"""Paths into the run directory itself stay useful: they become relative to the file they stand in.

That is what lets a shipped recipe run on another path: a relative path in a recipe is relative to the recipe.
"""

import posixpath
import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from aorta.scrub.scrubber import Span
from aorta.scrub.secrets.findings import Kind

_CONTEXT = 40


def relocated(path: str, text: str, roots: Sequence[str]) -> tuple[str, tuple[Span, ...]]:
    """`text` of the file `path` with every way to a root of the run written as a relative one."""
    if not any(root in text for root in roots):
        return text, ()
    here = posixpath.relpath(".", str(PurePosixPath(path).parent))
    longest_first = sorted(roots, key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w./\-])(?:{'|'.join(map(re.escape, longest_first))})(?![\w.\-])")
    spans = tuple(
        Span(
            f"line {text.count(chr(10), 0, match.start()) + 1}",
            text[max(0, match.start() - _CONTEXT) : match.start()].rsplit("\n", 1)[-1],
            match.group(),
            text[match.end() : match.end() + _CONTEXT].split("\n", 1)[0],
            here,
            Kind.PATH,
        )
        for match in pattern.finditer(text)
    )
    return pattern.sub(here, text), spans
