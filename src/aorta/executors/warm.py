"""Warm starts, where they are asked for (`--warm`): a trial is a fork of a process that has
imported the program's libraries.

The owner of trials (`WarmStarts`) knows which commands are one Python program and what the first
cold trial of each was seen to import at its top. A supervisor (`ForkServers`) keeps the servers:
one for one interpreter and one environment. Only what a search itself varies (`TrialSpec.varied`)
and aorta's own variables may differ between the forks of one server. Whatever goes wrong with a
server, the trial starts cold.
"""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from aorta.core.trial import RuntimeKind, Start, TrialEnd, TrialSpec
from aorta.executors import process_tree

if TYPE_CHECKING:
    from aorta.runtimes.launch import Launch

HOOK = Path(__file__).parent / "hook"
MARK = "AORTA_FORK_SERVER"
_OWN = frozenset({"AORTA_TRIAL_DIR", "AORTA_METRIC_FILE", "AORTA_STEP_TIMES"})
# Libraries read these when they are loaded.
_OF_LIBRARIES = re.compile(
    r"(?:PYTHON|LD_|GLIBC_|MALLOC_|OMP_|KMP_|MKL_|OPENBLAS_|BLIS_|NUMEXPR_|CU|NVIDIA_|NCCL_|TORCH|"
    r"PYTORCH_|ATEN_|HIP_|HSA_|ROC|AMD_|MIOPEN_|XLA_|JAX_|TF_|HF_|TRANSFORMERS_|TRITON_)"
)
_PYTHON = re.compile(r"python(\d+(\.\d+)*)?")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_PLAIN_VALUE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_OF_THE_SHELL = frozenset("`;|&<>()\n*?[]{}~!#\\$'")
_WORTH = 0.3  # seconds of imports; less are left to each trial
_MOST_SERVERS = 3  # of one slot; the one that was used longest ago goes first
_FORK_SECONDS = 20.0
_IMPORT_SECONDS = 600.0


def python_command(argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> dict[str, Any] | None:
    """What a fork server must know to run `python SCRIPT ...` or `python -m MODULE ...`, also
    behind `env NAME=VALUE` and as the one command of `bash -c`; None for anything else."""
    words, env = list(argv), dict(env)
    if Path(words[0]).name in {"bash", "sh"} and len(words) == 3 and words[1] == "-c":
        words = _shell_words(words[2], env)
    if words and words[0] in {"env", "exec", "/usr/bin/env"}:
        del words[0]
    while words and _ASSIGNMENT.match(words[0]):
        name, _, env[name] = words.pop(0).partition("=")
    if not words or not _PYTHON.fullmatch(Path(words[0]).name):
        return None
    program = str(cwd / words[0]) if "/" in words[0] else words[0]
    options = 1
    while options < len(words) and words[options] in {"-u", "-O", "-OO", "-B"}:
        options += 1
    interpreter, rest = shutil.which(program, path=env.get("PATH")), words[options:]
    is_module = len(rest) > 1 and rest[0] == "-m"
    if interpreter is None or not rest or not (is_module or (cwd / rest[0]).is_file()):
        return None
    return {
        "interpreter": [interpreter, *words[1:options]],
        "script": "" if is_module else rest[0],
        "module": rest[1] if is_module else "",
        "arguments": rest[2:] if is_module else rest[1:],
        "env": env,
        "cwd": str(cwd),
        # The directory that Python puts before all others on its path.
        "front": str(cwd if is_module else (cwd / rest[0]).resolve().parent),
    }


def _shell_words(text: str, env: Mapping[str, str]) -> list[str]:
    """The words of a text that a shell would only take apart; none where it would do more."""
    plain = {name: value for name, value in env.items() if _PLAIN_VALUE.fullmatch(value)}
    try:
        text = Template(text).substitute(plain)
        return [] if _OF_THE_SHELL & set(text) else shlex.split(text)
    except (KeyError, ValueError):
        return []


@dataclass
class WarmStarts:
    """What one executor knows of the commands it runs."""

    _modules: dict[str, list[str]] = field(default_factory=dict)  # by program, what it imports
    _watched: dict[str, tuple[str, Path]] = field(default_factory=dict)  # by trial

    def instructions(
        self, trial: TrialSpec, launch: Launch, env: Mapping[str, str]
    ) -> dict[str, Any]:
        """What the supervisor is told besides: to watch the imports, to start warm, or nothing."""
        here = trial.environment.kind in {RuntimeKind.HOST, RuntimeKind.VENV}
        command = python_command(launch.argv, env, launch.cwd.absolute()) if here else None
        if command is None:
            return {}
        key = json.dumps([command[part] for part in ("cwd", "interpreter", "script", "module")])
        if key not in self._modules:
            if any(key == one for one, _ in self._watched.values()):
                return {}
            self._watched[trial.id] = key, trial.trial_dir / "imports.txt"
            return {"watch_imports": str(trial.trial_dir / "imports.txt")}
        modules = self._modules[key]
        if trial.start is not Start.WARM or not modules:
            return {}
        varied = {name for name in trial.varied if not _OF_LIBRARIES.match(name)} | _OWN
        same = sorted(item for item in command["env"].items() if item[0] not in varied)
        return {"warm": {"server": json.dumps([key, same]), "modules": modules, "trial": command}}

    def ended(self, end: TrialEnd) -> TrialEnd:
        """With the seconds that this trial spent on imports, if they were watched."""
        if end.trial_id not in self._watched:
            return end
        key, file = self._watched.pop(end.trial_id)
        modules, seconds = read_imports(file)
        file.unlink(missing_ok=True)
        if not modules and (end.cancelled or end.lost):
            return end  # it says nothing about the command
        self._modules[key] = modules
        return replace(end, imports=seconds)


def read_imports(file: Path) -> tuple[list[str], float]:
    """The modules that the hook saw imported, and for how many seconds at least: a line is a name
    and moments of its import."""
    text = os.fsdecode(file.read_bytes()) if file.is_file() else ""
    rows = [line.split(" ") for line in text.splitlines() if " " in line]
    return [row[0] for row in rows], sum(float(row[-1]) - float(row[1]) for row in rows)


def watched(env: Mapping[str, str], file: str) -> dict[str, str]:
    """The variables with which this process, become a Python, finds the hook that writes `file`."""
    before = env.get("PYTHONPATH")
    original = {} if before is None else {"AORTA_IMPORTS_PYTHONPATH": f"={before}"}
    path = f"{HOOK}{os.pathsep}{before}" if before else str(HOOK)
    return {**env, **original, "PYTHONPATH": path, "AORTA_IMPORTS": f"{os.getpid()}:{file}"}


@dataclass(eq=False)
class _Server:
    pid: int
    line: socket.socket
    saved: float = 0.0  # seconds of imports

    def request(
        self, content: Mapping[str, Any], seconds: float, heard: Sequence[int], *descriptors: int
    ) -> dict[str, Any]:
        """Its response; OSError if there is none in time, or if one of `heard` says something."""
        data = json.dumps(content).encode() + b"\n"
        sent = socket.send_fds(self.line, [data], descriptors) if descriptors else 0
        self.line.sendall(data[sent:])
        number = self.line.fileno()
        if number not in select.select([number, *heard], [], [], seconds)[0]:
            raise InterruptedError
        with self.line.makefile("rb") as response:
            found: dict[str, Any] = json.loads(response.readline() or b"{}")
        return found


class ForkServers:
    """The fork servers of one supervisor; children of it that are part of no trial."""

    def __init__(self) -> None:
        self._open: dict[str, _Server] = {}  # the one that was used last is the last
        self._refused: set[str] = set()

    def fork(
        self, warm: Mapping[str, Any], streams: tuple[int, int], owner: int
    ) -> tuple[int, float, str] | None:
        """A trial from its server, which is started if need be: its pid, the seconds of imports
        that it saves, and the server. None if it must start cold. `owner`: a descriptor that
        becomes readable when nobody waits for the imports any more.
        """
        name = warm["server"]
        if name in self._refused:
            return None
        try:
            server = self._open.pop(name, None) or self._started(warm, owner)
            self._open[name] = server
            request = {**warm["trial"], "supervisor": os.getpid()}
            pid = server.request(request, _FORK_SECONDS, (), *streams)["pid"]
        except InterruptedError:
            return None
        except (OSError, ValueError, KeyError):
            self._close(name)
            self._refused.add(name)
            return None
        return pid, server.saved, f"{os.getpid()}-{server.pid}"

    def close(self) -> None:
        for name in list(self._open):
            self._close(name)

    def _started(self, warm: Mapping[str, Any], owner: int) -> _Server:
        """OSError, ValueError or KeyError if there can be none; InterruptedError by the owner."""
        if len(self._open) >= _MOST_SERVERS:
            self._close(next(iter(self._open)))
        trial = warm["trial"]
        ours, theirs = socket.socketpair()
        with theirs, open(os.devnull, "wb") as nothing:  # noqa: PTH123 - a descriptor is wanted
            program = [*trial["interpreter"], str(HOOK / "fork_server.py"), str(theirs.fileno())]
            env, null = {**trial["env"], MARK: str(os.getpid())}, nothing.fileno()
            pid = process_tree.start(program, env, trial["cwd"], null, null, keep=theirs.fileno())
        process_tree.add_helper(pid)
        server = self._open[warm["server"]] = _Server(pid, ours)
        libraries = {"modules": warm["modules"], "front": trial["front"]}
        try:
            response = server.request(libraries, _IMPORT_SECONDS, [owner])
        except InterruptedError:
            self._close(warm["server"])
            raise
        server.saved = response["seconds"]
        if response["unfit"] or server.saved < _WORTH:
            raise ValueError(response["unfit"] or "its imports take no time")
        return server

    def _close(self, name: str) -> None:
        if name in self._open:
            server = self._open.pop(name)
            server.line.close()
            process_tree.end_helper(server.pid)
