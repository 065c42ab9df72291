"""Stories with a known truth, solved unattended: which parts are right, what they cost, and what
they would cost by hand.

`AORTA_SOLVE_SEEDS=20` repeats the flaky ones, `11-20` with these seeds alone, without it each story
is told once; `AORTA_SOLVE_STORIES=race,commit` tells these alone. By hand means the same verbs one
after the other on the unreduced workload: the trials of triage, bisection and comparison at the
original's time, and those that were shared run again.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from benchmarks import solve_stories
from benchmarks.solve_stories import Story, parts_right

_ROOT = Path(__file__).resolve().parents[1]
_LATE = ("triage", "bisect", "diverge")


def main() -> None:
    sys.path.insert(0, str(_ROOT / "tests"))
    seeds = _seeds(os.environ.get("AORTA_SOLVE_SEEDS", ""))
    print(f"{'story':<12}{'runs':>5}{'trials':>8}{'shared':>8}{'seconds':>9}{'by hand':>9}  parts")
    wanted = os.environ.get("AORTA_SOLVE_STORIES", ",".join(_STORIES)).split(",")
    for name in wanted:
        _tell(name, _STORIES[name], seeds if name in _FLAKY else (None,))


def _seeds(asked: str) -> Sequence[int | None]:
    """`20`: the first twenty; `11-20`: these, so that several machines or cores can share them;
    none: the story as written.
    """
    if not asked:
        return (None,)
    first, _, last = asked.rpartition("-")
    return range(int(first or 1), int(last) + 1)


def _dependency(place: Path) -> Story:
    return solve_stories.release_of_a_dependency(place, sys.executable)


_STORIES: dict[str, Callable[..., Story]] = {
    "mistake": solve_stories.missing_module,
    "healthy": solve_stories.never_fails,
    "nan": solve_stories.nan_of_three_rows,
    "memory": solve_stories.batch_too_large,
    "hang": solve_stories.rank_that_does_not_come,
    "dependency": _dependency,
    "race": solve_stories.race_of_threads,
    "commit": solve_stories.commit_of_the_users_own,
}
_FLAKY = frozenset({"race", "commit"})


def _tell(name: str, make: Callable[..., Story], seeds: Sequence[int | None]) -> None:
    runs = len(seeds)
    right: Counter[str] = Counter()
    trials = shared = 0
    seconds = by_hand = 0.0
    for seed in seeds:
        with tempfile.TemporaryDirectory(prefix="aorta-story-") as scratch:
            place = Path(scratch) / "story"
            place.mkdir()
            story = make(place) if seed is None else make(place, seed=seed)
            document, spent = _solved(story)
            for part, is_right in parts_right(make.__name__, document).items():
                right[part] += is_right
                right.setdefault(part, 0)
            trials += document["trials"]
            shared += document["shared_trials"]
            seconds += spent
            by_hand += _by_hand(document, spent)
    parts = ", ".join(f"{part} {count}/{runs}" for part, count in right.items())
    print(
        f"{name:<12}{runs:>5}{trials / runs:>8.0f}{shared / runs:>8.0f}{seconds / runs:>9.1f}"
        f"{by_hand / seconds:>8.2f}x  {parts}",
        flush=True,
    )


def _solved(story: Story) -> tuple[dict[str, Any], float]:
    limited = solve_stories.limited_memory() if story.name == "memory" else nullcontext()
    with limited as group, _entering(group) as enter:
        began = time.monotonic()
        words = ("--output", str(story.directory.parent / "out"), *story.options)
        done = solve(*words, "--", *story.command, cwd=story.directory, preexec_fn=enter)
    try:
        return json.loads(done.stdout), time.monotonic() - began
    except ValueError:
        raise SystemExit(f"{story.name}: {done.stderr}") from None


def solve(*words: str, cwd: Path, **how: Any) -> subprocess.CompletedProcess[str]:
    """`aorta solve` of this checkout, whose `python` is the one that runs this."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        (sys.executable, "-m", "aorta", "solve", "--json", "-q", *words),
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(_ROOT / "src"), "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        **how,
    )


@contextmanager
def _entering(group: Path | None) -> Iterator[Callable[[], None] | None]:
    def enter() -> None:
        assert group is not None
        (group / "cgroup.procs").write_text(str(os.getpid()))

    yield enter if group is not None else None


def _by_hand(document: dict[str, Any], spent: float) -> float:
    """Estimated from the measured time of one trial: what came late ran on the reduced workload,
    and some not at all.
    """
    late = sum(row["seconds"] for row in document["stages"] if row["name"] in _LATE)
    cheaper = (document["reproducer"] or {}).get("cheaper") or 1.0
    once = spent / max(1, document["trials"])
    return float(spent + late * (max(1.0, cheaper) - 1) + document["shared_trials"] * once)
