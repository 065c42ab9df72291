"""`aorta run`: does it fail, how often, how fast?"""

from typing import Any

import click

from aorta.cli import options
from aorta.cli.printing import say, show_and_leave, show_plan, warn_of_stdin


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--workload", metavar="NAME", help="A registered workload.")
@click.option("--trials", type=click.IntRange(1), default=1, show_default=True)
@click.option("--steps", type=click.IntRange(1), help="Steps of one trial.")
@options.environment_layers
@options.oracle_options
@options.running_trials
@options.output("results", "--results-dir", "results_dir")
@options.resumable
@click.option("--dry-run", is_flag=True, help="Say what would run, and write nothing.")
@options.displaying
@options.command_words("[-- COMMAND...]")
def command(dry_run: bool, **given: Any) -> None:
    """Run a workload or any command a number of times: does it fail, how often, how fast?

    \b
    aorta run --trials 10 -- python train.py --steps 100
    aorta run --workload half_nan --trials 3 --mitigations omp_one_thread
    aorta run --trials 5 --oracle hang --silent-for 30s -- bash run.sh
    aorta run --resume results/command

    \b
    Exit codes: 0 every trial clean; 1 a trial failed; 2 the command line is wrong;
    5 infrastructure, or no trial could tell; 130/143 interrupted (resume with --resume).
    """
    from aorta.run.request import SCHEMA, RunRequest, plan_lines, run

    display = options.display_from(given)
    request = RunRequest(
        layers=options.layers_from(given),
        oracle=options.oracle_from(given),
        executor=options.executor_from(given),
        resume=options.resume_from(given),
        **given,
    )
    if dry_run:
        show_plan("run", plan_lines(request), as_json=display.as_json)
        return
    report = run(request, display.listeners, say)
    warn_of_stdin()
    go_on = report.ending.how_to_go_on("run", report.run_dir)
    show_and_leave(SCHEMA, report, report.lines(), as_json=display.as_json, go_on=go_on)
