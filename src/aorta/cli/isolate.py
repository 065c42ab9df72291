"""`aorta isolate`: is it a node, a link, a rank or the software?"""

from pathlib import Path
from typing import Any

import click

from aorta.cli import options
from aorta.cli.printing import say, show_and_leave, show_plan


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--nodes", "hosts", default="", metavar="LIST", help="n[1-64]; local: devices, 0,1,2,3."
)
@click.option("--ranks-per-node", type=click.IntRange(1), default=1, show_default=True)
@click.option("--world-size", type=click.IntRange(1), help="The fewest ranks it runs with.")
@click.option(
    "--history",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="Logs or a cycle directory of an earlier failure; repeatable.",
)
@click.option(
    "--confidence",
    type=click.FloatRange(0.5, 0.9999),
    default=0.95,
    show_default=True,
    help="Stop at this probability.",
)
@click.option("--max-trials", type=click.IntRange(1), help="Stop after so many runs.")
@click.option("--max-wall-clock", type=options.Duration(), help="Stop after 30m, 4h ...")
@options.environment_layers
@options.oracle_options
@options.placed_trials
@options.output("isolate")
@options.resumable
@click.option("--dry-run", is_flag=True, help="Show the first placements and what it should cost.")
@options.displaying
@options.command_words("-- COMMAND...")
def command(dry_run: bool, hosts: str, **given: Any) -> None:
    """Run a job on chosen sets of nodes until it is known what fails: a node, a link, a rank, or
    the software.

    The command finds its nodes in AORTA_NODES; with slurm it runs on just these, and on this
    machine it sees just these devices. Nothing is drained: what to do is printed.

    \b
    aorta isolate --nodes n[1-64] --executor slurm -- python train.py
    aorta isolate --nodes 0,1,2,3 -- python train.py
    aorta isolate --nodes n[1-8] --ranks-per-node 8 --history logs/cycle_3 --executor slurm -- job
    aorta isolate --resume isolate/2026-11-17T09-06-45

    \b
    Exit codes: 0 found (a node, device, link or rank), several, or the software; 2 the command
    line is wrong; 3 not known; 4 stopped by a budget; 5 infrastructure; 130/143 interrupted.
    """
    from aorta.isolate.request import SCHEMA, IsolateRequest, isolate, plan_lines, resumed

    display = options.display_from(given)
    request = IsolateRequest(
        nodes=hosts,
        layers=options.layers_from(given),
        oracle=options.oracle_from(given),
        executor=options.executor_from(given),
        resume=options.resume_from(given),
        **given,
    )
    request = resumed(request, say)
    if dry_run:
        show_plan("isolate", plan_lines(request), as_json=display.as_json)
        return
    report = isolate(
        request, lambda: display.listeners(describe=request.placed, each=options.a_line_a_trial)
    )
    go_on = report.ending.how_to_go_on("isolate", report.run_dir)
    show_and_leave(SCHEMA, report, report.lines(), as_json=display.as_json, go_on=go_on)
