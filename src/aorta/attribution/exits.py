"""What an exit status alone says, in the vocabulary of the taxonomy."""

import signal

from aorta.attribution.nouns import RankFailure
from aorta.attribution.taxonomy import Certainty, FailureClass

_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}
_POLITE = {signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}
_SHELL = 128
_WAYS_TO_EXIT = {
    FailureClass.BAD_ARGUMENTS, FailureClass.BAD_CONFIG, FailureClass.IMPORT_ERROR, FailureClass.SYNTAX_ERROR,
    FailureClass.MISSING_FILE, FailureClass.PERMISSION_DENIED, FailureClass.USER_EXCEPTION, FailureClass.ASSERTION,
    FailureClass.DATA_ERROR, FailureClass.NAN, FailureClass.CHECKPOINT_MISMATCH, FailureClass.CHECKPOINT_CORRUPT,
}  # fmt: skip
_NOT_EXECUTABLE, _NOT_FOUND = 126, 127  # what shells, env and container engines exit with


def signal_of(failure: RankFailure) -> int | None:
    """The signal a rank died of, also where a shell reported it as 128 + n."""
    if failure.signal is not None:
        return failure.signal
    code = failure.exit_code
    if code is not None and _SHELL < code <= _SHELL + 64:
        return code - _SHELL
    return -code if code is not None and code < 0 else None


def failed(failure: RankFailure) -> bool:
    return failure.hung or failure.signal is not None or failure.exit_code not in {0, None}


def asked_to_stop(failure: RankFailure) -> bool:
    """Ended the way a launcher ends a rank that did nothing wrong."""
    return signal_of(failure) in _POLITE


def class_of_exit(failure: RankFailure) -> tuple[FailureClass, Certainty]:
    """The class where nothing was written; a signal says more than a code."""
    number = signal_of(failure)
    if failure.hung:
        return FailureClass.HANG, Certainty.CERTAIN
    if number in _CRASHES:
        return FailureClass.SEGFAULT, Certainty.CERTAIN
    if number == signal.SIGABRT:
        return FailureClass.ABORT, Certainty.LIKELY
    if number == signal.SIGINT:
        return FailureClass.CANCELLED, Certainty.LIKELY
    if number is not None:
        return FailureClass.KILLED, Certainty.LIKELY
    if failure.exit_code == _NOT_FOUND:
        return FailureClass.MISSING_FILE, Certainty.LIKELY
    if failure.exit_code == _NOT_EXECUTABLE:
        return FailureClass.PERMISSION_DENIED, Certainty.LIKELY
    return FailureClass.UNKNOWN, Certainty.WEAK


def exception_fits(failure: RankFailure) -> bool:
    """Whether an uncaught Python exception could have ended this rank: it exits 1, or aborts on its way out."""
    number = signal_of(failure)
    return number in {None, signal.SIGABRT, signal.SIGINT} and failure.exit_code != 0


def line_fits(failure: RankFailure, failure_class: FailureClass) -> bool:
    """Whether a line of this class could tell how this rank ended: nobody dies of a signal for refusing its input."""
    return exception_fits(failure) or failure_class not in _WAYS_TO_EXIT


def words(failure: RankFailure) -> str:
    number = signal_of(failure)
    if failure.hung:
        return f"rank {failure.rank} stopped making progress and was ended"
    if number is not None:
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        return f"rank {failure.rank} died of {name}"
    return f"rank {failure.rank} exited with code {failure.exit_code}"
