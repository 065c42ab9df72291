"""Warm starts, where they are asked for (`--warm`): a trial is a fork of a process that has
imported the program's libraries.

The owner of trials (`WarmStarts`) knows which commands are one Python program and what the first
cold trial of each was seen to import at its top. A supervisor keeps the servers (`fork`):
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
from functools import partial
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from aorta.core.trial import RuntimeKind, Start, TrialEnd, TrialSpec
from aorta.executors import process_tree

if TYPE_CHECKING:
    from aorta.runtimes.launch import Launch

HOOK = str(Path(__file__).parent / "hook")
_OWN = frozenset({"AORTA_TRIAL_DIR", "AORTA_METRIC_FILE", "AORTA_STEP_TIMES"})
# Libraries read these when they are loaded.
_OF_LIBRARIES = re.compile(
    r"(?:PYTHON|LD_|GLIBC_|MALLOC_|OMP_|KMP_|MKL_|OPENBLAS_|BLIS_|NUMEXPR_|CU|NVIDIA_|NCCL_|TORCH|"
    r"PYTORCH_|ATEN_|HIP_|HSA_|ROC|AMD_|MIOPEN_|XLA_|JAX_|TF_|HF_|TRANSFORMERS_|TRITON_)"
)
_PYTHON = re.compile(r"python(\d+(\.\d+)*)?")
_PLAIN_VALUE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_OF_THE_SHELL = frozenset("`;|&<>()\n*?[]{}~!#\\$'")
_MOST_SERVERS = 3  # of one slot; the one that was used longest ago goes first
WORTH = 0.3  # seconds of imports; a server that saves less is not used
_FORK_SECONDS = 20.0
_IMPORT_SECONDS = 600.0


def python_command(argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> dict[str, Any] | None:
    """What a fork server must know to run `python SCRIPT ...` or `python -m MODULE ...`, also as
    the one command of `bash -c`; None for anything else."""
    words = list(argv)
    if Path(words[0]).name in {"bash", "sh"} and len(words) == 3 and words[1] == "-c":
        words = _shell_words(words[2], env)
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
    named = options + 1 + is_module
    return {
        "program": [interpreter, *words[1:named]],
        "arguments": words[named:],
        "env": dict(env),
        "cwd": str(cwd),
        # The directory that Python puts before all others on its path.
        "front": str(cwd if is_module else (cwd / rest[0]).resolve().parent),
    }


def _shell_words(text: str, env: Mapping[str, str]) -> list[str]:
    """The words of a text that a shell would only take apart; none where it would do more."""
    plain = {name: value for name, value in env.items() if _PLAIN_VALUE.fullmatch(value)}
    try:
        text = Template(text.removeprefix("exec ")).substitute(plain)
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
        key = json.dumps([command["cwd"], command["program"]])
        if key not in self._modules and not any(key == one for one, _ in self._watched.values()):
            self._watched[trial.id] = key, trial.trial_dir / "imports.txt"
            return {"watch_imports": str(trial.trial_dir / "imports.txt")}
        modules = self._modules.get(key)
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


def hooked(env: Mapping[str, str], what: str) -> dict[str, str]:
    """The variables with which this process, become a Python, finds the hook and does `what`."""
    path = os.pathsep.join([HOOK, *([env["PYTHONPATH"]] if "PYTHONPATH" in env else [])])
    return {**env, "PYTHONPATH": path, "AORTA_HOOK": f"{os.getpid()}:{what}"}


@dataclass(eq=False)
class _Server:
    pid: int
    line: socket.socket
    saved: float = 0.0  # seconds of imports

    def answer(self, seconds: float, *heard: int) -> Any:
        """OSError if there is none in time, or if one of `heard` says something before."""
        number = self.line.fileno()
        if number not in select.select([number, *heard], [], [], seconds)[0]:
            raise InterruptedError
        return json.loads(self.line.recv(4096))


_servers: dict[str, _Server] = {}  # of this supervisor; the one that was used last is the last
_refused: set[str] = set()


def fork(
    warm: Mapping[str, Any], streams: tuple[int, int], owner: int
) -> tuple[int, float, str] | None:
    """A trial from its server, which is started if need be, and ends with this process: the pid,
    the seconds of imports that it saves, and the server. None if it must start cold. `owner`: a
    descriptor that becomes readable when nobody waits for the imports any more.
    """
    name, trial = warm["server"], warm["trial"]
    if name in _refused:
        return None
    try:
        if name not in _servers:
            _start(name, trial, warm["modules"], owner)
        server = _servers[name] = _servers.pop(name)
        asked = {"env": trial["env"], "arguments": trial["arguments"], "supervisor": os.getpid()}
        socket.send_fds(server.line, [json.dumps(asked).encode()], streams)
        return server.answer(_FORK_SECONDS), server.saved, f"{os.getpid()}-{server.pid}"
    except (OSError, ValueError) as wrong:
        _end(name)
        if not isinstance(wrong, InterruptedError):
            _refused.add(name)
    return None


def _start(name: str, trial: Mapping[str, Any], modules: Sequence[str], owner: int) -> None:
    """OSError or ValueError if there can be none; InterruptedError by the owner."""
    if len(_servers) >= _MOST_SERVERS:
        _end(next(iter(_servers)))
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)  # a message is whole
    with theirs, open(os.devnull, "wb") as nothing:  # noqa: PTH123 - a descriptor is wanted
        line, null = theirs.fileno(), nothing.fileno()
        wanted = json.dumps({"line": line, "front": trial["front"], "modules": modules})
        # What `/proc` shows of it and its forks: it is found if its supervisor is killed.
        env = {**trial["env"], "AORTA_TRIAL_DIR": str(os.getpid())}
        argv, variables = [*trial["program"], *trial["arguments"]], partial(hooked, env, wanted)
        pid = process_tree.start(argv, variables, trial["cwd"], null, null, keep=line)
    process_tree.add_helper(pid)
    server = _servers[name] = _Server(pid, ours)
    about = server.answer(_IMPORT_SECONDS, owner)
    if about["unfit"] or about["seconds"] < WORTH:
        raise ValueError(about["unfit"] or "it has nothing to import")
    server.saved = about["seconds"]


def _end(name: str) -> None:
    if server := _servers.pop(name, None):
        server.line.close()
        process_tree.end_helper(server.pid)
