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
from contextlib import suppress
from dataclasses import dataclass, field, replace
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
_MOST_SERVERS = 3  # of one slot; further environments start cold
WORTH = 0.3  # seconds of imports; a server that saves less is not used
_FORK_SECONDS = 20.0
_IMPORT_SECONDS = 600.0
_IMPORTS = "imports.txt"  # of a trial whose imports are watched


def python_command(argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> dict[str, Any] | None:
    """What a fork server must know to run `python [-u] SCRIPT ...` or `python [-u] -m MODULE ...`,
    also as the one command of `bash -c`; None for anything else."""
    words = list(argv)
    if Path(words[0]).name in {"bash", "sh"} and len(words) == 3 and words[1] == "-c":
        words = _shell_words(words[2], env)
    at = 2 if words[1:2] == ["-u"] else 1
    is_module = words[at : at + 1] == ["-m"]
    named = at + is_module  # the word of the script or module
    if len(words) <= named or not _PYTHON.fullmatch(Path(words[0]).name):
        return None
    program = str(cwd / words[0]) if "/" in words[0] else words[0]
    interpreter, script = shutil.which(program, path=env.get("PATH")), cwd / words[named]
    if interpreter is None or not (is_module or script.is_file()):
        return None
    return {
        "program": [interpreter, *words[1 : named + 1]],
        "arguments": words[named + 1 :],
        "env": dict(env),
        "cwd": str(cwd),
        # The directory that Python puts before all others on its path.
        "front": str(cwd if is_module else script.resolve().parent),
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
    _watched: dict[str, str] = field(default_factory=dict)  # the program by trial

    def instructions(
        self, trial: TrialSpec, launch: Launch, env: Mapping[str, str]
    ) -> dict[str, Any]:
        """What the supervisor is told besides: to watch the imports, to start warm, or nothing."""
        here = trial.environment.kind in {RuntimeKind.HOST, RuntimeKind.VENV}
        command = python_command(launch.argv, env, launch.cwd.absolute()) if here else None
        if command is None:
            return {}
        program = json.dumps([command["cwd"], command["program"]])
        if program not in self._modules:
            self._modules[program], self._watched[trial.id] = [], program
            return {"watch_imports": str(trial.trial_dir / _IMPORTS)}
        modules = self._modules[program]
        if trial.start is not Start.WARM or not modules:
            return {}
        varied = {name for name in trial.varied if not _OF_LIBRARIES.match(name)} | _OWN
        same = sorted(item for item in env.items() if item[0] not in varied)
        return {"warm": {"server": json.dumps([program, same]), "modules": modules} | command}

    def ended(self, end: TrialEnd) -> TrialEnd:
        """With the seconds that this trial spent on imports, if they were watched."""
        program = self._watched.pop(end.trial_id, None)
        if program is None:
            return end
        file = end.stdout.path.with_name(_IMPORTS)
        self._modules[program], seconds = read_imports(file)
        file.unlink(missing_ok=True)
        if not self._modules[program] and (end.cancelled or end.lost):
            del self._modules[program]  # it says nothing about the command
            return end
        return replace(end, imports=seconds)


def read_imports(file: Path) -> tuple[list[str], float]:
    """The modules that the hook saw imported, and for how many seconds at least: a line is a name
    and moments of its import."""
    text = os.fsdecode(file.read_bytes()) if file.is_file() else ""
    rows = [line.split(" ") for line in text.splitlines() if " " in line]
    return [row[0] for row in rows], sum(float(row[-1]) - float(row[1]) for row in rows)


def hooked(env: Mapping[str, str], what: str) -> dict[str, str]:
    """The variables with which a Python that is this process's child finds the hook and does
    `what`."""
    path = os.pathsep.join([HOOK, *([env["PYTHONPATH"]] if "PYTHONPATH" in env else [])])
    return {**env, "PYTHONPATH": path, "AORTA_HOOK": f"{os.getpid()}:{what}"}


# -- in a supervisor -------------------------------------------------------------------------------


@dataclass
class _Server:
    pid: int
    line: socket.socket
    saves: float | None = None  # seconds of imports; None: it has not said yet

    def answer(self, seconds: float, *heard: int) -> Any:
        """TimeoutError if there is none in time; InterruptedError if one of `heard` is before."""
        ready = select.select([self.line.fileno(), *heard], [], [], seconds)[0]
        if self.line.fileno() not in ready:
            raise InterruptedError if ready else TimeoutError
        return json.loads(self.line.recv(4096))


_servers: dict[str, _Server | None] = {}  # None: it cannot be used


def fork(warm: Mapping[str, Any], streams: tuple[int, int], owner: int) -> tuple[int, float] | None:
    """A trial from its server, which is started if need be and ends with this process: the pid, and
    the seconds of imports that it saves. None if it must start cold. `owner`: a descriptor that
    becomes readable when nobody waits for the imports any more.
    """
    name = warm["server"]
    if name not in _servers and len(_servers) < _MOST_SERVERS:
        _servers[name] = _started(warm)
    server = _servers.get(name)
    if server is None:
        return None
    asked = {"env": warm["env"], "arguments": warm["arguments"], "supervisor": os.getpid()}
    try:
        if server.saves is None:
            server.saves = float(server.answer(_IMPORT_SECONDS, owner))
        if server.saves >= WORTH:
            socket.send_fds(server.line, [json.dumps(asked).encode()], streams)
            return server.answer(_FORK_SECONDS), server.saves
    except InterruptedError:
        return None
    except (OSError, ValueError):
        pass  # it is gone, or an import failed
    server.line.close()
    process_tree.end_helper(server.pid)
    _servers[name] = None
    return None


def _started(warm: Mapping[str, Any]) -> _Server | None:
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)  # a message is whole
    with theirs, open(os.devnull, "wb") as nothing, suppress(OSError):  # noqa: PTH123
        line, null = theirs.fileno(), nothing.fileno()
        wanted = json.dumps({"line": line, "front": warm["front"], "modules": warm["modules"]})
        # What `/proc` shows of it and its forks: it is found if its supervisor is killed.
        env = {**warm["env"], "AORTA_TRIAL_DIR": str(os.getpid())}
        argv = [*warm["program"], *warm["arguments"]]
        pid = process_tree.start(argv, hooked(env, wanted), warm["cwd"], null, null, keep=line)
        process_tree.add_helper(pid)
        return _Server(pid, ours)
    return None
