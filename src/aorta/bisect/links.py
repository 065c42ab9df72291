"""Names for people in a run directory: a link for each probed state, and for the two states that matter."""

import os
from collections.abc import Sequence
from pathlib import Path

from aorta.core.names import slug
from aorta.engine.journal import TrialRecord

_NAME = 100
_SIDES = {"good": ("last-known-good", "clean"), "bad": ("first-known-bad", "reproduced")}


def probe_name(record: TrialRecord) -> str:
    """Readable, and unique by the configuration's own key: versions may share their first characters."""
    words = "_".join(f"{name}-{str(value)[:16]}" for name, value in record.point.values)
    return f"{slug(words)[:_NAME]}-{record.point.config_key[:8]}"


def link_probes(run_dir: Path, stage_dir: Path, records: Sequence[TrialRecord]) -> None:
    for record in records:
        target = (stage_dir / record.path).parent
        relink(run_dir / "probes" / probe_name(record), target)


def link_side(
    run_dir: Path, side: str, stage_dir: Path, records: Sequence[TrialRecord], key: str
) -> Path:
    """`last-known-good` or `first-known-bad`, for the state of this key. Returns the directory of one telling trial."""
    name, wanted = _SIDES[side]
    mine = [record for record in records if record.point.config_key == key]
    telling = [record for record in mine if record.outcome.value == wanted]
    relink(run_dir / name, run_dir / "probes" / probe_name(mine[0]))
    return stage_dir / (telling or mine)[-1].path


def relink(link: Path, target: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.relpath(target, link.parent))
