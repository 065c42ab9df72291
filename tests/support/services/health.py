"""A service that died is started again before the next test, so that its death costs one test and
not a hundred.
"""

from typing import Protocol


class Watched(Protocol):
    what: str

    def has_ended(self) -> bool: ...

    def start_again(self) -> None: ...


_WATCHED: list[Watched] = []
_STARTED_AGAIN: list[str] = []


def watch(service: Watched) -> None:
    """Until it is forgotten: whoever stops a service, or kills it on purpose, says so."""
    _WATCHED.append(service)


def forget(service: Watched) -> None:
    if service in _WATCHED:
        _WATCHED.remove(service)


def revive(before: str) -> None:
    """Start again what has ended; `before` is the test that would have met it dead."""
    for service in [service for service in _WATCHED if service.has_ended()]:
        _STARTED_AGAIN.append(f"{service.what} had died before {before}")
        service.start_again()


def started_again() -> list[str]:
    return list(_STARTED_AGAIN)
