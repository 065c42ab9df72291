"""`aorta reduce`: what is the smallest workload that still fails?"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aorta.cli import options
from aorta.cli.printing import print_json, say
from aorta.core.errors import UsageError

if TYPE_CHECKING:
    from aorta.reduce.plan import Overrides, ReducePlan
    from aorta.reduce.report import ReduceReport
    from aorta.reduce.spec import SpecFile

_DEFAULT_OUTPUT = Path("reduce")


@click.group(invoke_without_command=True)
@click.option("--spec", type=click.Path(path_type=Path), help="The reduction spec, aorta.yaml.")
@click.option("--workload", metavar="NAME", help="A registered workload with axes of its own.")
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
@options.warmable
@options.resumable
@options.watchable
@click.option("--dry-run", is_flag=True, help="Search, and leave nothing on disk.")
@options.talking
@click.pass_context
def command(context: click.Context, /, **given: Any) -> None:
    """Shrink a failing workload along declared axes, as far as it still fails the same way.

    \b
    aorta reduce init -- python train.py       write a first aorta.yaml
    aorta reduce --spec aorta.yaml --output reduce/MY-TICKET
    aorta reduce --workload half_nan --output reduce/half-nan
    aorta reduce --resume reduce/MY-TICKET/2026-11-15T05-35-08

    \b
    Exit codes: 0 reduced and confirmed; 2 the spec or command line is wrong; 3 it did not
    reproduce, or nothing could be shrunk; 4 stopped by a budget; 5 infrastructure;
    130/143 interrupted (go on with --resume).
    """
    if context.invoked_subcommand is None:
        _reduce(given)


def _reduce(given: dict[str, Any]) -> None:
    from aorta.reduce.plan import make_plan

    if given["resume"] is not None:
        _take_up(given)
    plan = make_plan(_spec(given), _overrides(given))
    report = _run(plan, given)
    if given["as_json"]:
        from aorta.reduce.report import SCHEMA

        print_json(SCHEMA, report.to_json())
    else:
        _show(report, kept=not given["dry_run"])
    _leave(report)


def _spec(given: dict[str, Any]) -> "SpecFile":
    from aorta.reduce.spec import load_spec, workload_spec
    from aorta.workloads.discovery import COMMAND

    spec, workload = given["spec"], given["workload"]
    if (spec is None) == (workload is None):
        raise UsageError("give either --spec FILE or --workload NAME")
    if spec is not None:
        return load_spec(spec)
    if workload == COMMAND:
        raise UsageError("a command declares no axes; write a spec: aorta reduce init -- COMMAND")
    return workload_spec(workload)


def _take_up(given: dict[str, Any]) -> None:
    """Fill in what the run that is resumed was begun with; say which one it is where nobody named it."""
    from aorta.engine.rundir import RunDir, find_resumable
    from aorta.reduce.running import VERB

    if given["dry_run"]:
        raise UsageError("--dry-run leaves nothing to resume; give one of them")
    if not given["resume"]:
        run = find_resumable(given["output"] or _DEFAULT_OUTPUT, VERB)
        given["resume"] = str(run.path)
        say(f"resuming {run.path}")
    about = RunDir(Path(given["resume"])).about()
    begun = str(about.get("spec", ""))
    if given["spec"] is None and given["workload"] is None and begun:
        name = begun.removeprefix("workload ")
        given["workload" if name != begun else "spec"] = name if name != begun else Path(begun)
    if given["jobs"] is None:
        given["jobs"] = about.get("jobs")


def _overrides(given: dict[str, Any]) -> "Overrides":
    from aorta.reduce.plan import NO_MITIGATION, Overrides
    from aorta.scrub.patterns import split_patterns

    names = [name.strip() for name in given["mitigations"].split(",") if name.strip()]
    environment = given["environment"]
    return Overrides(
        timeout=given["timeout"],
        max_trials=given["max_trials"],
        max_wall_clock=given["max_wall_clock"],
        environment=None if environment == "local" else environment,
        mitigations=None if names == [NO_MITIGATION] else names,
        sidecars=given["mitigations_files"],
        extra_env=options.variables_from(given["extra_env"]),
        scrub=[pattern for option in given["scrub"] for pattern in split_patterns(option)],
        bare=given["bare"],
        ticket=_ticket(given),
    )


def _ticket(given: dict[str, Any]) -> str | None:
    """Of `--output reduce/MY-TICKET` the last part."""
    output = Path(given["resume"]).absolute().parent if given["resume"] else given["output"]
    return output.name or None if output else None


def _run(plan: "ReducePlan", given: dict[str, Any]) -> "ReduceReport":
    from aorta.reduce.running import Place, reduce_workload, rehearse
    from aorta.views.pictures import AxesPicture

    listeners = options.views(given, AxesPicture())
    resume = options.resume_from(given)
    if given["dry_run"]:
        return rehearse(plan, lambda: options.executor_from(given), listeners)
    place = Place(
        given["output"] or _DEFAULT_OUTPUT,
        jobs=given["jobs"] or 1,
        resume=resume,
    )
    return reduce_workload(plan, place, lambda: options.executor_from(given), listeners)


def _show(report: "ReduceReport", *, kept: bool) -> None:
    from aorta.reduce.table import summary_lines

    for line in summary_lines(report, kept=kept):
        click.echo(line)


def _leave(report: "ReduceReport") -> None:
    if report.resume_command:
        say(f"aorta: {report.ending.detail}; go on with: {report.resume_command}")
    raise click.exceptions.Exit(int(report.exit_code))


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
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
def init(**given: Any) -> None:
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

    place, words = given["output"], tuple(given["command_line"])
    if not words:
        raise UsageError(
            "give the command behind --, such as: aorta reduce init -- python train.py"
        )
    if place.exists() and not given["force"]:
        raise UsageError(
            "is already there; give another name with -o, or --force", where=str(place)
        )
    draft = draft_spec(words, place, LocalExecutor(), given["timeout"])
    write_atomically(place, draft.text)
    if given["as_json"]:
        content = {"path": str(place), "failed": draft.failed, "oracle": draft.oracle}
        print_json("aorta.reduce.init/1", content)
    say(f"the command {draft.said}; wrote {place}")
    if not draft.failed:
        say("its exit was 0: check that the oracle says what the failure looks like")
    if draft.axes:
        say(f"next: aorta reduce --spec {place} --output reduce/MY-TICKET")
        return
    say(
        f"nothing was found that may shrink; let the command read a variable or a file by its name, such as "
        f'"$NUM_STEPS", and name it under axes: in {place}; then: aorta reduce --spec {place}'
    )
