"""Which torch the launcher knows: it builds on classes of torch elastic that torch promises to
nobody.
"""

from importlib.metadata import PackageNotFoundError, version

from aorta.core.errors import InfrastructureError

OLDEST, NEWEST = (2, 13), (2, 15)  # what is between was not tried, but both ends were


def demand_known_torch() -> None:
    """Before torch is imported, so that a class it no longer has ends in a sentence and not in a
    traceback.
    """
    try:
        installed = version("torch")
    except PackageNotFoundError:
        return  # its import says what is missing
    if not OLDEST <= _release(installed) <= NEWEST:
        raise InfrastructureError(
            f"aorta launch knows torch {_known()}, and torch {installed} is installed; "
            f"pip install 'aorta-triage[launch]' brings one it knows"
        )


def _release(text: str) -> tuple[int, int]:
    major, minor, *_ = text.split("+", maxsplit=1)[0].split(".")
    return int(major), int(minor)


def _known() -> str:
    return " to ".join(_shown(release) for release in sorted({OLDEST, NEWEST}))


def _shown(release: tuple[int, int]) -> str:
    return ".".join(map(str, release))
