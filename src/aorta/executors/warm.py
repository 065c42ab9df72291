"""Warm starts, where they are asked for (`--warm`): a trial is a fork of a process that has
imported the program's libraries. Whatever goes wrong with that process, the trial starts cold.

The owner of trials (`WarmStarts`) knows what the first cold trial of a program was seen to import
at its top. A supervisor keeps the servers (`fork`), one for one interpreter and one environment:
only what a search itself varies (`TrialSpec.varied`) and aorta's own variables may differ.
"""

import json
import os
import re
import shlex
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import Template
from typing import Any

from aorta.core.trial import Start, TrialEnd, TrialSpec
from aorta.executors import process_tree

HOOK = str(Path(__file__).parent / "hook")
WORTH = 0.3  # seconds of imports; a server that saves less is not used
_OWN = frozenset({"AORTA_TRIAL_DIR", "AORTA_METRIC_FILE", "AORTA_STEP_TIMES"})
# Libraries read these when they are loaded.
_OF_LIBRARIES = re.compile(
    r"(?:PYTHON|LD_|GLIBC_|MALLOC_|OMP_|KMP_|MKL_|OPENBLAS_|BLIS_|NUMEXPR_|CU|NVIDIA_|NCCL_|TORCH|"
    r"PYTORCH_|ATEN_|HIP_|HSA_|ROC|AMD_|MIOPEN_|XLA_|JAX_|TF_|HF_|TRANSFORMERS_|TRITON_)"
)
# `python [-u] -m MODULE` or `python [-u] SCRIPT.py`, with a zero behind each word.
_PYTHON = re.compile(r"(?:[^\0]*/)?python[\d.]*\0(?:-u\0)?(?:-m\0[^\0]+|[^\0]+\.py)\0")
_PLAIN_VALUE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_OF_THE_SHELL = frozenset("`;|&<>()\n*?[]{}~!#\\$'")
_MOST_SERVERS = 3  # of one slot; further environments start cold
_PATIENCE = 120.0  # seconds for the imports of a server, and for a fork
_IMPORTS = "imports.txt"  # of a trial whose imports are watched


def python_command(argv: Sequence[str], env: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """A Python program, also as the one command of `bash -c`, and its arguments. The first is empty
    for anything else."""
    words = list(argv)
    if Path(words[0]).name in {"bash", "sh"} and len(words) == 3 and words[1] == "-c":
        words = _shell_words(words[2], env)
    program = _PYTHON.match("\0".join([*words, ""]))
    length = program[0].count("\0") if program else 0
    return words[:length], words[length:]


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

    def changes(
        self, trial: TrialSpec, request: Mapping[str, Any], supervisor: int
    ) -> dict[str, Any]:
        """Of the request: imports are watched, the trial starts warm, or none."""
        env: Mapping[str, str] = request["env"]
        words, arguments = python_command(request["argv"], env)
        if not words:
            return {}
        program = json.dumps([request["cwd"], words])
        if program not in self._modules:
            self._watched[trial.id] = program
            return {"env": hooked(env, supervisor, str(trial.trial_dir.absolute() / _IMPORTS))}
        modules = self._modules[program]
        if trial.start is not Start.WARM or not modules:
            return {}
        varied = {name for name in trial.varied if not _OF_LIBRARIES.match(name)} | _OWN
        same = sorted(item for item in env.items() if item[0] not in varied)
        server = json.dumps([program, same])
        command = {"program": words, "arguments": arguments}
        return {"warm": {"server": server, "modules": modules, **command}}

    def ended(self, end: TrialEnd) -> TrialEnd:
        """With the seconds that this trial spent on imports, if they were watched."""
        program = self._watched.pop(end.trial_id, None)
        if program is None or end.cancelled or end.lost:
            return end
        file = end.stdout.path.with_name(_IMPORTS)
        self._modules[program], seconds = read_imports(file)
        file.unlink(missing_ok=True)
        return replace(end, imports=seconds)


def read_imports(file: Path) -> tuple[list[str], float]:
    """The modules that the hook saw imported, and for how many seconds at least: a line is a name
    and moments of its import."""
    text = os.fsdecode(file.read_bytes()) if file.is_file() else ""
    rows = [line.split(" ") for line in text.splitlines() if " " in line]
    return [row[0] for row in rows], sum(float(row[-1]) - float(row[1]) for row in rows)


def hooked(env: Mapping[str, str], supervisor: int, what: str) -> dict[str, str]:
    """The variables with which a Python that is the supervisor's child finds the hook and does
    `what`."""
    path = os.pathsep.join([HOOK, *([env["PYTHONPATH"]] if "PYTHONPATH" in env else [])])
    return {**env, "PYTHONPATH": path, "AORTA_HOOK": f"{supervisor}:{what}"}


# -- in a supervisor -------------------------------------------------------------------------------

# The line to a server, which ends with it, and the seconds that it saves; None: it is not used.
_servers: dict[str, tuple[socket.socket, float] | None] = {}


def fork(request: Mapping[str, Any], streams: tuple[int, int]) -> tuple[int | None, float]:
    """Pid of a trial forked from its server, and import seconds saved; no pid: start it cold."""
    name, arguments = request["warm"]["server"], request["warm"]["arguments"]
    fork_request = {"env": request["env"], "arguments": arguments, "supervisor": os.getpid()}
    try:
        if name not in _servers and len(_servers) < _MOST_SERVERS:
            _servers[name] = _started(request)
        if server := _servers.get(name):
            socket.send_fds(server[0], [json.dumps(fork_request).encode()], streams)
            return json.loads(server[0].recv(64)), server[1]
    except (OSError, ValueError):  # an import failed, it saves nothing, or was killed
        _servers[name] = None
    return None, 0.0


def _started(request: Mapping[str, Any]) -> tuple[socket.socket, float]:
    """OSError or ValueError if it ends before it has imported what it is to."""
    warm, supervisor = request["warm"], os.getpid()
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)  # a message is whole
    ours.settimeout(_PATIENCE)
    with theirs, open(os.devnull, "wb") as nothing:  # noqa: PTH123
        line, null = theirs.fileno(), nothing.fileno()
        wanted = json.dumps({"line": line, "modules": warm["modules"], "worth": WORTH})
        # What `/proc` shows of it and its forks: it is found if its supervisor is killed.
        env = {**request["env"], "AORTA_TRIAL_DIR": str(supervisor)}
        argv, env = [*warm["program"], *warm["arguments"]], hooked(env, supervisor, wanted)
        pid = process_tree.start(argv, env, request["cwd"], null, null, keep=line)
    process_tree.helpers.add(pid)
    return ours, json.loads(ours.recv(64))
