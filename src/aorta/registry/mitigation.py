"""What a mitigation is, and when it cannot do anything.

A mitigation is a few environment variables. A variable acts only where some library reads it, so
each built-in says who reads it and on which platform: a cell whose variable nobody reads is a
second baseline under another name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
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
        return tuple(
            here
            for here in EVERYWHERE
            if any(here in reader.on for reader in self.readers.values())
        )


def why_inert(
    mitigation: Mitigation, platform: Platform, current_env: Mapping[str, str]
) -> str | None:
    """The reason why this mitigation cannot change anything here, or None when it can.

    `current_env` is what the baseline runs with. What a library reads and then refuses is not seen
    here.
    """
    if not mitigation.env:
        return "it sets no variable"
    acting = [name for name in mitigation.env if _is_read(mitigation, name, platform)]
    if not acting:
        unread = " and ".join(sorted(mitigation.env))
        return f"no library reads {unread} on {platform} ({_where_read(mitigation)})"
    if all(_assumed(mitigation, name, current_env) == mitigation.env[name] for name in acting):
        verb = "has" if len(acting) == 1 else "have"
        return f"{' and '.join(sorted(acting))} already {verb} this value here"
    return None


def _is_read(mitigation: Mitigation, variable: str, platform: Platform) -> bool:
    reader = mitigation.readers.get(variable)
    return reader is None or platform in reader.on


def _where_read(mitigation: Mitigation) -> str:
    return f"only on {', '.join(mitigation.platforms)}" if mitigation.platforms else "nor anywhere"


def _assumed(mitigation: Mitigation, variable: str, current_env: Mapping[str, str]) -> str | None:
    reader = mitigation.readers.get(variable)
    return current_env.get(variable, reader.default if reader else None)
