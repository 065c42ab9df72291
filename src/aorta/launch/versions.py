"""Which torch the launcher was run with: it builds on names of torch elastic that torch promises to
nobody (`torch_elastic.py`).
"""

import logging
from importlib.metadata import PackageNotFoundError, version

from aorta.core.errors import InfrastructureError

log = logging.getLogger(__name__)

OLDEST, NEWEST = (2, 4), (2, 15)  # `make test-torch` runs both and some between


def demand_known_torch() -> None:
    """Before torch is imported: too old is refused in a sentence, too new is only named."""
    try:
        installed = version("torch")
    except PackageNotFoundError:
        return  # its import says what is missing
    release = _release(installed)
    if release < OLDEST:
        raise InfrastructureError(
            f"aorta launch works with torch {_shown(OLDEST)} and newer, and torch {installed} is "
            "installed"
        )
    if release > NEWEST:
        log.warning(
            "torch %s is newer than %s, the newest that aorta launch was tried with; going on",
            installed,
            _shown(NEWEST),
        )


def _release(text: str) -> tuple[int, int]:
    major, minor, *_ = text.split("+", maxsplit=1)[0].split(".")
    return int(major), int(minor)


def _shown(release: tuple[int, int]) -> str:
    return ".".join(map(str, release))
