"""`aorta diverge`: at which operation do the numbers part?"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from aorta.cli import options
from aorta.cli.printing import say, show_and_leave, show_plan

if TYPE_CHECKING:
    from aorta.engine.events import Event, Listener


def _listeners(display: options.Display) -> "Sequence[Listener]":
    """What shows a comparison while it runs: sides are recorded, nothing reproduces or is clean."""
    from aorta.core.durations import show_duration
    from aorta.engine.events import Note, PointDecided, TrialEnded
    from aorta.views.lines import PlainProgress

    def in_our_words(view: "Listener") -> "Listener":
        def hear(event: "Event") -> None:
            if isinstance(event, PointDecided):
                return
            if isinstance(event, TrialEnded) and not event.replayed:
                record = event.record
                run = f"run {record.index + 1} of the {record.point['side']} side"
                view(Note(f"{run}: {record.why}, in {show_duration(record.duration)}"))
                if isinstance(view, PlainProgress):
                    return
            view(event)

        return hear

    return display.listeners(
        describe=lambda point: f"the {point['side']} side" if point.values else "",
        each=in_our_words,
    )


def _variables(side: str) -> options.Decorator:
    names = (f"--{side}-set", f"--{side}-env", f"{side}_set")  # the second is the old name
    help_text = f"A variable of the {side} side; repeatable."
    return click.option(*names, multiple=True, metavar="NAME=VALUE", help=help_text)


@click.command(cls=options.DirectoryFirst, context_settings={"allow_interspersed_args": False})
@_variables("bad")
@_variables("good")
@click.option("--good-mitigations", default="", help="Comma-separated, for the good side.")
@click.option("--good", metavar="REV", help="The good side is this revision.")
@click.option("--good-device", type=click.Choice(["cpu"]), help="The good side runs there.")
@click.option(
    "--good-dtype",
    type=click.Choice(["float32", "float64"]),
    help="The good side computes at least in this precision.",
)
@click.option("--between-ranks", is_flag=True, help="Compare the ranks of one run instead.")
@click.option("--steps", metavar="A:B", help="Record these steps only; it runs on.")
@options.mitigations_files
@click.option("--seed", type=int, default=0, show_default=True, help="Of both sides.")
@options.output("diverge")
@options.running_trials
@options.resumable
@click.option("--dry-run", is_flag=True, help="Say what would run, and write nothing.")
@options.displaying
@options.command_words("[RUN_DIR] [-- COMMAND...]")
def command(
    dry_run: bool,
    bad_set: tuple[str, ...],
    good_set: tuple[str, ...],
    good_mitigations: str,
    steps: str | None,
    **given: Any,
) -> None:
    """Run both sides of a program with the same seeds; name the first operation that differs.

    \b
    aorta diverge --good-mitigations tf32_off -- python train.py
    aorta diverge --good-dtype float64 --steps 0:20 -- python train.py
    aorta diverge --good-set OMP_NUM_THREADS=1 -- python train.py
    aorta diverge --good v2.3 -- python train.py
    aorta diverge -- python train.py            # first NaN; and does it repeat its own numbers?
    aorta diverge triage_results/T-1/command/2026-11-02T10-00-00

    \b
    Exit codes: 0 an operation was found, none differs, or the program does not repeat its own
    numbers; 2 the command line is wrong; 3 nothing was recorded, or the sides do different things
    or end otherwise; 5 infrastructure; 130/143 interrupted (resume with --resume).
    """
    from aorta.diverge.output import SCHEMA
    from aorta.diverge.request import DivergeRequest, parse_steps, plan_lines
    from aorta.diverge.running import diverge
    from aorta.engine.events import Ending

    display = options.display_from(given)
    request = DivergeRequest(
        run_dir=options.directory_from(given),
        bad_set=options.variables_from(bad_set, "--bad-set"),
        good_set=options.variables_from(good_set, "--good-set"),
        good_mitigations=options.names_from(good_mitigations),
        steps=parse_steps(steps),
        **options.typed(given),
    )
    if dry_run:
        show_plan("diverge", plan_lines(request), as_json=display.as_json)
        return
    report = diverge(request, lambda: _listeners(display), say)
    go_on = Ending(report.ended).how_to_go_on("diverge", report.run_dir)
    show_and_leave(SCHEMA, report, report.lines(), as_json=display.as_json, go_on=go_on)
