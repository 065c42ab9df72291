"""A program that fails, what its traced run showed, and what a smaller one must still hold."""

import ast
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from aorta.reduce.source.tree import (
    count_lines,
    count_stores,
    is_in,
    printed_lines,
    scopes,
    statements,
    undefined,
)

LOOPS = (ast.For, ast.AsyncFor, ast.While)
WITH = (ast.With, ast.AsyncWith)
_OF_A_CONFIGURATION = ("argparse.", "types.", "{", "torch.device(", "torch.float", "pathlib.")
_TYPE_OF_NUMBERS = re.compile(r"(?:dtype=(?:torch\.|')|device\('?)(\w+)")
_NUMBER = re.compile(r"\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
_OTHER_NAME = {"float64": "double", "float16": "half", "int64": "long", "int32": "int"}


@dataclass(frozen=True)
class UserModule:
    """A module of the user's: its name, its file below the root, and the package it is in."""

    name: str
    file: str
    package: str


@dataclass(frozen=True)
class UserFrame:
    """A frame of the traceback in a file of the user's, with its variables as Python."""

    file: str
    function: str
    first_line: int
    line: int
    values: Mapping[str, str]
    position: Sequence[int] | None = None  # first and last line, first and last column
    operands: Sequence[str] = ()  # what the statement read: kinds, shapes and types
    largest: int | None = None  # integer that it read, where an index was out of range


@dataclass(frozen=True)
class TraceFacts:
    """`frames` are those of the uncaught exception, the innermost last; empty where none was."""

    modules: tuple[UserModule, ...] = ()
    argv: tuple[str, ...] = ()
    lines: Mapping[str, frozenset[int]] = field(default_factory=dict)
    opened: tuple[str, ...] = ()
    message: str = ""
    frames: tuple[UserFrame, ...] = ()
    in_library: bool = False  # a library's function raised it

    @property
    def is_seen(self) -> bool:
        """Whether the hook saw it fail; of a worker process there is the traceback's text alone."""
        return bool(self.frames) and self.frames[-1].first_line > 0

    @property
    def executed(self) -> frozenset[int]:
        """The lines of the one file of a program that has one."""
        return frozenset().union(*self.lines.values())


def read_facts(lines: Iterable[str]) -> TraceFacts:
    """A line that was cut short, by a process that was killed, is left out."""
    modules: dict[str, UserModule] = {}
    argv: tuple[str, ...] = ()
    executed: dict[str, set[int]] = {}
    opened: dict[str, None] = {}
    raised: Mapping[str, Any] = {}
    for text in lines:
        try:
            said = json.loads(text)
        except ValueError:
            continue
        match said:
            case {"module": [name, file, package], "argv": words}:
                modules.setdefault(file, UserModule(name, file, package))
                argv = argv or tuple(words)
            case {"line": [file, number]}:
                executed.setdefault(file, set()).add(number)
            case {"opened": file}:
                opened[file] = None
            case {"raised": content}:
                raised = content
    return TraceFacts(
        tuple(modules.values()),
        argv,
        {file: frozenset(numbers) for file, numbers in executed.items()},
        tuple(opened),
        str(raised.get("message", "")),
        tuple(UserFrame(**frame) for frame in raised.get("frames", ())),
        bool(raised.get("in_library")),
    )


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
    what fails; `stores` how many statements set an entry of the container that lacks one. `data` is
    the text of the files it read, where the same statements had handled other data before: then
    what was read may stand for reading it. Values of configurations may stand for what made them;
    from `free` 1 on those of the loop's turn that failed too, and from 2 on any: the less, the more
    of what makes the failure stays in sight.
    """

    text: str
    facts: TraceFacts
    kept: tuple[str, ...] = ()
    stores: tuple[str, int] = ("", 0)
    data: str = ""
    free: int = 0

    @cached_property
    def tree(self) -> ast.Module:
        """To be read; passes that change a tree parse the text anew."""
        return ast.parse(self.text)

    @cached_property
    def scopes(self) -> dict[str, tuple[set[str], set[str]]]:
        return scopes(self.text)

    @cached_property
    def on_the_way(self) -> frozenset[int]:
        """The numbers of the statements on the stack when it failed, and what holds them."""
        lines = {frame.line for frame in self.facts.frames}
        return frozenset(
            number
            for number, node in enumerate(statements(self.tree))
            if any(is_in(node, line) for line in lines)
        )

    @cached_property
    def _numbers(self) -> frozenset[str]:
        return frozenset(f"{float(number):.6g}" for number in _NUMBER.findall(self.data))

    def may_stand(self, value: str, free: int = 2) -> bool:
        """Whether this value may stand for what made it. Where a check of the user's own fails,
        only configurations and data may: it would fail for nothing otherwise.
        """
        freely = self.free >= free and not self.kept
        known = freely or value.startswith(_OF_A_CONFIGURATION) or self.is_data(value)
        return known and not self.is_blamed(value)

    def is_data(self, value: str) -> bool:
        """Whether every text and number of this value stands in the data that it read."""
        found = list(_leaves(ast.parse(value, mode="eval").body)) if self.data else []
        return bool(found) and all(
            leaf in self.data if isinstance(leaf, str) else f"{leaf:.6g}" in self._numbers
            for leaf in found
        )

    def is_row_number(self, value: str) -> bool:
        return value.isdigit() and int(value) < self.data.count("\n")

    def is_blamed(self, value: str) -> bool:
        """Whether the failure's words name the type of numbers, or the device, that it has."""
        message = self.facts.message.lower()
        types = _TYPE_OF_NUMBERS.findall(value)
        return any(
            word in message for name in types for word in (name, _OTHER_NAME.get(name, name))
        )


def _leaves(node: ast.expr) -> Iterator[str | float]:
    """The texts and numbers of a literal; nan, which is no data, for what is none."""
    match node:
        case ast.Constant(value=str() | int() | float() as value) if not isinstance(value, bool):
            yield value
        case ast.UnaryOp(operand=inner):
            yield from _leaves(inner)
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Dict(values=parts):
            for part in parts:
                yield from _leaves(part)
        case ast.Call(func=ast.Attribute(attr="array" | "tensor"), args=[inner]):
            yield from _leaves(inner)
        case _:
            yield float("nan")


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
            if text and _is_smaller(text, program.text) and _is_whole(text, program):
                yield key, text
            else:
                refused.add(key)


def _is_smaller(text: str, before: str) -> bool:
    """Other than before, and without a long literal that takes more lines than it saves."""
    literals, known = (printed_lines(one) - count_lines(one) for one in (text, before))
    return text != before and (literals <= known or printed_lines(text) <= printed_lines(before))


def _is_whole(text: str, program: Program) -> bool:
    try:
        if undefined(text):
            return False
    except SyntaxError:
        return False
    for name, (_, outer) in scopes(text).items():
        # What a function bound before is not what the top level calls so.
        if outer & program.scopes.get(name, (set(), set()))[0]:
            return False
    tree = ast.parse(text)
    container, count = program.stores
    if count and count_stores(tree, container) < count:
        return False
    nodes = statements(tree) if program.kept else []
    there = {ast.unparse(node) for node in nodes}
    there |= {ast.unparse(node.test) for node in nodes if isinstance(node, ast.If)}
    return all(one in there for one in program.kept)
