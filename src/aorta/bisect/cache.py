"""Outcomes of earlier runs, by everything that decides them: versions, command, image, build, oracle.

One small file of lines for each exact question, shared by every run of this user. A run reads them once, when it
begins, and adds its own; what could not be told is never kept.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from aorta.bisect.package import Package, Versions, whole
from aorta.core.axis import Purpose
from aorta.core.trial import Outcome
from aorta.engine import events
from aorta.engine.events import Event, Listener
from aorta.engine.rundir import write_atomically
from aorta.search.timeline import Timeline

KnownT = TypeVar("KnownT")

_EVIDENCE = {Outcome.REPRODUCED.value: True, Outcome.CLEAN.value: False}


def default_cache(*, knows_what_was_read: bool) -> Path | None:
    """None, unless everything that a test can read is part of the question: what a test of the host sources or imports
    is not, so that an edited helper would be answered by old outcomes.
    """
    if not knows_what_was_read:
        return None
    if named := os.environ.get("AORTA_CACHE_DIR"):
        return Path(named) / "aorta" / "bisect"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "aorta" / "bisect"


class OutcomeCache:
    """`question` is what all version sets of a run have in common."""

    def __init__(self, root: Path | None, question: Mapping[str, object]) -> None:
        self._root = root
        self._question = json.dumps(question, sort_keys=True, default=str)

    def known(self, versions: Mapping[str, str]) -> list[bool]:
        return [_EVIDENCE[line] for line in self._lines(versions) if line in _EVIDENCE]

    def known_values(self, versions: Mapping[str, str]) -> list[float]:
        """What was measured, where a number decides."""
        values = (_number(line) for line in self._lines(versions))
        return [value for value in values if value is not None]

    def add(
        self, versions: Mapping[str, str], outcome: Outcome, value: float | None = None
    ) -> None:
        if value is not None:
            self._append(versions, repr(value))
        elif outcome.value in _EVIDENCE:
            self._append(versions, outcome.value)

    def listener(self, packages: Sequence[Package]) -> Listener:
        """Keeps what the trials of a search come to."""

        def listen(event: Event) -> None:
            if isinstance(event, events.TrialEnded) and not event.replayed:
                versions = {name: str(value) for name, value in event.record.point.values}
                self.add(whole(packages, versions), event.record.outcome, event.record.value)

        return listen

    def _lines(self, versions: Mapping[str, str]) -> list[str]:
        try:
            path = self._file(versions) if self._root else None
            return path.read_text(encoding="utf-8").splitlines() if path else []
        except OSError:
            return []

    def _append(self, versions: Mapping[str, str], line: str) -> None:
        """A cache that cannot be written is no reason to stop."""
        if self._root is None:
            return
        path = self._file(versions)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")

    def _file(self, versions: Mapping[str, str]) -> Path:
        content = f"{self._question}\n{json.dumps(sorted(versions.items()))}"
        digest = hashlib.sha256(content.encode()).hexdigest()
        return (self._root or Path()) / digest[:2] / digest


def known_at_first(
    kept: Path,
    timeline: Timeline,
    packages: Sequence[Package],
    look_up: Callable[[Versions], list[KnownT]],
) -> dict[str, list[KnownT]]:
    """What is known by the key of its point, as it was when a stage first began: a resumed run must not take its own
    trials for those of another.
    """
    if kept.exists():
        found: dict[str, list[KnownT]] = json.loads(kept.read_text(encoding="utf-8"))
        return found
    points = {
        timeline.point(state, Purpose.PROBE, 0).config_key: timeline.versions(state)
        for state in timeline.every_state()
    }
    known = {key: look_up(whole(packages, versions)) for key, versions in points.items()}
    found = {key: answers for key, answers in known.items() if answers}
    write_atomically(kept, json.dumps(found))
    return found


def _number(line: str) -> float | None:
    try:
        return float(line)
    except ValueError:
        return None


def files_named_in(
    command: Sequence[str], directory: Path, mounts: Sequence[str] = ()
) -> dict[str, str]:
    """A digest of every file of the host that the command names, also by its place in a container: an edited script is
    another question.
    """
    found: dict[str, str] = {}
    for word in command:
        for path in (directory / word, *_behind(word, directory, mounts)):
            with suppress(OSError, ValueError):
                if path.is_file():
                    found[word] = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return found


def _behind(word: str, directory: Path, mounts: Sequence[str]) -> Iterator[Path]:
    """The files of the host that a path in the container leads to."""
    for mount in mounts:
        source, _, rest = mount.partition(":")
        target = rest.partition(":")[0].rstrip("/")
        if target and (word == target or word.startswith(f"{target}/")):
            yield directory / Path(source).expanduser() / word[len(target) :].lstrip("/")
