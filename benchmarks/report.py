"""How much processor time a page takes and how large it is, from a short run to one of 5,000
trials.
"""

import tempfile
import time
from pathlib import Path

from aorta.core.axis import Point
from aorta.core.trial import Outcome
from aorta.engine.events import Opened, TrialRecord
from aorta.engine.journal import Journal
from aorta.engine.rundir import RunDir
from aorta.report.building import page_of
from aorta.report.html import document

_POINT = Point.of({})
SIZES = (10, 100, 1000, 5000)
TARGET_SECONDS, TARGET_BYTES = 2.0, 1_000_000


def main() -> None:
    print(
        f"{'trials':>8} {'seconds':>9} {'kB':>7}   target: 5000 trials under {TARGET_SECONDS:g} s "
        f"and {TARGET_BYTES // 1000} kB"
    )
    for trials in SIZES:
        with tempfile.TemporaryDirectory(prefix="aorta-bench-") as scratch:
            run = _run_directory(Path(scratch) / "run", trials)
            began = time.process_time()
            text = document(page_of(run))
            seconds = time.process_time() - began
        print(f"{trials:>8} {seconds:>9.3f} {len(text.encode()) / 1000:>7.0f}")


def _run_directory(path: Path, trials: int) -> Path:
    """A finished run whose every trial failed in words of its own, with a path and an address to
    scrub in each.
    """
    run = RunDir(path)
    journal = Journal.create(run.journal, {})
    journal.append(Opened(_POINT), "main")
    for number in range(trials):
        journal.append(_record(number), "main")
    journal.close()
    run.describe(verb="run", workload="bench", created="2026-11-15T05:35:08Z", state="done")
    return path


def _record(number: int) -> TrialRecord:
    why = f"exit 1: cannot read /home/alice/run-{number}/x.bin from 10.1.{number % 250}.7"
    return TrialRecord(
        seq=number,
        point=_POINT,
        index=number,
        outcome=list(Outcome)[number % 4],
        why=why,
        failure=None,
        exit_code=1,
        signal=None,
        timed_out=False,
        duration=1 + number % 17 / 10,
        started_at=float(number),
        elapsed=float(number),
        host="here",
        image_digest=None,
        path="",
    )
