"""`aorta reduce`: what is the smallest workload that still fails?"""

import shlex
from pathlib import Path
from typing import Any

import click

from aorta.cli import options
from aorta.cli.printing import print_json, say, show_and_leave
from aorta.core.errors import UsageError


class _WithCommand(click.Group):
    """A group that also takes a command of the user's behind `--source ... --`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        if "--source" in args[:at]:
            ctx.meta["aorta.words"] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)


@click.group(cls=_WithCommand, invoke_without_command=True)
@click.option("--spec", type=click.Path(path_type=Path), help="The reduction spec, aorta.yaml.")
@click.option("--workload", metavar="NAME", help="A registered workload with axes of its own.")
@click.option(
    "--source", is_flag=True, help="Also the program itself, down to one script: -- COMMAND."
)
@click.option(
    "--fixed-by",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A patch that repairs it: the script must then end well.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Where the run directory is made.  [default: reduce]",
)
@click.option("--scrub", multiple=True, metavar="P[,P]", help="Text to take out of what ships.")
@click.option("--bare", is_flag=True, help="Without the mitigations that the spec names.")
@click.option("--max-trials", type=click.IntRange(1), help="Stop after so many trials.")
@click.option("--max-wall-clock", type=options.Duration(), help="Stop after 30m, 4h ...")
@options.environment_layers
@options.running_trials
@options.resumable
@click.option("--dry-run", is_flag=True, help="Search, and leave nothing on disk.")
@options.displaying
@click.pass_context
def command(context: click.Context, /, **given: Any) -> None:
    """Shrink a failing workload along declared axes, as far as it still fails the same way.

    \b
    aorta reduce init -- python train.py       write a first aorta.yaml
    aorta reduce --spec aorta.yaml --output reduce/MY-TICKET
    aorta reduce --source -- python train.py --config c.yaml
    aorta reduce --workload half_nan --output reduce/half-nan
    aorta reduce --resume reduce/MY-TICKET/2026-11-15T05-35-08

    \b
    Exit codes: 0 reduced and confirmed; 2 the spec or command line is wrong; 3 it did not
    reproduce, or nothing could be shrunk; 4 stopped by a budget; 5 infrastructure, or no trial
    could tell; 130/143 interrupted (go on with --resume).
    """
    if context.invoked_subcommand is not None:
        return
    from aorta.reduce.report import SCHEMA, summary_lines
    from aorta.reduce.request import ReduceRequest, reduce

    display = options.display_from(given)
    words = context.meta.get("aorta.words", ())
    request = ReduceRequest(command=words, **options.typed(given))
    report = reduce(request, display.listeners, say)
    go_on = report.ending.how_to_go_on("reduce", report.run_dir if report.is_kept else None)
    lines = summary_lines(report)
    show_and_leave(SCHEMA, report, lines, as_json=display.as_json, go_on=go_on)


@command.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("aorta.yaml"),
    show_default=True,
    help="The spec to write.",
)
@click.option("--timeout", type=options.Duration(), help="Of the one run: seconds, or 30s, 10m.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@options.as_json
@options.command_words("-- COMMAND...")
def init(
    output: Path, timeout: float | None, force: bool, as_json: bool, command: tuple[str, ...]
) -> None:
    """Run a command once and write a commented starter spec from how it failed.

    \b
    aorta reduce init -- python train.py --steps 5000
    aorta reduce init -o nan.yaml -- bash run.sh

    \b
    Exit codes: 0 written; 2 the command line is wrong; 3 the command could not be run.
    """
    from aorta.engine.rundir import write_atomically
    from aorta.executors.local import LocalExecutor
    from aorta.reduce.draft import draft_spec

    if not command:
        raise UsageError(
            "give the command behind --, such as: aorta reduce init -- python train.py"
        )
    if output.exists() and not force:
        raise UsageError(
            "is already there; give another name with -o, or --force", where=str(output)
        )
    draft = draft_spec(command, output, LocalExecutor(), timeout)
    write_atomically(output, draft.text)
    if as_json:
        content = {"path": str(output), "failed": draft.failed, "oracle": draft.oracle}
        print_json("aorta.reduce.init/1", content)
    say(f"the command {draft.said}; wrote {output}")
    if not draft.failed:
        say("its exit was 0: check that the oracle says what the failure looks like")
    if draft.axes:
        say(f"next: aorta reduce --spec {shlex.quote(str(output))} --output reduce/MY-TICKET")
        return
    say(
        "nothing was found that may shrink; let the command read a variable or a file by its "
        "name, such as "
        f'"$NUM_STEPS", and name it under axes: in {output}; then: aorta reduce --spec {output}'
    )
