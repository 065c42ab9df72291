"""The public API of the package: every option of a comparison, and the function that runs it."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from aorta.core.errors import UsageError
from aorta.diverge.output import DivergeReport
from aorta.diverge.running import DivergePlan, run_diverge
from aorta.diverge.sides import GoodSide, Side, Sides, sides_of_run, with_env
from aorta.engine.events import Listener
from aorta.engine.question import Budget
from aorta.engine.session import Resume
from aorta.executors.choosing import ExecutorChoice
from aorta.registry.environments import stack_mitigations
from aorta.registry.mitigations import get_mitigation


@dataclass(frozen=True, kw_only=True)
class DivergeRequest:
    """A run directory or a command, and what makes its good side; None: the bad side alone."""

    run_dir: Path | None = None
    command: tuple[str, ...] | str = ()  # words, or a text for a shell
    cwd: Path | None = None  # of the command; None: here
    bad_set: Mapping[str, str] = field(default_factory=dict)
    good_set: Mapping[str, str] = field(default_factory=dict)
    good_mitigations: tuple[str, ...] = ()
    good: str | None = None  # a revision
    good_device: Literal["cpu"] | None = None
    good_dtype: Literal["float32", "float64"] | None = None
    between_ranks: bool = False  # compare the ranks of one run instead
    steps: tuple[int, int | None] = (0, None)  # the first and the last that are recorded
    seed: int = 0
    mitigations_files: tuple[Path, ...] = ()
    timeout: float | None = None  # of one run, in seconds
    max_wall_clock: float | None = None  # in seconds
    executor: ExecutorChoice = field(default_factory=ExecutorChoice)
    output: Path = Path("diverge")
    name: str | None = None  # of the run directory in `output`; None: the time
    resume: Resume | None = None


def diverge(
    request: DivergeRequest, listeners: Callable[[], Sequence[Listener]] = tuple
) -> DivergeReport:
    """The whole comparison. `listeners` makes fresh ones for each of its searches."""
    plan = _plan(request, _known_sides(request), _good_side(request))
    with request.executor.opened() as executor:
        return run_diverge(plan, executor, listeners, resume=request.resume)


def plan_lines(request: DivergeRequest) -> Iterator[str]:
    """What would run, for people; nothing is run or written."""
    known, good = _known_sides(request), _good_side(request)
    _plan(request, known, good)
    told = known.bad.config.get("command", known.bad.workload)
    other = good.words if good.is_given else known.good.words if known.good else ""
    yield f"command  {told if isinstance(told, str) else shlex.join(told)}"
    yield f"  in     {known.bad.base}"
    yield f"  bad    {known.bad.words or 'as it is'}"
    yield f"  good   {other or 'none: first NaN, and whether it repeats its own numbers'}"


def _plan(request: DivergeRequest, known: Sides, good: GoodSide) -> DivergePlan:
    if request.between_ranks and good.is_given:
        raise UsageError("--between-ranks compares the ranks of one run; remove the good side")

    def sides(scratch: Path) -> Sides:
        if good.is_given:
            return Sides(known.bad, good.of(known.bad, scratch))
        return Sides(known.bad, None) if request.between_ranks else known

    about = {
        "command": [known.bad.workload, dict(known.bad.config), str(known.bad.base)],
        "bad": sorted(known.bad.env.items()),
        "good": repr(good if good.is_given else known.good),
        "steps": list(request.steps),
        "seed": request.seed,
        "between ranks": request.between_ranks,
    }
    return DivergePlan(
        sides=sides,
        output=request.output,
        about=about,
        steps=request.steps,
        between_ranks=request.between_ranks,
        timeout=request.timeout,
        seed=request.seed,
        budget=Budget(max_seconds=request.max_wall_clock),
        name=request.name,
    )


def _known_sides(request: DivergeRequest) -> Sides:
    if (request.run_dir is None) == (not request.command):
        raise UsageError("give a run directory, or a command behind --")
    if request.run_dir is not None:
        found = sides_of_run(request.run_dir)
        bad = with_env(found.bad, request.bad_set) if request.bad_set else found.bad
        return Sides(bad, found.good)
    command = request.command if isinstance(request.command, str) else list(request.command)
    side = Side("command", {"command": command}, request.cwd or Path.cwd())
    return Sides(with_env(side, request.bad_set), None)


def _good_side(request: DivergeRequest) -> GoodSide:
    stack = [
        (name, get_mitigation(name, request.mitigations_files).env)
        for name in request.good_mitigations
    ]
    return GoodSide(
        env=request.good_set,
        mitigations=stack_mitigations(stack),
        revision=request.good,
        device=request.good_device,
        dtype=request.good_dtype,
    )
