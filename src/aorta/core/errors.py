"""Every error a user can cause, under one base class.

An error says where it is, what was found, what was expected and how to mend it, on one line. Anything that is
not an `AortaError` is a bug of ours and keeps its traceback.
"""

from aorta.core.exits import Exit


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
    """The command line is wrong; nothing was run. A ValueError too, so that a model's validator may raise it and the
    message still gets its place in the file.
    """

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


class NoAnswerError(AortaError):
    """The question has no answer: nothing reproduced, the two ends agree, the evidence contradicts itself."""

    kind = "no_answer"
    exit_code = Exit.NO_ANSWER


class InfrastructureError(AortaError):
    """Something under us is missing or broken: a container engine, a scheduler, the disk."""

    kind = "infrastructure"
    exit_code = Exit.INFRASTRUCTURE


class Terminated(BaseException):
    """SIGTERM, raised like KeyboardInterrupt so that one clean stop serves both."""
