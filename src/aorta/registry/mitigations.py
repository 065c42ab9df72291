"""Mitigations by name, from the built-in table, from entry points and from sidecar files."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from aorta.registry.catalogue import Catalogue
from aorta.registry.mitigation import BUILTIN_MITIGATIONS, Mitigation, Platform, why_inert
from aorta.registry.sidecars import gathered, mitigation_from
from aorta.scrub.secrets import safe_value


def mitigation_catalogue(sidecars: Sequence[Path] = ()) -> Catalogue[Mitigation]:
    return gathered("mitigation", BUILTIN_MITIGATIONS, mitigation_from, sidecars)


def load_mitigations(sidecars: Sequence[Path] = ()) -> dict[str, Mitigation]:
    """Every mitigation by name, sorted."""
    return mitigation_catalogue(sidecars).everything()


def plausible_mitigations(
    failure_class: str,
    platform: Platform,
    known: Iterable[Mitigation] = BUILTIN_MITIGATIONS,
    current_env: Mapping[str, str] | None = None,
) -> list[Mitigation]:
    """Those that may cure a failure of this class and can act on this platform at all."""
    around = os.environ if current_env is None else current_env
    return [
        entry
        for entry in known
        if entry.may_cure(failure_class) and why_inert(entry, platform, around) is None
    ]


def get_mitigation(name: str, sidecars: Sequence[Path] = ()) -> Mitigation:
    return mitigation_catalogue(sidecars).get(name)


def mitigation_rows(sidecars: Sequence[Path] = ()) -> list[dict[str, str]]:
    """What a listing shows, sorted by name. A value that looks like a secret is not shown."""
    return [_row(entry) for entry in load_mitigations(sidecars).values()]


def _row(entry: Mitigation) -> dict[str, str]:
    return {
        "NAME": entry.name,
        "SOURCE": entry.source,
        "ENV": shown_env(entry.env),
        "PLATFORMS": ",".join(entry.platforms),
        "READ BY": "; ".join(dict.fromkeys(reader.by for reader in entry.readers.values())),
        "WHAT": entry.what,
    }


def shown_env(env: Mapping[str, str]) -> str:
    """As it may stand in a listing: `A=1 B=2`."""
    return " ".join(f"{name}={safe_value(name, value)}" for name, value in env.items())
