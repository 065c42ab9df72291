"""Stable stand-ins: one value has one placeholder wherever it appears, and nothing maps back."""

from aorta.scrub.secrets.findings import PLACEHOLDER, Kind


class Placeholders:
    """Numbers values in the order they are first met. The values live here only, and are never written."""

    def __init__(self) -> None:
        self._given: dict[tuple[Kind, str], str] = {}
        self._last: dict[Kind, int] = {}

    def stand_in(self, kind: Kind, value: str) -> str:
        given = self._given.get((kind, value))
        if given is None:
            self._last[kind] = self._last.get(kind, 0) + 1
            given = self._given[kind, value] = f"<{kind}:{self._last[kind]}>"
        return given

    def step_over(self, text: str) -> None:
        """Text scrubbed earlier keeps its placeholders, so their numbers are not given a second meaning."""
        for kind, number in PLACEHOLDER.findall(text):
            self._last[Kind(kind)] = max(self._last.get(Kind(kind), 0), int(number))


def as_file_name(text: str) -> str:
    """`log-<HOST:1>.txt` as a name that every file system takes: `log-HOST-1.txt`."""
    return PLACEHOLDER.sub(r"\1-\2", text)
