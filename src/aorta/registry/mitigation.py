"""What a mitigation is, when it cannot do anything, and the built-in ones.

A mitigation is a few environment variables. Each built-in says who reads them, where, and the value
when not set: a cell whose variable nobody reads is a second baseline under another name. Flags that
only one workload reads belong into a plugin or a sidecar. Standard library only: the probe reads
the table beside it inside containers.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

Platform = Literal["rocm", "cuda", "cpu"]

EVERYWHERE: tuple[Platform, ...] = ("rocm", "cuda", "cpu")
PLATFORMS_OF: Mapping[str, tuple[Platform, ...]] = {
    "any": EVERYWHERE,
    "gpu": ("rocm", "cuda"),
    "rocm": ("rocm",),
    "cuda": ("cuda",),
}

UNKNOWN_FAILURE = "unknown"

_OF_CODE = "nan segfault abort illegal_access device_assert assertion user_exception unknown"
FAILURES_OF: Mapping[str, tuple[str, ...]] = {
    change: tuple(classes.split())
    for change, classes in {
        "nothing": "",
        # how exact a number is
        "precision": "nan",
        # what runs beside what, and in which order: races show as anything
        "timing": f"{_OF_CODE} data_error hang collective_timeout killed",
        # which code does the arithmetic
        "kernels": _OF_CODE,
        "collectives": "nan hang collective_timeout network_loss link_fault rendezvous_error "
        "illegal_access segfault abort",
        "memory": "device_oom host_oom illegal_access segfault nan",
    }.items()
}
"""Names of failure classes (see `aorta attribute`), by what a variable changes."""


@dataclass(frozen=True)
class VariableReader:
    """Who reads a variable, on which platforms, and its value when it is not set."""

    by: str
    on: tuple[Platform, ...]
    default: str | None = None


@dataclass(frozen=True)
class Mitigation:
    """A named set of variables. One from a plugin or a sidecar names no readers."""

    name: str
    env: Mapping[str, str]
    source: str = "aorta"
    readers: Mapping[str, VariableReader] = field(default_factory=dict)
    what: str = ""
    # Failure classes that it may cure; None: nothing is known about it, so any.
    cures: tuple[str, ...] | None = None

    def may_cure(self, failure_class: str) -> bool:
        return self.cures is None or failure_class in self.cures

    @property
    def platforms(self) -> tuple[Platform, ...]:
        """Where at least one of its variables is read; without readers, everywhere."""
        if not self.readers:
            return EVERYWHERE
        there = {place for reader in self.readers.values() for place in reader.on}
        return tuple(place for place in EVERYWHERE if place in there)


def why_inert(
    mitigation: Mitigation, platform: Platform, current_env: Mapping[str, str]
) -> str | None:
    """Why this mitigation cannot change the baseline's `current_env` here, or None. What a library
    reads and then refuses is not seen.
    """
    if not mitigation.env:
        return "it sets no variable"
    unread = {name for name, reader in mitigation.readers.items() if platform not in reader.on}
    acting = [name for name in mitigation.env if name not in unread]
    if not acting:
        names, elsewhere = " and ".join(sorted(mitigation.env)), ", ".join(mitigation.platforms)
        where = f"only on {elsewhere}" if elsewhere else "nor anywhere"
        return f"no library reads {names} on {platform} ({where})"
    defaults = {name: reader.default for name, reader in mitigation.readers.items()}
    assumed = {**defaults, **current_env}
    if all(assumed.get(name) == mitigation.env[name] for name in acting):
        verb = "has" if len(acting) == 1 else "have"
        return f"{' and '.join(sorted(acting))} already {verb} this value here"
    return None


# -- the built-in ones

_TABLE = Path(__file__).with_name("mitigations.txt")
_HEAD = re.compile(r"(?P<name>\w+) \((?P<changes>\w+)\): (?P<what>.+)")
_VARIABLE = re.compile(
    r"  (?P<name>\w+)=(?P<value>\S+) \[(?:-|(?P<default>[^\]]+))\] (?P<on>\w+): (?P<by>.+)"
)


def _entries() -> list[Mitigation]:
    found: list[Mitigation] = []
    for line in _TABLE.read_text(encoding="utf-8").splitlines():
        if head := _HEAD.fullmatch(line):
            cures = FAILURES_OF[head["changes"]]
            found.append(Mitigation(head["name"], {}, readers={}, what=head["what"], cures=cures))
        elif row := _VARIABLE.fullmatch(line):
            reader = VariableReader(row["by"], PLATFORMS_OF[row["on"]], row["default"])
            last = found[-1]
            env = {**last.env, row["name"]: row["value"]}
            found[-1] = replace(last, env=env, readers={**last.readers, row["name"]: reader})
    return found


BUILTIN_MITIGATIONS: tuple[Mitigation, ...] = tuple(_entries())
