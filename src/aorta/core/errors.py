"""Every error a user can cause, under one base class, and the exit codes, the same for every verb.

An error says where it is, what was found, what was expected and how to mend it, on one line.
Anything that is not an `AortaError` is a bug of ours and keeps its traceback.
"""

from enum import IntEnum


class Exit(IntEnum):
    OK = 0
    FAILED = 1  # it ran, and what ran failed
    USAGE = 2  # the command line, spec or recipe is wrong; nothing was run
    NO_ANSWER = 3  # did not reproduce, nothing shrank, inconsistent evidence
    BUDGET = 4  # stopped by a budget before the answer was sure
    INFRASTRUCTURE = 5  # no docker engine, no such partition, disk full
    STOP = 93  # `launch`: attribution decided STOP
    INTERRUPTED = 130
    TERMINATED = 143


class AortaError(Exception):
    """One line for the user; `kind` and `where` for machines."""

    kind = "error"
    exit_code = Exit.FAILED

    def __init__(self, message: str, *, where: str | None = None) -> None:
        super().__init__(message)
        self.message = " ".join(message.split())
        self.where = where

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


class UsageError(AortaError, ValueError):
    """The command line is wrong; nothing was run. A ValueError, so that validators may raise it."""

    kind = "usage"
    exit_code = Exit.USAGE


class SpecError(UsageError):
    """A file the user wrote is wrong; `where` is `FILE: path.inside[it]`."""

    kind = "spec"


class RegistryError(UsageError):
    """A name is unknown, defined twice, or badly defined."""

    kind = "registry"


class ResumeError(UsageError):
    """The run directory belongs to another process, or to another spec or command."""

    kind = "resume"


class AnotherQuestionError(ResumeError):
    """The run directory belongs to another spec or command."""


class NoAnswerError(AortaError):
    """No answer: nothing reproduced, the two ends agree, or the evidence contradicts itself."""

    kind = "no_answer"
    exit_code = Exit.NO_ANSWER


class InfrastructureError(AortaError):
    """Something under us is missing or broken: a container engine, a scheduler, the disk."""

    kind = "infrastructure"
    exit_code = Exit.INFRASTRUCTURE


class Terminated(BaseException):
    """SIGTERM, raised like KeyboardInterrupt so that one clean stop serves both."""
