"""`aorta triage`: which mitigation, in which environment, makes it stop?"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aorta.cli import options
from aorta.cli.printing import print_json, say
from aorta.core.errors import UsageError
from aorta.core.exits import Exit

if TYPE_CHECKING:
    from aorta.triage.optimize import FinishedStacks
    from aorta.triage.recipe import Recipe
    from aorta.triage.running import Finished, RunSettings
    from aorta.triage.stacks import StackPlan

# What a recipe says itself; its cells may be added to, and --mode, --output-dir and the like stay free beside it.
_RECIPE_CONTENT = {
    "workload": "--workload",
    "steps": "--steps",
    "ticket": "--ticket",
    "baseline_cell": "--baseline-cell",
    "confound_threshold": "--confound-threshold",
}


class _RunsByDefault(click.Group):
    """`aorta triage --recipe ...` is `aorta triage run --recipe ...`: the group has no options of its own but for help."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0].startswith("-") and args[0] not in ctx.help_option_names:
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_RunsByDefault, context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Which mitigation, in which environment, makes the failure stop?"""


@command.command("run", context_settings={"allow_interspersed_args": False})
@click.option("--recipe", type=click.Path(path_type=Path), metavar="FILE", help="A recipe.")
@click.option("--mode", type=click.Choice(["matrix", "optimize"]), default="matrix")
@click.option("--workload", metavar="NAME", help="A registered workload.")
@click.option(
    "--mitigation-axis",
    metavar="A,B",
    help="The mitigations; none is the baseline. Beside --recipe: further cells.",
)
@click.option(
    "--environment-axis",
    metavar="E,image:REF",
    help="The environments. Beside --recipe: further cells.",
)
@click.option("--trials", type=click.IntRange(1), help="At most so many a cell.")
@click.option("--exact-trials", is_flag=True, help="Exactly so many a cell: never stop early.")
@click.option(
    "--control",
    is_flag=True,
    help="Where a cell works and is slower, run the baseline slowed as much.",
)
@click.option("--steps", type=click.IntRange(1), help="Steps of one trial.")
@click.option("--ticket", help="Groups the results.")
@click.option("--baseline-cell", metavar="CELL")
@click.option("--confound-threshold", type=float, metavar="RATIO", help="[default: 1.15]")
@click.option("--sets", type=click.IntRange(1), default=1, help="optimize: find so many sets.")
@click.option("--max-rate", type=float, default=0.0, help="optimize: may still fail so often.")
@click.option(
    "--mitigations-file",
    "mitigations_files",
    type=click.Path(path_type=Path),
    multiple=True,
    help="A sidecar file of further mitigations and environments; repeatable.",
)
@options.oracle_options
@options.running_trials
@options.warmable
@click.option("--output-dir", type=click.Path(path_type=Path), default=Path("triage_results"))
@options.resumable
@options.watchable
@click.option("--strict", is_flag=True, help="Exit 1 if a cell did not run.")
@click.option("--dry-run", is_flag=True, help="Say what would run, and write nothing.")
@options.talking
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
def run(**given: Any) -> None:
    """Run a workload or any command in every cell of a matrix, or find the smallest stack that works.

    \b
    aorta triage run --recipe examples/triage/half_nan.yaml
    aorta triage run --recipe r.yaml -- torchrun --nproc-per-node 8 train.py
    aorta triage run --recipe r.yaml --mitigation-axis tf32_off,omp_one_thread
    aorta triage run --workload half_nan --mitigation-axis none,omp_one_thread \\
        --environment-axis local --trials 8 --steps 200
    aorta triage run --mode optimize --trials 20 -- python train.py

    \b
    Exit codes: 0 done; 1 --strict and a cell did not run; 2 the command line or recipe is wrong;
    3 no answer (the baseline did not run; optimize: nothing helps); 5 infrastructure;
    130/143 interrupted (resume with --resume).
    """
    from aorta.triage.running import RunSettings

    recipe = _recipe(given)
    settings = RunSettings(
        output_dir=given["output_dir"],
        timeout=given["timeout"],
        resume=options.resume_from(given),
    )
    if given["mode"] == "optimize":
        _optimize(recipe, settings, given)
        return
    if given["dry_run"]:
        _say_plan(recipe, settings, given["jobs"] or 1)
        return
    finished = _run(recipe, settings, given)
    _show(finished, given)
    raise click.exceptions.Exit(_exit_code(finished, strict=given["strict"]))


@command.command("list-mitigations")
@click.option("--mitigations-file", "files", type=click.Path(path_type=Path), multiple=True)
@click.option("--json", "as_json", is_flag=True)
def list_mitigations(files: tuple[Path, ...], as_json: bool) -> None:
    """Every mitigation: who defines it, what it sets, where it is read."""
    from aorta.registry.mitigations import mitigation_rows

    _list("mitigations", mitigation_rows(files), ["NAME", "SOURCE", "ENV", "PLATFORMS"], as_json)


@command.command("list-environments")
@click.option("--mitigations-file", "files", type=click.Path(path_type=Path), multiple=True)
@click.option("--json", "as_json", is_flag=True)
def list_environments(files: tuple[Path, ...], as_json: bool) -> None:
    """Every environment: who defines it, and what it is."""
    from aorta.registry.environments import environment_rows

    rows = [
        {**row, "DOCKER": row["IMAGE"] or "-", "VENV": row["VENV"] or "-"}
        for row in environment_rows(files)
    ]
    _list("environments", rows, ["NAME", "SOURCE", "DOCKER", "VENV"], as_json)


def _list(noun: str, rows: Sequence[dict[str, str]], columns: list[str], as_json: bool) -> None:
    if as_json:
        print_json(f"aorta.{noun}/1", {noun: rows})
        return
    widths = [max(len(column), *(len(row[column]) for row in rows)) for column in columns]
    for row in [{column: column for column in columns}, *rows]:
        cells = (row[column].ljust(width) for column, width in zip(columns, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _recipe(given: dict[str, Any]) -> "Recipe":
    from aorta.triage import commandline

    oracle = options.oracle_from(given)
    command_line = list(given["command_line"])
    if oracle is not None and not command_line:
        raise UsageError(
            "--oracle and its options describe a command's failure; give one behind --"
        )
    wrapped = commandline.wrapped(command_line, oracle)
    passed = [option for name, option in _RECIPE_CONTENT.items() if given[name] is not None]
    if given["recipe"] is not None:
        if passed:
            raise UsageError(
                f"{', '.join(passed)} cannot stand beside --recipe, which says this itself; "
                "change the recipe, or leave --recipe out"
            )
        recipe = commandline.from_file(given["recipe"], given["mitigations_files"], wrapped)
        return commandline.extended(recipe, given)
    axes = given["mitigation_axis"] or given["environment_axis"] or given["trials"]
    if given["resume"] and not passed and not axes and not command_line:
        return commandline.from_run_dir(Path(given["resume"]))
    return commandline.from_flags(given, wrapped)


def _run(recipe: "Recipe", settings: "RunSettings", given: dict[str, Any]) -> "Finished":
    from aorta.triage.running import run_recipe, without_single_verdicts
    from aorta.views.pictures import CellsPicture

    listeners = options.views(given, CellsPicture(), each=without_single_verdicts)
    return run_recipe(recipe, settings, lambda: options.executor_from(given), listeners)


def _say_plan(recipe: "Recipe", settings: "RunSettings", jobs: int) -> None:
    from aorta.triage.plan import describe_plan
    from aorta.triage.running import check_recipe

    for line in describe_plan(check_recipe(recipe, settings), settings.output_dir, jobs):
        say(line)
    say("nothing was run")


def _show(finished: "Finished", given: dict[str, Any]) -> None:
    from aorta.triage.matrix import SCHEMA

    matrix, run_dir = finished.matrix, finished.run_dir
    if given["as_json"]:
        print_json(SCHEMA, {**matrix.to_json(), "run_dir": str(run_dir)})
    else:
        click.echo((run_dir / "matrix.md").read_text(encoding="utf-8"))
        for words in matrix.ending.warm_words:
            click.echo(words)
        click.echo(f"results: {run_dir}")
    if matrix.plan.recipe.sidecars:
        files = " ".join(
            f"--mitigations-file sidecars/{path.name}" for path in matrix.plan.recipe.sidecars
        )
        rerun = f"aorta triage run --recipe recipe.resolved.yaml {files}"
        (say if given["as_json"] else click.echo)(f"to rerun: cd {run_dir} && {rerun}")


def _exit_code(finished: "Finished", *, strict: bool) -> int:
    from aorta.engine.events import Reason
    from aorta.triage.statistics import Call

    matrix, run_dir = finished.matrix, finished.run_dir
    ending = matrix.ending
    if ending.reason is not Reason.DONE:
        say(f"aorta: {ending.detail}; go on with: aorta triage run --resume {run_dir}")
        return int(ending.exit_code)
    if matrix.baseline.comparison.call is Call.DID_NOT_RUN:
        name, why = matrix.baseline.name, matrix.baseline.stats.error
        say(f"aorta: {run_dir}: the baseline {name} did not run: {why}")
        return int(Exit.NO_ANSWER)
    if strict and matrix.did_not_run:
        say(f"aorta: did not run: {', '.join(matrix.did_not_run)}")
        return int(Exit.FAILED)
    return int(Exit.OK)


_NO_ANSWER = {
    "did_not_reproduce": "the failure did not show without mitigations",
    "not_found": "no stack of these mitigations makes the failure go away",
}


def _optimize(recipe: "Recipe", settings: "RunSettings", given: dict[str, Any]) -> None:
    from aorta.triage.optimize import optimize
    from aorta.triage.stacks import Goal, plan_stacks
    from aorta.views.pictures import StacksPicture

    goal = Goal(given["sets"], given["max_rate"])
    if given["dry_run"]:
        _say_stacks(plan_stacks(recipe, settings, goal))
        return
    listeners = options.views(given, StacksPicture())
    finished = optimize(recipe, settings, goal, lambda: options.executor_from(given), listeners)
    _show_stacks(finished, as_json=given["as_json"])
    raise click.exceptions.Exit(_stacks_exit_code(finished))


def _say_stacks(plan: "StackPlan") -> None:
    from aorta.registry.mitigations import shown_env

    say(f"the smallest of {len(plan.candidates)} mitigations that makes the failure go away")
    for entry in plan.candidates:
        say(f"  {entry.name}: {shown_env(entry.env)}")
    for name, reason in plan.left_out.items():
        say(f"  left out {name}: {reason}")
    say(f"at most {plan.original.trials} trials a stack")
    say("nothing was run")


def _show_stacks(finished: "FinishedStacks", *, as_json: bool) -> None:
    from aorta.triage.optimize import SCHEMA

    if as_json:
        print_json(SCHEMA, {**finished.optimized.to_json(), "run_dir": str(finished.run_dir)})
        return
    click.echo((finished.run_dir / "optimize.md").read_text(encoding="utf-8"))
    click.echo(f"results: {finished.run_dir}")


def _stacks_exit_code(finished: "FinishedStacks") -> int:
    from aorta.engine.events import Reason

    ending, status = finished.optimized.ending, finished.optimized.status
    if ending.reason is not Reason.DONE:
        say(f"aorta: {ending.detail}; go on with the same command and --resume {finished.run_dir}")
        return int(ending.exit_code)
    if status in _NO_ANSWER:
        say(f"aorta: {finished.run_dir}: {_NO_ANSWER[status]}")
        return int(Exit.NO_ANSWER)
    return int(Exit.OK)
