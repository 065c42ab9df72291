"""The exit codes, the same for every verb."""

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
