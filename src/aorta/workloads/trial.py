"""From a workload, its config and its environment to trials: the experiment of `run` and `triage`.

A registered workload becomes a child process with an order file; the `command` workload, which has
no class, is run as it is. Names of environments and mitigations are resolved by the caller.
"""

import hashlib
import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import field_validator, model_validator

from aorta import version
from aorta.core.axis import Point, Window
from aorta.core.documents import StrictModel, validated
from aorta.core.errors import SpecError, UsageError
from aorta.core.names import check_variable
from aorta.core.oracle import Deciding, ExitCodeOracle, Oracle, PythonOracle
from aorta.core.trial import LOCAL, Environment, Resources, RuntimeKind, TrialSpec
from aorta.registry.environments import layered, stack_mitigations
from aorta.registry.workloads import check_workload
from aorta.workloads.base import COMMAND, RESERVED_PREFIX, rank_of
from aorta.workloads.child import WorkloadOrder
from aorta.workloads.ranks import (
    ANY_RANK,
    WhichRanks,
    of_ranks,
    rank_log_variables,
    with_ranks_apart,
)
from aorta.workloads.startable import check_startable

SHELL = ("/bin/bash", "-c")


class CommandWorkload(StrictModel):
    """`workload_config` of a command. A text is run by bash; a list is executed as it is."""

    command: str | tuple[str, ...]
    cwd: str = "."
    oracle: Oracle = ExitCodeOracle()
    ranks: WhichRanks = ANY_RANK  # in the file: oracle.ranks

    @model_validator(mode="before")
    @classmethod
    def _with_ranks_apart(cls, content: object) -> object:
        return with_ranks_apart(content) if isinstance(content, Mapping) else content

    @field_validator("command", mode="before")
    @classmethod
    def _runnable(cls, value: object) -> object:
        parts = (value,) if isinstance(value, str) else value
        if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) for part in parts):
            raise UsageError("expected a text for the shell, or a list of texts to execute")
        if not parts or not parts[0].strip():
            raise UsageError("found an empty command, expected one that can be run")
        if any("\0" in part for part in parts):
            raise UsageError("the command holds a NUL byte; remove it")
        return value if isinstance(value, str) else tuple(parts)

    @field_validator("oracle")
    @classmethod
    def _observable(cls, oracle: Oracle) -> Oracle:
        if isinstance(oracle, PythonOracle):
            raise UsageError(
                "a command has no Workload object for a python oracle to ask; "
                "expected exit_code, regex, hang or metric"
            )
        return oracle

    @model_validator(mode="after")
    def _has_one_oracle(self) -> "CommandWorkload":
        of_ranks(self.oracle, self.ranks)
        return self

    @property
    def argv(self) -> tuple[str, ...]:
        return (*SHELL, self.command) if isinstance(self.command, str) else self.command


RESULT_FILE = "result.json"
ORDER_FILE = "order.json"
STEPS = "steps"
STEPS_VARIABLE = "AORTA_STEPS"
"""How `steps` reaches a command, which has no config to find it in."""

_PACKAGE = Path(version.__file__).resolve().parent
_PACKAGE_IN_CONTAINER = "/opt/aorta/aorta"
_CONTAINERS = (RuntimeKind.DOCKER, RuntimeKind.PODMAN, RuntimeKind.PYXIS)


@dataclass(frozen=True)
class WorkloadRequest:
    """What to try. `mitigations`: (name, variables); `extra_env`: layers, weakest first."""

    workload: str
    config: Mapping[str, Any] = field(default_factory=dict)
    environment: Environment = LOCAL
    mitigations: Sequence[tuple[str, Mapping[str, str]]] = ()
    extra_env: Sequence[Mapping[str, str]] = ()
    steps: int | None = None
    oracle: Oracle | None = None  # None: the workload's own
    timeout: float | None = None
    resources: Resources = field(default_factory=Resources)
    # The directory that relative paths in `config` lie in; None: the current one.
    base: Path | None = None
    file: str = "command line"  # where `config` was written, for errors
    at: str = "workload_config"
    known_elsewhere: bool = False  # the workload may be one that only its environment has
    declare: bool = False  # of a registered workload: run nothing, say its axes and predicates

    def resolved_env(self) -> dict[str, str]:
        """The layers this request puts over whatever the environment inherits; later ones win."""
        for layer in self.extra_env:
            for name, value in layer.items():
                check_variable(name, value, where=f"{self.file}: extra_env")
        return layered(
            self.environment.env,
            stack_mitigations(self.mitigations, decided=layered(*self.extra_env), where=self.file),
            *self.extra_env,
        )


@dataclass(frozen=True)
class WorkloadExperiment:
    """Implements `engine.question.Experiment`; a point's values are variables on top."""

    request: WorkloadRequest
    oracle: Oracle
    subject: "_CommandSubject | _RegisteredSubject"
    environment: Environment
    env: Mapping[str, str]
    ranks: WhichRanks = ANY_RANK

    @property
    def deciding(self) -> Deciding:
        """The oracle with the rule around it: which ranks must fail."""
        return self.oracle if self.ranks == ANY_RANK else of_ranks(self.oracle, self.ranks)

    def trial(self, point: Point, index: int, trial_dir: Path) -> TrialSpec:
        kept = {} if self.ranks == ANY_RANK else rank_log_variables(trial_dir.absolute())
        env = {**kept, **self.env, **_variables_of(point)}
        return TrialSpec(
            id=f"{point.key}.{index}",
            argv=self.subject.argv(trial_dir, env, index),
            trial_dir=trial_dir,
            cwd=self.subject.cwd,
            env=env,
            environment=self.environment,
            watch=self.deciding.watch(),
            timeout=self.request.timeout,
            resources=self.request.resources,
        )


_SCRIPT_NAMES = (".py", ".sh", ".bash", ".pl", ".rb", ".js", ".lua", ".jl", ".r")
_LARGEST_SCRIPT = 16 << 20


def script_digests(experiment: WorkloadExperiment) -> dict[str, str]:
    """Digests of the scripts that a command names, for the fingerprint; empty if registered."""
    subject = experiment.subject
    if not isinstance(subject, _CommandSubject):
        return {}
    found: dict[str, str] = {}
    for word in _words_of(subject.command):
        path = subject.cwd / word
        try:
            if path.is_file() and path.stat().st_size <= _LARGEST_SCRIPT:
                content = path.read_bytes()
                if path.suffix.lower() in _SCRIPT_NAMES or content.startswith(b"#!"):
                    found[f"script {word}"] = hashlib.sha256(content).hexdigest()
        except (OSError, ValueError):
            continue
    return found


def _words_of(command: Sequence[str]) -> Iterator[str]:
    """Every word that may name a file: a shell text's one by one, `-m NAME` as its file."""
    for before, word in pairwise(("", *command)):
        if before.startswith("-") and before.endswith("c"):
            with suppress(ValueError):
                yield from _words_of(shlex.split(word, comments=True))
        elif before == "-m":
            inside = word.replace(".", "/")
            yield from (f"{inside}.py", f"{inside}/__main__.py")
        else:
            yield word


def workload_experiment(request: WorkloadRequest) -> WorkloadExperiment:
    """The experiment of one request; whatever is wrong is said before anything runs."""
    _check_config(request)
    if request.steps is not None and request.steps < 1:
        raise UsageError(f"steps is {request.steps}; expected a whole number, 1 or more")
    if request.workload == COMMAND:
        return _command_experiment(request)
    return _registered_experiment(request)


def _command_experiment(request: WorkloadRequest) -> WorkloadExperiment:
    command = validated(CommandWorkload, request.config, file=request.file, at=request.at)
    cwd = ((request.base or Path.cwd()) / Path(command.cwd).expanduser()).resolve()
    if isinstance(request.oracle, PythonOracle):
        raise UsageError("a command has no Workload object for a python oracle to ask")
    steps = {} if request.steps is None else {STEPS_VARIABLE: str(request.steps)}
    return WorkloadExperiment(
        request,
        oracle=request.oracle or command.oracle,
        ranks=ANY_RANK if request.oracle else command.ranks,
        subject=_CommandSubject(command.argv, cwd),
        environment=request.environment,
        env=layered(steps, request.resolved_env()),
    )


def _registered_experiment(request: WorkloadRequest) -> WorkloadExperiment:
    if not request.known_elsewhere:
        check_workload(request.workload)
    environment, interpreter = _with_script(request.environment, "workloads/bootstrap.py")
    return WorkloadExperiment(
        request,
        oracle=request.oracle or PythonOracle(),
        subject=_RegisteredSubject(request, interpreter, (request.base or Path.cwd()).resolve()),
        environment=environment,
        env=request.resolved_env(),
    )


@dataclass(frozen=True)
class _CommandSubject:
    command: tuple[str, ...]
    cwd: Path

    def argv(self, trial_dir: Path, env: Mapping[str, str], index: int) -> tuple[str, ...]:
        return self.command


def check_command(experiment: WorkloadExperiment, executor: str) -> None:
    """Refuses a command that cannot be started, where its trials run on this machine itself."""
    subject = experiment.subject
    is_here = executor == "local" and not experiment.environment.isolated
    if is_here and isinstance(subject, _CommandSubject):
        request = experiment.request
        where = f"{request.file}: {request.at}.command" if Path(request.file).is_file() else "--"
        check_startable(subject.command, subject.cwd, experiment.env.get("PATH"), where=where)


@dataclass(frozen=True)
class _RegisteredSubject:
    request: WorkloadRequest
    interpreter: tuple[str, ...]
    cwd: Path

    def argv(self, trial_dir: Path, env: Mapping[str, str], index: int) -> tuple[str, ...]:
        trial_dir = trial_dir.absolute()  # the child runs in the directory of its workload
        steps = {} if self.request.steps is None else {STEPS: self.request.steps}
        oracle = None if self.request.declare else self.request.oracle
        order = WorkloadOrder(
            workload=self.request.workload,
            result=trial_dir / RESULT_FILE,
            config={**self.request.config, **steps},
            # The child adds `_aorta_trial_env` itself, from what it sees.
            given={
                f"{RESERVED_PREFIX}environment": describe_environment(self.request.environment),
                f"{RESERVED_PREFIX}trial_index": index,
                f"{RESERVED_PREFIX}trial_dir": str(trial_dir),
                f"{RESERVED_PREFIX}log_prefix": str(trial_dir / "workload"),
            },
            trial_env=sorted(env),
            rank=rank_of(os.environ),
            predicate=oracle.predicate if isinstance(oracle, PythonOracle) else None,
            declare=self.request.declare,
        )
        path = trial_dir / ORDER_FILE
        path.write_text(order.to_json(), encoding="utf-8")
        return (*self.interpreter, str(path))


def describe_environment(environment: Environment) -> dict[str, Any]:
    """The environment as results and workloads see it, with names of variables only."""
    return {
        "name": environment.name,
        "kind": environment.kind.value,
        "docker": environment.image,
        "venv": environment.venv,
        "source_package": environment.source,
        "variables": sorted(environment.env),
    }


def _with_script(environment: Environment, script: str) -> tuple[Environment, tuple[str, ...]]:
    """The environment in which a script of ours can start, and the command that starts it."""
    if environment.kind in _CONTAINERS:
        mount = f"{_PACKAGE}:{_PACKAGE_IN_CONTAINER}:ro"
        mounts = environment.mounts if mount in environment.mounts else (*environment.mounts, mount)
        return replace(environment, mounts=mounts), ("python3", f"{_PACKAGE_IN_CONTAINER}/{script}")
    python = sys.executable if environment.kind is RuntimeKind.HOST else "python"
    return environment, (python, str(_PACKAGE / script))


def _check_config(request: WorkloadRequest) -> None:
    for key in request.config:
        where = f"{request.file}: {request.at}.{key}"
        if key == STEPS:
            raise SpecError("steps has its own option and its own key; set it there", where=where)
        if key.startswith(RESERVED_PREFIX):
            raise SpecError(f"keys that begin with {RESERVED_PREFIX} are reserved", where=where)
        try:
            json.dumps(request.config[key], allow_nan=False)
        except (TypeError, ValueError) as wrong:
            raise SpecError(
                f"the value cannot be given to a process: {wrong}", where=where
            ) from None


def _variables_of(point: Point) -> dict[str, str]:
    variables = {}
    for name, value in point.values:
        if isinstance(value, (tuple, Window)):
            raise UsageError(
                f"{name} is a subset or a range, which only its own axis can turn into a value"
            )
        variables[name] = check_variable(name, str(value), where=name)
    return variables
