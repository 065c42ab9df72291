"""Which trials may start warm, from what their command is and what an earlier one imported: the
owner's side.

A command qualifies that becomes a Python interpreter without doing anything else first: `python
script.py`, `python -m module`, a script whose first line names Python, each also behind `env
NAME=VALUE` and as the one command of `bash -c`. What its imports are is seen in a trial of its own
that starts cold; `warm_hosts` does the rest beside the supervisor.
"""

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aorta.core.trial import RuntimeKind, Start, TrialEnd, TrialSpec
from aorta.executors.warm_hosts import read_rows, worth_seconds
from aorta.runtimes.launch import Launch, launch_for

_ON_THIS_MACHINE = (RuntimeKind.HOST, RuntimeKind.VENV)
_SHELLS = frozenset({"bash", "sh", "dash"})
_PYTHON = re.compile(r"python(\d+(\.\d+)*)?")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_EXPANSION = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")
_PLAIN_VALUE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_OF_THE_SHELL = frozenset("`;|&<>()\n*?[]{}~!#\\$")
# Options with which Python looks for no start-up file, or not on PYTHONPATH.
_WITHOUT_HOOK = frozenset("EIS")


@dataclass(frozen=True)
class PythonCommand:
    """A command that is one Python process from the first instruction on."""

    fixed: tuple[str, ...]  # up to the script or module: what a host is started for
    arguments: tuple[str, ...]
    variables: Mapping[str, str]  # the whole environment, with what the command itself assigns
    front: tuple[str, ...]  # directories that come before site-packages because of the script


def python_command(argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> PythonCommand | None:
    """The command as Python gets it; None for any that does not qualify."""
    words: list[str] | None = list(argv)
    assigned: dict[str, str] = {}
    if Path(argv[0]).name in _SHELLS:
        words = _shell_words(argv[2], env) if len(argv) == 3 and argv[1] == "-c" else None
        words = _without_assignments(words or [], assigned)
        if words and words[0] == "exec":
            words = words[1:]
    if words and Path(words[0]).name == "env":
        words = _without_assignments(words[1:], assigned)
    if not words or words[0].startswith("-"):
        return None
    variables = {**env, **assigned}
    program = shutil.which(
        str(cwd / words[0]) if "/" in words[0] else words[0], path=variables.get("PATH")
    )
    if program is None:
        return None
    if _PYTHON.fullmatch(Path(words[0]).name):
        at, front = _script_at(words, cwd)
    elif _is_python_script(Path(program)):
        at, front = 0, (str(Path(program).resolve().parent),)
    else:
        return None
    if at is None:
        return None
    return PythonCommand(tuple(words[: at + 1]), tuple(words[at + 1 :]), variables, front)


def _shell_words(text: str, env: Mapping[str, str]) -> list[str] | None:
    """The words of a text that a shell would only take apart; None where it would do more."""
    if "'" in text and "$" in text:
        return None
    plain = True

    def value(found: "re.Match[str]") -> str:
        nonlocal plain
        known = env.get(found[1] or found[2], "")
        plain &= _PLAIN_VALUE.fullmatch(known) is not None
        return known

    text = _EXPANSION.sub(value, text)
    if not plain or _OF_THE_SHELL & set(text):
        return None
    try:
        return shlex.split(text)
    except ValueError:
        return None


def _without_assignments(words: Sequence[str], assigned: dict[str, str]) -> list[str]:
    rest = list(words)
    while rest and (found := _ASSIGNMENT.fullmatch(rest[0])):
        assigned[found[1]] = found[2]
        del rest[0]
    return rest


def _script_at(words: Sequence[str], cwd: Path) -> tuple[int | None, tuple[str, ...]]:
    """Where in a command of Python's the script, the module or the code stands, and what it puts on
    the path.
    """
    at = 1
    while at < len(words):
        word = words[at]
        if not word.startswith("-"):
            script = cwd / word
            front = (str(script.resolve().parent),)
            return (at, front) if script.is_file() else (None, ())
        if word.startswith("--") or word == "-":
            return None, ()
        for place, letter in enumerate(word[1:], start=1):
            if letter in _WITHOUT_HOOK:
                return None, ()
            if letter in "cmXW":
                # Its value is the rest, or the next word.
                behind = at if word[place + 1 :] else at + 1
                if letter in "cm":
                    return (behind, (str(cwd),)) if behind < len(words) else (None, ())
                at = behind
                break
        at += 1
    return None, ()


def _is_python_script(program: Path) -> bool:
    try:
        with program.open("rb") as file:
            first = file.readline(256)
    except OSError:
        return False
    options = first.split(b"python", 1)[-1].split()[1:]
    return (
        first.startswith(b"#!")
        and b"python" in first
        and not any(set(word) & set(b"EIS") for word in options)
    )


@dataclass(frozen=True)
class _Seen:
    """What the watched trial of a command imported; nothing if it could not be watched."""

    candidates: Path  # rows of name, file, variables that the program had changed
    any_candidate: bool
    importing: float  # seconds of it, at least
    seconds: float  # of the whole trial

    @property
    def is_worth_it(self) -> bool:
        return self.any_candidate and self.importing >= worth_seconds(self.seconds)


@dataclass
class WarmStarts:
    """What one executor knows of the commands it runs."""

    _seen: dict[tuple[str, ...], _Seen] = field(default_factory=dict)
    _watched: dict[str, tuple[tuple[str, ...], Path]] = field(default_factory=dict)  # by trial
    _files: list[int] = field(default_factory=list)

    def instructions(
        self, trial: TrialSpec, launch: Launch, env: Mapping[str, str]
    ) -> dict[str, Any]:
        """What the supervisor is told besides: to start warm, to watch the imports, or nothing."""
        if trial.start is Start.COLD or trial.environment.kind not in _ON_THIS_MACHINE:
            return {}
        cwd = launch.cwd.absolute()
        command = python_command(launch.argv, env, cwd) if trial.resources.tasks == 1 else None
        if command is None:
            return {}
        key = _key(command, cwd)
        seen = self._seen.get(key)
        if seen is None:
            return self._watch(trial, key)
        if trial.start is Start.WATCHED or not seen.is_worth_it:
            return {}
        return {
            "warm": {
                "command": list(command.fixed),
                "arguments": list(command.arguments),
                "env": dict(command.variables),
                "front": list(command.front),
                "candidates": str(seen.candidates),
                "seconds": seen.seconds,
                "of_few": trial.start is Start.WARM_OF_FEW,
            }
        }

    def keeps(self, trial: TrialSpec) -> bool:
        """Whether its program is known, and its imports are worth keeping."""
        if trial.environment.kind not in _ON_THIS_MACHINE:
            return False
        launch = launch_for(trial)
        cwd = launch.cwd.absolute()
        command = python_command(launch.argv, launch.environ(os.environ), cwd)
        seen = self._seen.get(_key(command, cwd)) if command is not None else None
        return seen is not None and seen.is_worth_it

    def _watch(self, trial: TrialSpec, key: tuple[str, ...]) -> dict[str, Any]:
        if any(key == one for one, _ in self._watched.values()):
            return {}
        file = self._file()
        self._watched[trial.id] = key, file
        return {"observe": str(file)}

    def ended(self, end: TrialEnd) -> dict[str, Any] | None:
        """What was learned from this trial, for `learn` elsewhere."""
        key, file = self._watched.pop(end.trial_id, (None, None))
        if key is None or file is None:
            return None
        rows = read_rows(file)
        if not rows and (end.cancelled or end.lost):
            return None  # it says nothing about the command
        self._note(key, file, end.duration)
        return {"key": list(key), "rows": rows, "seconds": end.duration}

    def learn(self, found: Mapping[str, Any]) -> None:
        """What a trial of another process imported. A host uses of it what it finds at the same
        place.
        """
        key = tuple(found["key"])
        if key not in self._seen:
            file = self._file()
            file.write_bytes(os.fsencode("".join("\t".join(row) + "\n" for row in found["rows"])))
            self._note(key, file, found["seconds"])

    def _note(self, key: tuple[str, ...], file: Path, seconds: float) -> None:
        rows = read_rows(file)
        importing = max((float(row[2]) for row in rows if not row[0]), default=0.0)
        self._seen[key] = _Seen(file, any(row[0] for row in rows), importing, seconds)

    def _file(self) -> Path:
        """In memory: whatever ends this process, no file is left of it."""
        self._files.append(os.memfd_create("aorta-imports"))
        return Path(f"/proc/{os.getpid()}/fd/{self._files[-1]}")

    def close(self) -> None:
        while self._files:
            os.close(self._files.pop())


def _key(command: PythonCommand, cwd: Path) -> tuple[str, ...]:
    return (str(cwd), *command.fixed)
