"""Names for people in a run directory: a link for each probed state, and for the two states that matter."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from aorta.core.names import slug
from aorta.engine.journal import TrialRecord

_NAME = 100


def probe_name(record: TrialRecord) -> str:
    """Readable, and unique by the configuration's own key: versions may share their first characters."""
    words = "_".join(f"{name}-{str(value)[:16]}" for name, value in record.point.values)
    return f"{slug(words)[:_NAME]}-{record.point.config_key[:8]}"


def link_probes(run_dir: Path, stage_dir: Path, records: Sequence[TrialRecord]) -> None:
    for record in records:
        target = (stage_dir / record.path).parent
        relink(run_dir / "probes" / probe_name(record), target)


def link_sides(
    run_dir: Path, stage_dir: Path, records: Sequence[TrialRecord], sides: Mapping[str, str]
) -> dict[str, Path]:
    """`sides`: good and bad -> the configuration key. Returns the directory of one telling trial of each."""
    names = {"good": "last-known-good", "bad": "first-known-bad"}
    wanted = {"good": "clean", "bad": "reproduced"}
    found: dict[str, Path] = {}
    for side, key in sides.items():
        mine = [r for r in records if r.point.config_key == key]
        telling = [r for r in mine if r.outcome.value == wanted[side]]
        if mine:
            relink(run_dir / names[side], run_dir / "probes" / probe_name(mine[0]))
            found[side] = stage_dir / (telling or mine)[-1].path
    return found


def relink(link: Path, target: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.relpath(target, link.parent))
