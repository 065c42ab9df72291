"""Which of the changed packages can be new while others are still old, as the packages themselves say it.

What a package asks for is about two packages at a time, and both ends were installed, so every such rule has one form: if
this one is new, that one is new as well. The sets that can be installed are then those that hold all that their members
need, and an order in which everything comes after what it needs has no other prefixes.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

PYTHON = "python"


@dataclass(frozen=True)
class Installed:
    """One end: versions by canonical name, and what each of them asks for. `around` is what markers are judged by."""

    versions: Mapping[str, str]
    asks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    requires_python: Mapping[str, str] = field(default_factory=dict)
    python: str = ""
    around: Mapping[str, str] = field(default_factory=dict)

    def requirements(self, name: str) -> Iterable[Requirement]:
        """What is asked for here, extras aside."""
        for line in self.asks.get(name, ()):
            try:
                found = Requirement(line)
                if found.marker is None or found.marker.evaluate({**self.around, "extra": ""}):
                    yield found
            except (InvalidRequirement, UndefinedEnvironmentName):
                continue

    def satisfies(self, wanted: Requirement) -> bool:
        version = self.versions.get(canonicalize_name(wanted.name))
        return version is not None and wanted.specifier.contains(version, prereleases=True)


def unmet(end: Installed) -> set[str]:
    """Packages that somebody asks for otherwise, although it was installed so: it is not for a resolver to refuse it."""
    return {
        canonicalize_name(wanted.name)
        for name in end.versions
        for wanted in end.requirements(name)
        if not end.satisfies(wanted)
    }


def must_move_with(
    good: Installed, bad: Installed, changed: Collection[str]
) -> dict[str, frozenset[str]]:
    """By each changed package all that must be new where it is new, itself included."""
    tolerated = unmet(good) | unmet(bad)
    needs = {name: {name} for name in changed}
    for name in changed:
        for wanted in bad.requirements(name):
            other = canonicalize_name(wanted.name)
            if other in needs and other not in tolerated and not good.satisfies(wanted):
                needs[name].add(other)
        for wanted in good.requirements(name):
            other = canonicalize_name(wanted.name)
            if other in needs and other not in tolerated and not bad.satisfies(wanted):
                needs[other].add(name)
        if PYTHON in needs and name != PYTHON:
            if not _runs_with(bad, name, good.python):
                needs[name].add(PYTHON)
            if not _runs_with(good, name, bad.python):
                needs[PYTHON].add(name)
    return _closed(needs)


def _runs_with(end: Installed, name: str, python: str) -> bool:
    try:
        wanted = end.requires_python.get(name)
        return not wanted or SpecifierSet(wanted).contains(python, prereleases=True)
    except InvalidSpecifier:
        return True


def _closed(needs: Mapping[str, set[str]]) -> dict[str, frozenset[str]]:
    closed: dict[str, frozenset[str]] = {}
    for name in needs:
        found: set[str] = set()
        waiting = [name]
        while waiting:
            here = waiting.pop()
            if here not in found:
                found.add(here)
                waiting += needs[here]
        closed[name] = frozenset(found)
    return closed


def in_order(needs: Mapping[str, frozenset[str]]) -> list[str]:
    """Everything after what it needs; those that need each other stand together. Python goes as late as it may: new
    packages run on an old one more often than old packages on a new one.
    """
    late = frozenset({PYTHON})

    def place(name: str) -> tuple[bool, int, list[str], str]:
        return bool(needs[name] & late), len(needs[name]), sorted(needs[name]), name

    return sorted(needs, key=place)


def is_installable(new: Collection[str], needs: Mapping[str, frozenset[str]]) -> bool:
    held = set(new)
    return all(needs[name] <= held for name in held)
