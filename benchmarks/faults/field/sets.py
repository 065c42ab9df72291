"""The sets of the field, in the order they were made."""

from collections.abc import Mapping

from benchmarks.faults.field import (
    Excerpt,
    eighth,
    fifth,
    first,
    last,
    second,
    seventh,
    sixth,
    third,
)

SETS: Mapping[str, tuple[Excerpt, ...]] = {
    "first": first.EXCERPTS,
    "second": second.EXCERPTS,
    "third": third.EXCERPTS,
    "last": last.EXCERPTS,
    "fifth": fifth.EXCERPTS,
    "sixth": sixth.EXCERPTS,
    "seventh": seventh.EXCERPTS,
    "eighth": eighth.EXCERPTS,
}
