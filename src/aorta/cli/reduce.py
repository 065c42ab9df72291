"""`aorta reduce`: what is the smallest workload that still fails?"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aorta.cli import options
from aorta.cli.printing import print_json, say
from aorta.core.errors import InfrastructureError, UsageError

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

    plan = make_plan(_spec(given), _overrides(given))
    report = _run(plan, given)
    if given["as_json"]:
        from aorta.reduce.report import SCHEMA

        print_json(SCHEMA, report.to_json())
    else:
        _show(report, kept=not given["dry_run"])
    _leave(report)


def _spec(given: dict[str, Any]) -> "SpecFile":
    from aorta.reduce.spec import load_spec

    spec, workload = given["spec"], given["workload"]
    if given["dry_run"] and given["resume"] is not None:
        raise UsageError("--dry-run leaves nothing to resume; give one of them")
    if spec is None and workload is None and given["resume"]:
        spec, workload = _begun_with(Path(given["resume"]))
    if (spec is None) == (workload is None):
        raise UsageError("give either --spec FILE or --workload NAME")
    if spec is not None:
        return load_spec(spec)
    return _declared(str(workload))


def _declared(workload: str) -> "SpecFile":
    from aorta.reduce.spec import workload_spec
    from aorta.workloads.discovery import COMMAND, check_workload, load_workload

    if workload == COMMAND:
        raise UsageError("a command declares no axes; write a spec: aorta reduce init -- COMMAND")
    check_workload(workload)
    return workload_spec(workload, load_workload(workload).axes)


def _begun_with(run_dir: Path) -> tuple[Path | None, str | None]:
    """The spec or workload that a run directory was begun with."""
    from aorta.engine.rundir import RunDir

    file = RunDir(run_dir).about().get("spec")
    if not isinstance(file, str):
        raise UsageError("this run does not say what it was begun with; give --spec FILE")
    name = file.removeprefix("workload ")
    return (None, name) if name != file else (Path(file), None)


def _overrides(given: dict[str, Any]) -> "Overrides":
    from aorta.core.scrub import split_patterns
    from aorta.reduce.plan import NO_MITIGATION, Overrides

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
    )


def _run(plan: "ReducePlan", given: dict[str, Any]) -> "ReduceReport":
    from aorta.engine.pictures import AxesPicture
    from aorta.reduce.running import Place, reduce_workload, rehearse

    listeners = options.views(given, AxesPicture())
    resume = given["resume"]
    if given["dry_run"]:
        return rehearse(plan, lambda: options.executor_from(given), listeners)
    place = Place(
        given["output"] or _DEFAULT_OUTPUT,
        resuming=resume is not None,
        resume=Path(resume) if resume else None,
    )
    return reduce_workload(plan, place, lambda: options.executor_from(given), listeners)


def _show(report: "ReduceReport", *, kept: bool) -> None:
    from aorta.reduce.table import summary_lines

    for line in summary_lines(report, kept=kept):
        click.echo(line)


def _leave(report: "ReduceReport") -> None:
    from aorta.engine.events import Reason

    if report.ending.reason is Reason.INFRASTRUCTURE:
        raise InfrastructureError(report.ending.detail)
    if report.resume_command:
        say(f"aorta: {report.ending.detail}; go on with: {report.resume_command}")
    raise click.exceptions.Exit(int(report.exit_code))
