"""A program that fails, what its traced run showed, and what a smaller one must still hold."""

import ast
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from aorta.reduce.source.tree import (
    Function,
    blocks_of,
    defined_by,
    function_at,
    has_run,
    is_in,
    path_to,
    statements,
    tail,
    tail_at,
    undefined,
    used_by,
)

LOOPS = (ast.For, ast.AsyncFor, ast.While)
_OF_A_CONFIGURATION = ("argparse.", "types.", "{", "torch.device(", "torch.float", "pathlib.")
_ASKS_FOR_A_TYPE = re.compile(r"\b(?:isinstance|issubclass|type)\(")
_TYPE_OF_NUMBERS = re.compile(r"dtype|device|scalar type|double|half|long|(float|int)\d")


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
    line: int
    values: Mapping[str, str] = field(default_factory=dict)
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
    def executed(self) -> frozenset[int]:
        """The lines of the one file of a program that has one."""
        return frozenset().union(*self.lines.values())


def read_facts(place: Path) -> TraceFacts:
    """Empty where the hook wrote nothing; a line that was cut short, by a process that was killed,
    is left out.
    """
    found: dict[str, list[Any]] = defaultdict(list)
    for text in place.read_text("utf-8", "replace").splitlines() if place.is_file() else ():
        with suppress(ValueError):
            for key, value in json.loads(text).items():
                found[key].append(value)
    modules: dict[str, UserModule] = {}
    for name, file, package in found["module"]:
        modules.setdefault(file, UserModule(name, file, package))
    executed: dict[str, set[int]] = defaultdict(set)
    for file, number in found["line"]:
        executed[file].add(number)
    raised: Mapping[str, Any] = next(reversed(found["raised"]), {})
    return TraceFacts(
        tuple(modules.values()),
        tuple(next(iter(found["argv"]), ())),
        {file: frozenset(numbers) for file, numbers in executed.items()},
        tuple(dict.fromkeys(found["opened"])),
        str(raised.get("message", "")),
        tuple(UserFrame(**frame) for frame in raised.get("frames", ())),
        bool(raised.get("in_library")),
    )


# One way to change a program. Its name: what was refused under it is not even made again; and what
# brings the whole changed text, or None where the edit cannot be made.
Edit = tuple[str, Callable[[], str | None]]


@dataclass(frozen=True)
class Program:
    """`kept` are statements that every candidate must hold: the user's own check, where that is
    what fails; those that set an entry of the container that lacks one, of which any may be the one
    that stores the wrong thing.
    """

    text: str
    facts: TraceFacts
    kept: tuple[str, ...] = ()

    @cached_property
    def tree(self) -> ast.Module:
        """To be read; passes that change a tree parse the text anew."""
        return ast.parse(self.text)

    @cached_property
    def on_the_way(self) -> frozenset[int]:
        """The numbers of the statements on the stack when it failed, and what holds them."""
        lines = {frame.line for frame in self.facts.frames}
        every = enumerate(statements(self.tree))
        return frozenset(n for n, node in every if any(is_in(node, line) for line in lines))

    @cached_property
    def never_returned(self) -> list[ast.Return]:
        """Of functions that failed: what they return once repaired. No trial shows what of it is
        needed.
        """
        returns = [node for node in statements(self.tree) if isinstance(node, ast.Return)]
        return [node for node in returns if not has_run(node, self.facts.executed)]

    @cached_property
    def read_behind(self) -> set[str]:
        """The names that these read."""
        return set().union(*map(used_by, self.never_returned), set())

    @cached_property
    def in_loops(self) -> frozenset[int]:
        """The numbers of the statements in a loop."""
        every = statements(self.tree)
        inside = {id(n) for loop in every if isinstance(loop, LOOPS) for n in statements(loop)}
        return frozenset(number for number, node in enumerate(every) if id(node) in inside)

    def may_stand(self, value: str) -> bool:
        """Whether this value may stand for what made it. Where a check of the user's own fails,
        only configurations may: it would fail for nothing otherwise. One with a type of numbers or
        a device may not where the failure's words name such.
        """
        has_type = "dtype=" in value or "device(" in value
        is_blamed = has_type and _TYPE_OF_NUMBERS.search(self.facts.message.lower())
        if is_blamed or not self.kept:
            return not is_blamed
        is_another_type = "types.SimpleNamespace" in value and self._asks_for_an_object
        return value.startswith(_OF_A_CONFIGURATION) and not is_another_type

    @cached_property
    def _asks_for_an_object(self) -> bool:
        """Whether the check reads an object of the user's itself and not its attributes alone."""
        reads = {kind for frame in self.facts.frames[-1:] for kind in frame.operands}
        return "object" in reads or any(map(_ASKS_FOR_A_TYPE.search, self.kept))


Pass = Callable[[Program], Iterator[Edit]]


def candidates(
    program: Program, steps: Sequence[Pass], refused: set[str]
) -> Iterator[tuple[str, str]]:
    """Name and text of each edit of every pass, in order. Those that could not run, or that lose
    what must stay, are added to `refused`.
    """
    for step in steps:
        for name, make in step(program):
            key = f"{step.__name__}: {name}"
            if key in refused:
                continue
            text = make()
            if text and text != program.text and _is_whole(text, program):
                yield key, text
            else:
                refused.add(key)


def _is_whole(text: str, program: Program) -> bool:
    if undefined(text):
        return False
    nodes = statements(ast.parse(text)) if program.kept else []
    there = {ast.unparse(node) for node in nodes}
    there |= {ast.unparse(node.test) for node in nodes if isinstance(node, ast.If)}
    return all(one in there for one in program.kept)


def must_hold(program: Program) -> Program:
    """The first program that is seen to fail, with what every smaller one must still hold."""
    facts, container = program.facts, ""
    if facts.frames and not facts.in_library:
        container = tail_at(program.tree, facts.frames[-1].position or ())
    stores = [
        ast.unparse(node)
        for node in statements(program.tree)
        if isinstance(node, ast.Assign) and node.lineno in facts.executed
        if container.endswith("[]") and container in map(tail, node.targets)
    ]
    return replace(program, kept=(*_kept_in(program), *stores))


def _kept_in(program: Program) -> tuple[str, ...]:
    """Where a check of the user's own fails: the check, the conditions it stands under, and what
    makes the names that these read, in the same function. None of it may be made simpler.
    """
    facts = program.facts
    frame = facts.frames[-1] if facts.frames else _exit_in(program)
    if frame is None or facts.in_library:
        return ()
    scope = function_at(program.tree, frame.function, frame.line) or program.tree
    way = path_to(scope, frame.line)
    steps = [block[index] for block, index in way]
    if not steps or not (isinstance(steps[-1], (ast.Raise, ast.Assert)) or _exits(steps[-1])):
        return ()
    tests = [step.test for step in steps if isinstance(step, (ast.If, ast.Assert))]
    names = set().union(*(used_by(test) for test in tests), set())
    makers = [
        ast.unparse(node)
        for node in statements(scope)
        if not list(blocks_of(node))
        and defined_by(node) & names
        and node.lineno in facts.executed
        and not isinstance(node, (ast.Import, ast.ImportFrom))
    ]
    conditions = [ast.unparse(step.test) for step in steps if isinstance(step, ast.If)]
    return (ast.unparse(steps[-1]), *conditions, *makers)


def _exit_in(program: Program) -> UserFrame | None:
    """Where a program ended itself, without an exception that the hook saw; None if it did not."""
    exits = [n.lineno for n in statements(program.tree) if _exits(n)]
    line = max((line for line in exits if line in program.facts.executed), default=0)
    functions = [node for node in ast.walk(program.tree) if isinstance(node, Function)]
    around = ["", *(node.name for node in functions if is_in(node, line))]
    return UserFrame("", around[-1], line) if line else None


def _exits(node: ast.stmt) -> bool:
    """Whether a statement ends the program with a status or words that stand there:
    `sys.exit(main())` ends it with what was decided elsewhere.
    """
    match node:
        case ast.Expr(value=ast.Call(func=called, args=[status])):
            calls = any(isinstance(part, ast.Call) for part in ast.walk(status))
            return tail(called) in {"exit", "_exit"} and not calls
    return False
