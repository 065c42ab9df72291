"""`aorta solve`: all of the above, unattended."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from aorta.cli import options
from aorta.cli.printing import say, show_and_leave, show_plan, warn_of_stdin

if TYPE_CHECKING:
    from aorta.solve.request import SolveRequest


@click.command(cls=options.DirectoryFirst, context_settings={"allow_interspersed_args": False})
@click.option("--spec", type=click.Path(path_type=Path), help="A reduction spec, if there is one.")
@click.option("--environment", metavar="E", help="Where it runs, such as image:REF.")
@click.option(
    "--good",
    metavar="REV|FILE|IMAGE",
    help="What worked: a revision, a requirements file, env.json, a virtual environment; "
    "beside --environment image:REF an image.",
)
@click.option("--index-url", metavar="URL", help="Of releases, where --good is an environment.")
@click.option("--find-links", multiple=True, metavar="DIR|URL", help="More files; repeatable.")
@click.option("--no-index", is_flag=True, help="No index, only --find-links.")
@click.option("--budget", type=options.Duration(), help="Of everything: 30m, 8h ...")
@click.option("--max-trials", type=click.IntRange(1), help="Stop after so many trials.")
@click.option("--stages", default="", metavar="A,B", help="Only these, and always reproduce.")
@click.option("--skip", default="", metavar="A,B", help="All but these; never reproduce.")
@options.output("solve")
@click.option("--ticket", help="Names the bundle.")
@click.option("--allow-binary", is_flag=True, help="Pack data that is no text as it is.")
@options.mitigations_files
@options.oracle_options
@options.running_trials
@options.resumable
@click.option("--dry-run", is_flag=True, help="Say the plan; run nothing.")
@options.displaying
@options.command_words("[RUN_DIR|CASE] [-- COMMAND...]")
def command(dry_run: bool, stages: str, skip: str, **given: Any) -> None:
    """From a failing job to its cause and a reproducer that works elsewhere, in one go.

    \b
    aorta solve -- python train.py --steps 5000
    aorta solve logs/case
    aorta solve --good v2.3 -- python train.py
    aorta solve --budget 8h --executor slurm -- python train.py

    \b
    Exit codes: 0 a reproducer, a cure or a culprit was found; 2 the command line is wrong; 3 it did
    not fail, is an error in the command, or nothing was found; 4 stopped by a budget before that;
    5 infrastructure, or no trial could tell; 130/143 interrupted (go on with --resume).
    """
    from aorta.core.oracle import oracle_to_json
    from aorta.solve.request import SolveRequest, stages_from

    display = options.display_from(given)
    oracle = options.oracle_from(given)
    request = SolveRequest(
        source=options.directory_from(given),
        stages=stages_from(options.names_from(stages), options.names_from(skip)),
        oracle=None if oracle is None else oracle_to_json(oracle),
        executor=options.executor_from(given),
        resume=options.resume_from(given),
        **given,
    )
    if dry_run:
        _show_plan(request, as_json=display.as_json)
    else:
        _solve(request, display)


def _show_plan(request: "SolveRequest", *, as_json: bool) -> None:
    from aorta.solve.running import dry_run

    plan, lines = dry_run(request), []
    for stage in plan:
        note = (stage["left_out"] and f"left out: {stage['left_out']}") or (
            stage["only_if"] and f"only if {stage['only_if']}"
        )
        lines.append(f"  {stage['name']:<10} {note or ''}".rstrip())
    show_plan("solve", lines, as_json=as_json, stages=plan)


def _solve(request: "SolveRequest", display: options.Display) -> NoReturn:
    from aorta.engine.events import Ending
    from aorta.report.building import write_page
    from aorta.solve.running import solve
    from aorta.solve.solution import SCHEMA

    say_stage = (lambda _text: None) if display.quiet else say

    def show(run_dir: Path) -> None:
        write_page(run_dir, run_dir / "report.html")

    solution = solve(request, lambda _stage: display.listeners(), say_stage, show)
    warn_of_stdin()
    go_on = Ending(solution.ended).how_to_go_on("solve", solution.state.path)
    show_and_leave(SCHEMA, solution, solution.lines, as_json=display.as_json, go_on=go_on)
