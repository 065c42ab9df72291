"""A full or failing disk in one line, wherever a reduction writes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aorta.core.errors import InfrastructureError


@contextmanager
def writing(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as wrong:
        raise InfrastructureError(f"cannot write: {wrong.strerror}", where=str(place)) from None
