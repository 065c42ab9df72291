"""What one traced run of a program showed, as the hook wrote it down."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


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
    position: tuple[int, int, int, int] | None
    values: Mapping[str, str]
    operands: tuple[str, ...] = ()  # what the statement read: kinds, shapes and types


@dataclass(frozen=True)
class TraceFacts:
    """`frames` are those of the uncaught exception, the innermost last; empty where none was."""

    modules: tuple[UserModule, ...] = ()
    argv: tuple[str, ...] = ()
    lines: Mapping[str, frozenset[int]] = field(default_factory=dict)
    opened: tuple[str, ...] = ()
    returned: Mapping[tuple[str, int], str] = field(default_factory=dict)
    message: str = ""
    frames: tuple[UserFrame, ...] = ()
    in_library: bool = False  # a library's function raised it

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
    returned: dict[tuple[str, int], str | None] = {}
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
            case {"returned": [file, first, value]}:
                returned[file, first] = value if (file, first) not in returned else None
            case {"raised": content}:
                raised = content
    return TraceFacts(
        tuple(modules.values()),
        argv,
        {file: frozenset(numbers) for file, numbers in executed.items()},
        tuple(opened),
        {place: value for place, value in returned.items() if value is not None},
        str(raised.get("message", "")),
        tuple(_frame(frame) for frame in raised.get("frames", ())),
        bool(raised.get("in_library")),
    )


def _frame(said: Mapping[str, Any]) -> UserFrame:
    place = said.get("position")
    whole = place is not None and None not in place
    position = (place[0], place[1], place[2], place[3]) if place is not None and whole else None
    return UserFrame(
        said["file"],
        said["function"],
        said["first_line"],
        said["line"],
        position,
        said["values"],
        tuple(said.get("operands", ())),
    )
