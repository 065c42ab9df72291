"""Warm starts, for whoever asks for them (`--warm`): a trial is a fork of a process that has
imported the program's libraries.

The owner of trials (`WarmStarts`) knows which commands are one Python program and what the first
cold trial of each was seen to import at its top. A supervisor (`ForkServers`) keeps the servers:
one for one interpreter and one environment, whatever variable differs. Only what a search itself
varies (`TrialSpec.varied`) and aorta's own variables may differ between the forks of one server.
Whatever goes wrong with a server, the answer is a cold start.
"""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import shutil
import socket
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aorta.core.trial import RuntimeKind, Start, TrialEnd, TrialSpec
from aorta.executors import process_tree

if TYPE_CHECKING:
    from aorta.runtimes.launch import Launch

HOOK = Path(__file__).parent / "hook"
MARK = "AORTA_FORK_SERVER"
_OWN = frozenset({"AORTA_TRIAL_DIR", "AORTA_METRIC_FILE", "AORTA_STEP_TIMES"})
# Libraries read these when they are loaded, whoever sets them.
_OF_LIBRARIES = re.compile(
    r"(?:PYTHON|LD_|GLIBC_|MALLOC_|OMP_|KMP_|MKL_|OPENBLAS_|BLIS_|NUMEXPR_|CU|NVIDIA_|NCCL_|TORCH|"
    r"PYTORCH_|ATEN_|HIP_|HSA_|ROC|AMD_|MIOPEN_|XLA_|JAX_|TF_|HF_|TRANSFORMERS_|TRITON_)"
)
_PYTHON = re.compile(r"python(\d+(\.\d+)*)?")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_EXPANSION = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")
_PLAIN_VALUE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_OF_THE_SHELL = frozenset("`;|&<>()\n*?[]{}~!#\\$'")
_WORTH = 0.3  # seconds of imports; less are left to each trial
_MOST_SERVERS = 3  # of one slot; the one that was used longest ago goes first
_FEW = 4
_LEAST_FREE = 0.2  # of the machine's memory, or no further server is started
_ANSWER_SECONDS = 20.0  # for a fork
_LEAST_PATIENCE = 60.0  # for imports


@dataclass(frozen=True)
class PythonCommand:
    """A command that is one Python program from the first instruction on."""

    interpreter: tuple[str, ...]  # with its options
    script: str  # or nothing
    module: str  # or nothing
    arguments: tuple[str, ...]
    variables: Mapping[str, str]  # the whole environment, with what the command itself assigns
    front: str  # the directory that Python puts before all others on its path


def python_command(argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> PythonCommand | None:
    """`python SCRIPT ...` or `python -m MODULE ...`, also behind `env NAME=VALUE` and as the one
    command of `bash -c`; None for anything else.
    """
    words, assigned = list(argv), dict[str, str]()
    if Path(words[0]).name in {"bash", "sh"} and len(words) == 3 and words[1] == "-c":
        words = _shell_words(words[2], env)
        _take_assignments(words, assigned)
    if words and words[0] in {"env", "exec", "/usr/bin/env"}:
        words = words[1:]
        _take_assignments(words, assigned)
    if not words or not _PYTHON.fullmatch(Path(words[0]).name):
        return None
    variables = {**env, **assigned}
    program = str(cwd / words[0]) if "/" in words[0] else words[0]
    interpreter = shutil.which(program, path=variables.get("PATH"))
    at = 1
    while at < len(words) and words[at] in {"-u", "-O", "-OO", "-B"}:
        at += 1
    if interpreter is None or at >= len(words):
        return None
    fixed = (interpreter, *words[1:at])
    if words[at] == "-m" and at + 1 < len(words):
        module, rest = words[at + 1], tuple(words[at + 2 :])
        return PythonCommand(fixed, "", module, rest, variables, str(cwd))
    script = cwd / words[at]
    if words[at].startswith("-") or not script.is_file():
        return None
    front = str(script.resolve().parent)
    return PythonCommand(fixed, words[at], "", tuple(words[at + 1 :]), variables, front)


def _shell_words(text: str, env: Mapping[str, str]) -> list[str]:
    """The words of a text that a shell would only take apart; none where it would do more."""
    values = [env.get(found[1] or found[2], "") for found in _EXPANSION.finditer(text)]
    if not all(_PLAIN_VALUE.fullmatch(value) for value in values):
        return []
    text = _EXPANSION.sub(lambda found: env[found[1] or found[2]], text)
    if _OF_THE_SHELL & set(text):
        return []
    try:
        return shlex.split(text)
    except ValueError:
        return []


def _take_assignments(words: list[str], assigned: dict[str, str]) -> None:
    while words and (found := _ASSIGNMENT.fullmatch(words[0])):
        assigned[found[1]] = found[2]
        del words[0]


@dataclass(frozen=True)
class Imports:
    """What a cold trial imported at its top, before it changed a variable, and the seconds of
    it.
    """

    modules: tuple[str, ...] = ()
    seconds: float = 0.0


def read_imports(file: Path) -> Imports:
    """What the hook wrote; nothing where it wrote nothing."""
    modules, seconds, began = list[str](), 0.0, None
    try:
        lines = os.fsdecode(file.read_bytes()).splitlines()
    except OSError:
        return Imports()
    for row in (line.split("\t") for line in lines if line.count("\t") == 2):
        name, at, changed = row[0], float(row[1]), row[2]
        if changed:
            break
        if name:
            modules.append(name)
            began = began or at
        elif began is not None:
            seconds, began = seconds + at - began, None
    return Imports(tuple(modules), seconds)


@dataclass
class WarmStarts:
    """What one executor knows of the commands it runs. `asked`: trials may start warm; otherwise
    the imports of the first are watched, to say what that would save.
    """

    asked: bool
    _seen: dict[tuple[str, ...], Imports] = field(default_factory=dict)
    _watched: dict[str, tuple[tuple[str, ...], Path]] = field(default_factory=dict)  # by trial
    _used: Counter[str] = field(default_factory=Counter)  # environments

    def instructions(
        self, trial: TrialSpec, launch: Launch, env: Mapping[str, str]
    ) -> dict[str, Any]:
        """What the supervisor is told besides: to watch the imports, to start warm, or nothing."""
        here = trial.environment.kind in {RuntimeKind.HOST, RuntimeKind.VENV}
        if trial.start is Start.COLD or not here or trial.resources.tasks > 1:
            return {}
        command = python_command(launch.argv, env, launch.cwd.absolute())
        if command is None:
            return {}
        place = "" if "PWD" in trial.varied else str(launch.cwd)
        key = (place, *command.interpreter, command.script, command.module)
        if key not in self._seen:
            return self._watch(trial, key)
        imports = self._seen[key]
        same = {
            name: value
            for name, value in command.variables.items()
            if name not in _OWN and (name not in trial.varied or _OF_LIBRARIES.match(name))
        }
        server = json.dumps([key, sorted(same.items())])
        self._used[server] += 1
        wanted = trial.start is not Start.WATCHED and imports.seconds >= _WORTH
        if not (self.asked and wanted and self._used[server] > 1):
            return {}  # a server that would serve one trial saves nothing
        return {
            "warm": {
                "server": server,
                "interpreter": list(command.interpreter),
                "modules": list(imports.modules),
                "patience": max(_LEAST_PATIENCE, 10 * imports.seconds),
                "few": trial.start is Start.WARM_OF_FEW,
                "trial": {
                    "script": command.script,
                    "module": command.module,
                    "arguments": list(command.arguments),
                    "env": dict(command.variables),
                    "front": command.front,
                    "cwd": str(launch.cwd),
                },
            }
        }

    def _watch(self, trial: TrialSpec, key: tuple[str, ...]) -> dict[str, Any]:
        if any(key == one for one, _ in self._watched.values()):
            return {}
        file = trial.trial_dir / "imports.tsv"
        self._watched[trial.id] = key, file
        return {"watch_imports": str(file)}

    def ended(self, end: TrialEnd) -> float | None:
        """Seconds that this trial spent on imports, if they were watched."""
        key, file = self._watched.pop(end.trial_id, (None, None))
        if key is None or file is None:
            return None
        imports = read_imports(file)
        file.unlink(missing_ok=True)
        if not imports.modules and (end.cancelled or end.lost):
            return None  # it says nothing about the command
        self._seen[key] = imports
        return imports.seconds


def watched(env: Mapping[str, str], file: str) -> dict[str, str]:
    """The variables with which this process, become a Python, finds the hook that writes `file`."""
    before = env.get("PYTHONPATH")
    original = {} if before is None else {"AORTA_IMPORTS_PYTHONPATH": f"={before}"}
    path = f"{HOOK}{os.pathsep}{before}" if before else str(HOOK)
    return {**env, **original, "PYTHONPATH": path, "AORTA_IMPORTS": f"{os.getpid()}:{file}"}


@dataclass(eq=False)
class _Server:
    name: str
    pid: int
    line: socket.socket
    saved: float = 0.0
    trials: int = 0
    used_at: float = 0.0


@dataclass(frozen=True)
class Fork:
    pid: int
    saved: float  # seconds of imports
    server: str


class ForkServers:
    """The fork servers of one supervisor; children of it that are part of no trial."""

    def __init__(self) -> None:
        self._open: dict[str, _Server] = {}
        self._refused: set[str] = set()

    def fork(self, warm: Mapping[str, Any], streams: tuple[int, int], owner: int) -> Fork | None:
        """A trial from its server, which is started if need be; None if it must start cold.
        `owner`: a descriptor that becomes readable when nobody waits for the imports any more.
        """
        name = warm["server"]
        server = self._open.get(name)
        if server is not None and warm["few"] and server.trials >= _FEW:
            self._close(server)
            server = None
        server = server or self._started(name, warm, owner)
        if server is None:
            return None
        try:
            order = {**warm["trial"], "supervisor": os.getpid()}
            pid = _ask(server.line, order, _ANSWER_SECONDS, streams)["pid"]
        except (OSError, EOFError, ValueError, KeyError):
            self._refuse(server)
            return None
        server.trials += 1
        server.used_at = time.monotonic()
        return Fork(pid, server.saved, f"{os.getpid()}-{server.pid}")

    def close(self) -> None:
        for server in list(self._open.values()):
            self._close(server)

    def _started(self, name: str, warm: Mapping[str, Any], owner: int) -> _Server | None:
        if name in self._refused or not _has_memory():
            return None
        while len(self._open) >= _MOST_SERVERS:
            self._close(min(self._open.values(), key=lambda one: one.used_at))
        trial = warm["trial"]
        ours, theirs = socket.socketpair()
        with theirs:
            program = [*warm["interpreter"], str(HOOK / "fork_server.py"), str(theirs.fileno())]
            env = {**trial["env"], MARK: str(os.getpid())}
            nothing = os.open(os.devnull, os.O_WRONLY)
            try:
                pid = process_tree.start(
                    program, env, trial["cwd"], nothing, nothing, keep=theirs.fileno()
                )
            except OSError:
                ours.close()
                self._refused.add(name)
                return None
            finally:
                os.close(nothing)
        process_tree.spare(pid)
        server = self._open[name] = _Server(name, pid, ours, used_at=time.monotonic())
        try:
            asked = {"modules": warm["modules"], "front": trial["front"]}
            answer = _ask(ours, asked, warm["patience"], (), owner)
        except InterruptedError:
            self._close(server)
            return None
        except (OSError, EOFError, ValueError):
            self._refuse(server)
            return None
        server.saved = answer["seconds"]
        if answer["unfit"] or server.saved < _WORTH:
            self._refuse(server)
            return None
        return server

    def _refuse(self, server: _Server) -> None:
        self._refused.add(server.name)
        self._close(server)

    def _close(self, server: _Server) -> None:
        del self._open[server.name]
        server.line.close()
        process_tree.end_spared(server.pid)


def _ask(
    line: socket.socket,
    content: Mapping[str, Any],
    seconds: float,
    descriptors: Sequence[int] = (),
    owner: int | None = None,
) -> dict[str, Any]:
    """Its answer. InterruptedError if the owner has something to say first."""
    data = json.dumps(content).encode()
    data = len(data).to_bytes(4, "big") + data
    sent = socket.send_fds(line, [data], descriptors) if descriptors else 0
    line.sendall(data[sent:])
    deadline, heard = time.monotonic() + seconds, bytearray()
    while len(heard) < 4 or len(heard) < 4 + int.from_bytes(heard[:4], "big"):
        left = max(0.0, deadline - time.monotonic())
        heard_from = [line.fileno()] if owner is None else [line.fileno(), owner]
        ready = select.select(heard_from, [], [], left)[0]
        if line.fileno() not in ready:
            raise InterruptedError if ready else EOFError
        more = line.recv(1 << 16)
        if not more:
            raise EOFError
        heard += more
    answer: dict[str, Any] = json.loads(heard[4:])
    return answer


def _has_memory() -> bool:
    rows = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    kib = {name: int(value.split()[0]) for name, _, value in (row.partition(":") for row in rows)}
    return kib["MemAvailable"] >= _LEAST_FREE * kib["MemTotal"]
