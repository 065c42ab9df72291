"""The `--mode optimize` of `aorta triage run`."""

from typing import TYPE_CHECKING, Any

import click

from aorta.cli import options
from aorta.cli.printing import print_json, say
from aorta.core.exits import Exit

if TYPE_CHECKING:
    from aorta.triage.optimize import FinishedStacks
    from aorta.triage.recipe import Recipe
    from aorta.triage.running import RunSettings
    from aorta.triage.stacks import StackPlan

_NO_ANSWER = {
    "did_not_reproduce": "the failure did not show without mitigations",
    "not_found": "no stack of these mitigations makes the failure go away",
}


def run(recipe: "Recipe", settings: "RunSettings", given: dict[str, Any]) -> None:
    from aorta.triage.optimize import optimize
    from aorta.triage.stacks import Goal, plan_stacks
    from aorta.views.pictures import StacksPicture

    goal = Goal(given["sets"], given["max_rate"])
    if given["dry_run"]:
        _say_plan(plan_stacks(recipe, settings, goal))
        return
    listeners = options.views(given, StacksPicture())
    finished = optimize(recipe, settings, goal, lambda: options.executor_from(given), listeners)
    _show(finished, as_json=given["as_json"])
    raise click.exceptions.Exit(_exit_code(finished))


def _say_plan(plan: "StackPlan") -> None:
    say(f"the smallest of {len(plan.candidates)} mitigations that makes the failure go away")
    for entry in plan.candidates:
        say(f"  {entry.name}: {', '.join(sorted(entry.env))}")
    for name, reason in plan.left_out.items():
        say(f"  left out {name}: {reason}")
    say(f"at most {plan.original.trials} trials a stack")
    say("nothing was run")


def _show(finished: "FinishedStacks", *, as_json: bool) -> None:
    from aorta.triage.optimize import SCHEMA

    if as_json:
        print_json(SCHEMA, {**finished.optimized.to_json(), "run_dir": str(finished.run_dir)})
        return
    click.echo((finished.run_dir / "optimize.md").read_text(encoding="utf-8"))
    click.echo(f"results: {finished.run_dir}")


def _exit_code(finished: "FinishedStacks") -> int:
    from aorta.engine.events import Reason

    ending, status = finished.optimized.ending, finished.optimized.status
    if ending.reason is not Reason.DONE:
        say(f"aorta: {ending.detail}; go on with the same command and --resume {finished.run_dir}")
        return int(ending.exit_code)
    if status in _NO_ANSWER:
        say(f"aorta: {finished.run_dir}: {_NO_ANSWER[status]}")
        return int(Exit.NO_ANSWER)
    return int(Exit.OK)
