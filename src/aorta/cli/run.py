"""`aorta run`: does it fail, how often, how fast?"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aorta.cli import options
from aorta.cli.printing import print_json, say
from aorta.core.errors import UsageError
from aorta.core.exits import Exit

if TYPE_CHECKING:
    from aorta.run.running import RunPlan, RunReport


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--workload", metavar="NAME", help="A registered workload.")
@click.option("--trials", type=click.IntRange(1), default=1, show_default=True)
@click.option("--steps", type=click.IntRange(1), help="Steps of one trial.")
@options.environment_layers
@options.oracle_options
@options.running_trials
@options.warmable
@click.option(
    "--results-dir", type=click.Path(path_type=Path), default=Path("results"), show_default=True
)
@options.resumable
@options.watchable
@click.option("--dry-run", is_flag=True, help="Say what would run, and write nothing.")
@options.talking
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
def command(**given: Any) -> None:
    """Run a workload or any command a number of times: does it fail, how often, how fast?

    \b
    aorta run --trials 10 -- python train.py --steps 100
    aorta run --workload half_nan --trials 3 --mitigations omp_one_thread
    aorta run --trials 5 --oracle hang --silent-for 30s -- bash run.sh

    \b
    Exit codes: 0 every trial clean; 1 a trial failed; 2 the command line is wrong;
    5 infrastructure; 130/143 interrupted (resume with --resume).
    """
    plan = _plan(given)
    if given["dry_run"]:
        _say_plan(plan)
        return
    report = _run(plan, given)
    if given["as_json"]:
        from aorta.run.running import SCHEMA

        print_json(SCHEMA, report.to_json())
    else:
        _show(report)
    raise click.exceptions.Exit(_exit_code(report))


def _plan(given: dict[str, Any]) -> "RunPlan":
    from aorta.registry.environments import get_environment
    from aorta.registry.mitigations import get_mitigation
    from aorta.run.running import RunPlan
    from aorta.workloads.trial import WorkloadRequest

    command_line = list(given["command_line"])
    if given["workload"] == "":
        raise UsageError("--workload is empty; name a workload, or leave it out")
    if bool(command_line) == bool(given["workload"]):
        raise UsageError("give either --workload NAME or a command behind --")
    sidecars = given["mitigations_files"]
    names = [name.strip() for name in given["mitigations"].split(",") if name.strip()]
    request = WorkloadRequest(
        workload=given["workload"] or "command",
        config={"command": command_line} if command_line else {},
        environment=get_environment(given["environment"], sidecars),
        mitigations=[(name, get_mitigation(name, sidecars).env) for name in names],
        extra_env=[options.variables_from(given["extra_env"])],
        steps=given["steps"],
        oracle=options.oracle_from(given),
        timeout=given["timeout"],
    )
    return RunPlan(request, given["trials"], given["results_dir"])


def _run(plan: "RunPlan", given: dict[str, Any]) -> "RunReport":
    from aorta.run.running import run_trials
    from aorta.views.pictures import TrialsPicture

    return run_trials(
        plan,
        lambda: options.executor_from(given),
        options.views(given, TrialsPicture()),
        resume=options.resume_from(given),
    )


def _say_plan(plan: "RunPlan") -> None:
    import shlex

    from aorta.workloads.trial import workload_experiment

    experiment = workload_experiment(plan.request)
    say(f"{plan.trials} trials of {plan.request.workload} in {plan.request.environment.name}")
    say(f"  in        {experiment.subject.cwd}")
    command_line = plan.request.config.get("command")
    if command_line:
        say(f"  command   {shlex.join(command_line)}")
    if experiment.env:
        say(f"  variables {', '.join(sorted(experiment.env))}")
    say(f"  oracle    {experiment.oracle.kind}")
    say("nothing was run")


def _show(report: "RunReport") -> None:
    from aorta.core.stats import percent_range
    from aorta.engine.journal import failed_differently

    content = report.to_json()
    rate, counts, steps = content["rate"], content["counts"], content["step_time_ms"]
    if rate["of"]:
        click.echo(
            f"{report.workload}: {rate['reproduced']} of {rate['of']} trials reproduced the failure "
            f"(95 % interval {percent_range(rate['low'], rate['high'])})"
        )
    else:
        click.echo(f"{report.workload}: no trial could tell whether it fails")
    click.echo("  " + "   ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    if report.signature:
        click.echo(f"  failure    {report.signature.text}")
    if report.retried:
        click.echo(f"  {report.retried} more ran in place of trials that could not tell")
    for words in failed_differently(report.records):
        click.echo(f"  {words}")
    for row in content["trials"]:
        if row["outcome"] in {"other", "error"}:
            click.echo(f"  trial {row['index']}: {row['outcome']}: {row['why']}")
    if steps:
        click.echo(
            f"  step time  median {steps['median']} ms, p90 {steps['p90']} ms over {steps['count']} steps"
        )
    for words in report.ending.warm_words:
        click.echo(f"  {words}")
    click.echo(f"  results    {report.run_dir}")


def _exit_code(report: "RunReport") -> int:
    from aorta.engine.events import Reason

    ending = report.ending
    if ending.reason is Reason.INFRASTRUCTURE:
        say(f"aorta: {ending.detail}")
        return int(ending.exit_code)
    if ending.reason is not Reason.DONE:
        say(f"aorta: {ending.detail}; go on with: aorta run --resume {report.run_dir} ...")
        return int(ending.exit_code)
    return int(Exit.OK if report.all_clean else Exit.FAILED)
