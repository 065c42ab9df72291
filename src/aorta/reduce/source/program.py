"""A program that fails, what its run showed, and what a smaller one must still hold."""

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from aorta.reduce.source.facts import TraceFacts
from aorta.reduce.source.tree import count_stores, statements, undefined

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
WITH = (ast.With, ast.AsyncWith)
_OF_A_CONFIGURATION = ("argparse.", "types.", "{", "torch.device(", "torch.float", "pathlib.")
_TYPE_OF_NUMBERS = re.compile(r"(?:dtype=(?:torch\.|')|device\('?)(\w+)")
_OTHER_NAME = {"float64": "double", "float16": "half", "int64": "long", "int32": "int"}


@dataclass(frozen=True)
class Edit:
    """One way to change a program. `key` names it: what was refused under this name is not even
    made again. `make` brings the whole changed text, or None where the edit cannot be made.
    """

    key: str
    make: Callable[[], str | None]


@dataclass(frozen=True)
class Program:
    """`kept` are statements that every candidate must hold: the user's own check, where that is
    what fails; `stores` how many statements set an entry of the container that lacks one. Values of
    configurations may stand for what made them; from `free` 1 on those of the loop's turn that
    failed too, and from 2 on any: the less, the more of what makes the failure stays in sight.
    """

    text: str
    facts: TraceFacts
    kept: tuple[str, ...] = ()
    stores: tuple[str, int] = ("", 0)
    free: int = 0

    @cached_property
    def tree(self) -> ast.Module:
        """To be read; passes that change a tree parse the text anew."""
        return ast.parse(self.text)

    @cached_property
    def on_the_way(self) -> frozenset[int]:
        """The numbers of the statements on the stack when it failed, and what holds them."""
        lines = {frame.line for frame in self.facts.frames}
        return frozenset(
            number
            for number, node in enumerate(statements(self.tree))
            if any(node.lineno <= n <= (node.end_lineno or 0) for n in lines)
        )

    def may_stand(self, value: str) -> bool:
        """Whether this value may stand for what made it: never where a check of the user's own
        fails, which would then fail for nothing.
        """
        free = self.free > 1 or value.startswith(_OF_A_CONFIGURATION)
        return free and not self.kept and not self.is_blamed(value)

    def is_blamed(self, value: str) -> bool:
        """Whether the failure's words name the type of numbers, or the device, that it has."""
        message = self.facts.message.lower()
        types = _TYPE_OF_NUMBERS.findall(value)
        return any(
            word in message for name in types for word in (name, _OTHER_NAME.get(name, name))
        )


Pass = Callable[[Program], Iterator[Edit]]


def candidates(
    program: Program, steps: Sequence[Pass], refused: set[str]
) -> Iterator[tuple[str, str]]:
    """Name and text of each edit of every pass, in order. Those that could not run, or that lose
    what must stay, are added to `refused`.
    """
    for step in steps:
        for edit in step(program):
            key = f"{step.__name__}: {edit.key}"
            if key in refused:
                continue
            text = edit.make()
            if text and text != program.text and _is_whole(text, program):
                yield key, text
            else:
                refused.add(key)


def _is_whole(text: str, program: Program) -> bool:
    try:
        if undefined(text):
            return False
    except SyntaxError:
        return False
    tree = ast.parse(text)
    container, count = program.stores
    if count and count_stores(tree, container) < count:
        return False
    nodes = statements(tree) if program.kept else []
    there = {ast.unparse(node) for node in nodes}
    there |= {ast.unparse(node.test) for node in nodes if isinstance(node, ast.If)}
    return all(one in there for one in program.kept)
