"""What a run would do, in words: the exact commands, how many trials, and how long that may take."""

import json
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

from aorta.core.durations import show_duration
from aorta.core.point import Point
from aorta.scrub.secrets import safe_value
from aorta.triage.plan import Plan, PlannedCell


def describe_plan(plan: Plan, output_dir: Path, jobs: int) -> Iterator[str]:
    """Line by line. Nothing is left on the disk."""
    content = plan.recipe.content
    yield f"{len(plan.cells)} cells of {content.workload}, baseline {plan.baseline.name}"
    with tempfile.TemporaryDirectory(prefix="aorta-dry-run-") as scratch:
        for cell in plan.cells:
            yield f"{cell.name}: at most {cell.trials} trials in {_place(cell)}"
            if cell.inert is not None:
                yield f"  inert      {cell.inert}"
            yield f"  directory  {cell.experiment.subject.cwd}"
            yield f"  command    {_command(cell, Path(scratch))}"
    yield f"at most {plan.most_trials} trials; a cell stops earlier once its answer is settled"
    yield f"time: {_estimate(plan, output_dir, jobs)}"
    yield f"results would go below {output_dir / plan.parent}"


def _place(cell: PlannedCell) -> str:
    environment = cell.environment
    inside = environment.image or environment.venv
    return f"{environment.name} ({environment.kind.value}{f' {inside}' if inside else ''})"


def _command(cell: PlannedCell, scratch: Path) -> str:
    """As it would be typed; the trial's own directory is not known yet."""
    folder = scratch / "TRIAL"
    folder.mkdir(exist_ok=True)
    trial = cell.experiment.trial(Point.of({}), 0, folder)
    variables = [f"{name}={safe_value(name, trial.env[name])}" for name in sorted(trial.env)]
    words = ["env", *variables, *trial.argv] if variables else trial.argv
    return shlex.join(words).replace(str(folder), "TRIAL_DIR")


def _estimate(plan: Plan, output_dir: Path, jobs: int) -> str:
    """From the newest run of the same ticket and workload; without one, what the time limit allows."""
    seconds = _seconds_of_a_trial(output_dir / plan.parent)
    if seconds is not None:
        total = show_duration(seconds * plan.most_trials / jobs)
        return f"about {total} at most ({show_duration(seconds)} a trial in the newest run, {jobs} at once)"
    limit = plan.recipe.content.timeout
    if limit is not None:
        return f"{show_duration(limit * plan.most_trials / jobs)} at most, by --timeout; no earlier run tells more"
    return "unknown: there is no earlier run here and no --timeout"


def _seconds_of_a_trial(parent: Path) -> float | None:
    runs = sorted(parent.glob("*/matrix.json"), key=lambda path: path.stat().st_mtime)
    for path in reversed(runs):
        try:
            cells = json.loads(path.read_bytes())["cells"]
            spent = [(c["mean_wall_clock_sec"] * c["trials"], c["trials"]) for c in cells]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        trials = sum(count for _, count in spent)
        if trials:
            return float(sum(seconds for seconds, _ in spent) / trials)
    return None
