"""The `command` workload: the user's own command as it is, with where it runs and what counts as its failure.

It has no class and no child of ours: `workload_config` turns into a plain trial.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import field_validator, model_validator

from aorta.core.documents import StrictModel, validated
from aorta.core.errors import UsageError
from aorta.core.oracle import ExitCodeOracle, Oracle, PythonOracle
from aorta.workloads.ranks import ANY_RANK, WhichRanks, of_ranks, with_ranks_apart

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
    def _told_apart(self) -> "CommandWorkload":
        of_ranks(self.oracle, self.ranks)
        return self

    @property
    def argv(self) -> tuple[str, ...]:
        return (*SHELL, self.command) if isinstance(self.command, str) else self.command


@dataclass(frozen=True)
class CommandTrial:
    argv: tuple[str, ...]
    cwd: Path
    oracle: Oracle
    ranks: WhichRanks


def command_trial(
    config: Mapping[str, Any],
    *,
    base: Path | None = None,
    file: str = "command line",
    at: str = "workload_config",
) -> CommandTrial:
    """What this `workload_config` runs, where, and what counts as its failure.

    A relative `cwd` lies in `base`: the directory of the file that holds it. `file` and `at` say in errors where that is.
    """
    workload = validated(CommandWorkload, config, file=file, at=at)
    cwd = ((base or Path.cwd()) / Path(workload.cwd).expanduser()).resolve()
    return CommandTrial(workload.argv, cwd, workload.oracle, workload.ranks)
