"""The classes of failure and the three answers: the vocabulary every other module of this package
speaks.
"""

from enum import StrEnum


class FailureClass(StrEnum):
    IMPORT_ERROR = "import_error"
    SYNTAX_ERROR = "syntax_error"
    BAD_ARGUMENTS = "bad_arguments"
    BAD_CONFIG = "bad_config"
    SHAPE_MISMATCH = "shape_mismatch"
    CHECKPOINT_MISMATCH = "checkpoint_mismatch"
    CHECKPOINT_CORRUPT = "checkpoint_corrupt"
    MISSING_FILE = "missing_file"
    PERMISSION_DENIED = "permission_denied"
    DISK_FULL = "disk_full"
    STORAGE_FAULT = "storage_fault"
    DEVICE_OOM = "device_oom"
    HOST_OOM = "host_oom"
    DEVICE_ASSERT = "device_assert"
    ILLEGAL_ACCESS = "illegal_access"
    HARDWARE_FAULT = "hardware_fault"
    LINK_FAULT = "link_fault"
    SEGFAULT = "segfault"
    ABORT = "abort"
    ASSERTION = "assertion"
    USER_EXCEPTION = "user_exception"
    DATA_ERROR = "data_error"
    NAN = "nan"
    COLLECTIVE_TIMEOUT = "collective_timeout"
    HANG = "hang"
    RENDEZVOUS_ERROR = "rendezvous_error"
    PORT_IN_USE = "port_in_use"
    NETWORK_LOSS = "network_loss"
    PREEMPTED = "preempted"
    KILLED = "killed"
    TIME_LIMIT = "time_limit"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


# What the code, its files, its configuration or its command line are to blame for.
USER_ERRORS = frozenset(
    {
        FailureClass.IMPORT_ERROR,
        FailureClass.SYNTAX_ERROR,
        FailureClass.BAD_ARGUMENTS,
        FailureClass.BAD_CONFIG,
        FailureClass.SHAPE_MISMATCH,
        FailureClass.CHECKPOINT_MISMATCH,
        FailureClass.CHECKPOINT_CORRUPT,
        FailureClass.MISSING_FILE,
        FailureClass.PERMISSION_DENIED,
    }
)
# How a failure shows, and not what it is.
HOW_IT_SHOWS = frozenset(
    {FailureClass.ABORT, FailureClass.ASSERTION, FailureClass.USER_EXCEPTION, FailureClass.UNKNOWN}
)


class Action(StrEnum):
    RESTART = "RESTART"
    STOP = "STOP"
    UNKNOWN = "UNKNOWN"  # acts as RESTART


class Role(StrEnum):
    """What an event says about the rank that shows it."""

    ROOT = "root"  # this can kill a job
    CASCADE = "cascade"  # only follows from another rank's failure
    WAITING = "waiting"  # waited in vain; the blame is on a rank that does not say so
    CONFIRM = "confirm"  # names the cause of a death that another fact reports
    STACK = "standing"  # where a rank stood when its stack was asked for
    END = "end"  # how a process ended, in the words of whoever watched it


class Certainty(StrEnum):
    CERTAIN = "certain"
    LIKELY = "likely"
    WEAK = "weak"

    @property
    def weight(self) -> int:
        return {"certain": 3, "likely": 2, "weak": 1}[self.value]
