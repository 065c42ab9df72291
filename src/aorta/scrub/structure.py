"""Scrubbing documents as documents: keys, values, nesting, JSON inside a JSON string, name and
value pairs.

Each field of our own documents is a name that we gave, which is kept, or text, which is searched. A
field means the same in every document of ours, so one table by name serves all schemas. What is not
in it is searched.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from aorta.core.errors import AortaError
from aorta.core.names import path_of
from aorta.scrub.addresses import is_generic, is_public_domain
from aorta.scrub.findings import PLACEHOLDER, Kind, with_quoted_placeholders
from aorta.scrub.scrubber import Replacement, Scrubber
from aorta.scrub.vocabulary import (
    HOST_NAMES,
    USER_NAMES,
    announces_secret,
    is_dense,
    is_secret_value,
    may_announce_secret,
    words,
)

NAMES = words(
    "schema schema_version aorta_version status state verb version outcome outcomes verdict "
    "purpose kind type class action rule decided_by fingerprint env_fingerprint package commit "
    "name axis workload environment mitigations mitigations_applied baseline_cell cell call "
    "confound correction test step_time_source trial_id exit_status platform stream op dtype "
    "module verified_on stopped_by created started ended date captured_at run_timestamp "
    "git_version python_version pytorch_version toolkit_version kernel_release kernel_version libc "
    "driver_version source_package"
)
"""Kept where they hold a text or a list of texts."""

KEPT_TREES = words(
    "oracle gate packages other_packages versions histories commits rates metric metrics cpu cuda "
    "rocm devices gpus significance good bad last_good first_bad tally interval cascade initial "
    "final floor choices"
)
"""Kept with everything below: culprits, versions, metrics, oracles and values of axes can never
change.
"""

SEARCHED_TREES = words(
    "reproduce env_vars resolved_env_vars extra_env variables config workload_config command "
    "failure_details evidence failure_hints containers sides guilty nodes"
)
"""Whatever their fields are called, somebody else wrote what is in them."""

PATHS = words("file path cwd run_dir output_dir directory error_file log_paths remote url build")
"""Searched wherever they stand: what is kept around them does not say where somebody's files
are.
"""


Path = tuple[int | str, ...]

_RUN_BY_A_SHELL = ("command", "build")
_ORACLES = frozenset({"oracle", "gate"})  # also inside a workload's own config
_OWN_KEYS = NAMES | KEPT_TREES | SEARCHED_TREES | PATHS
_PAIR_NAMES, _PAIR_VALUES = ("name", "key", "variable"), ("value",)


class _Field(Enum):
    """What the walk knows of the place it is at, in a document of ours."""

    UNKNOWN = "unknown"
    NAME = "a name that we gave"
    KEPT = "kept with everything below"
    SEARCHED = "somebody else's"


class ScrubError(AortaError):
    """Something that must be scrubbed cannot be; nothing is written."""

    kind = "scrub"


@dataclass
class _Walk:
    """One document's way through the scrubber; `learning` only looks."""

    scrubber: Scrubber
    learning: bool
    ours: bool  # the names in it are those of `fields`
    spans: list[Replacement] = field(default_factory=list)

    def value(
        self, value: Any, path: Path, named: str | None, field: _Field = _Field.UNKNOWN
    ) -> Any:
        if isinstance(value, Mapping):
            return self._mapping(value, path, field)
        if isinstance(value, list | tuple):
            return self._sequence(list(value), path, named, field)
        if isinstance(value, str):
            is_name = field in (_Field.NAME, _Field.KEPT)
            return self._name(value, path) if is_name else self._string(value, path, named)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return self._number(value, path, named)
        return value

    def _mapping(self, mapping: Mapping[Any, Any], path: Path, field: _Field) -> dict[Any, Any]:
        pair_name = next((mapping[k] for k in _PAIR_NAMES if isinstance(mapping.get(k), str)), None)
        after: dict[Any, Any] = {}
        for key, value in mapping.items():
            named = pair_name if pair_name and key in _PAIR_VALUES else key
            new_key = self._key(key, path, field) if isinstance(key, str) else key
            if new_key in after:
                raise ScrubError(
                    f"two keys become {new_key!r} once scrubbed; rename one in the run's own files",
                    where=path_of(path),
                )
            step = new_key if isinstance(new_key, str) else str(new_key)
            below = _below(field, str(key)) if self.ours else _Field.UNKNOWN
            after[new_key] = self.value(value, (*path, step), str(named), below)
        return after

    def _key(self, key: str, path: Path, field: _Field) -> str:
        """A key in our tables is ours; every other one is text, and may name private things."""
        is_ours = self.ours and key in _OWN_KEYS
        return self._name(key, path) if is_ours else self._text(key, (*path, "(key)"))

    def _name(self, value: str, path: Path) -> str:
        if self.learning:
            self.scrubber.learn_name(value)
            return value
        scrubbed = self.scrubber.name(value, where=path_of(path))
        self.spans.extend(scrubbed.spans)
        return scrubbed.text

    def _sequence(
        self, items: list[Any], path: Path, named: str | None, field: _Field
    ) -> list[Any]:
        """In `["--token", "x"]` the flag names what follows it."""
        after = []
        flag = named
        for index, item in enumerate(items):
            after.append(self.value(item, (*path, index), flag, field))
            is_flag = isinstance(item, str) and item.startswith("-") and " " not in item
            flag = item.lstrip("-") if is_flag and "=" not in item else named
        return after

    def _string(self, value: str, path: Path, named: str | None) -> str:
        kind = self._announced(named, value) if self.scrubber.rules.detect else None
        if (
            kind is not None
            and not PLACEHOLDER.fullmatch(value)
            and not self.scrubber.is_kept(value)
        ):
            return self._whole(value, kind, path)
        inner = _inner_document(value)
        if inner is not None:
            before = len(self.spans)
            scrubbed = self.value(inner, (*path, "(json)"), named)
            if len(self.spans) > before:
                value = json.dumps(scrubbed, ensure_ascii=False)
        text = self._text(value, path)
        return with_quoted_placeholders(text) if path and path[-1] in _RUN_BY_A_SHELL else text

    def _number(self, value: float, path: Path, named: str | None) -> Any:
        if named is not None and self.scrubber.rules.detect and announces_secret(named):
            text = str(value)
            if is_secret_value(named, text):
                return self._whole(text, Kind.CREDENTIAL, path)
        return value

    def _announced(self, named: str | None, value: str) -> Kind | None:
        if named is None or not value.strip():
            return None
        if announces_secret(named, self.scrubber.rules.secret_names):
            return Kind.CREDENTIAL if is_secret_value(named, value) else None
        if may_announce_secret(named) and is_dense(value):
            return Kind.CREDENTIAL
        low = named.lower().lstrip("_")
        is_name = " " not in value and "/" not in value and ":" not in value
        if not is_name or is_generic(value) or is_public_domain(value) or _is_numeric(value):
            return None
        if low in HOST_NAMES:
            return Kind.HOST
        return Kind.USER if low in USER_NAMES else None

    def _whole(self, value: str, kind: Kind, path: Path) -> str:
        if self.learning:
            self.scrubber.remember(kind, value)
            return value
        scrubbed = self.scrubber.whole(value, kind, where=path_of(path))
        self.spans.extend(scrubbed.spans)
        return scrubbed.text

    def _text(self, value: str, path: Path) -> str:
        if self.learning:
            self.scrubber.learn(value)
            return value
        scrubbed = self.scrubber.text(value, where=path_of(path))
        self.spans.extend(scrubbed.spans)
        return scrubbed.text


def learn_document(scrubber: Scrubber, document: Any, *, ours: bool = False) -> None:
    _Walk(scrubber, learning=True, ours=ours).value(document, (), None)


def scrub_document(
    scrubber: Scrubber, document: Any, *, within: str = "", ours: bool = False
) -> tuple[Any, tuple[Replacement, ...]]:
    """The same document with private keys and values replaced; places begin with `within`."""
    walk = _Walk(scrubber, learning=False, ours=ours)
    return walk.value(document, (within,) if within else (), None), tuple(walk.spans)


def _below(field: _Field, key: str) -> _Field:
    """What stands under `key`, inside of something that is `field`."""
    if key in PATHS:
        return _Field.SEARCHED
    if key in KEPT_TREES and not (field is _Field.SEARCHED and key not in _ORACLES):
        return _Field.KEPT
    if field is _Field.KEPT:
        return _Field.KEPT
    if key in SEARCHED_TREES or field is _Field.SEARCHED:
        return _Field.SEARCHED
    return _Field.NAME if key in NAMES else _Field.UNKNOWN


def _inner_document(value: str) -> Any:
    stripped = value.strip()
    if not (stripped[:1] + stripped[-1:] in {"{}", "[]"} and len(stripped) > 2):
        return None
    try:
        return json.loads(stripped)
    except ValueError:
        return None


def _is_numeric(value: str) -> bool:
    return not any(c.isalpha() for c in value)
