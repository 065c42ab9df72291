"""`aorta triage`: which mitigation, in which environment, makes it stop?"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aorta.cli import options
from aorta.cli.printing import print_json, say, show_plan
from aorta.core.errors import Exit

if TYPE_CHECKING:
    from aorta.triage.matrix import MatrixReport
    from aorta.triage.optimize import StackReport


def _names(listed: str | None) -> tuple[str, ...] | None:
    return None if listed is None else options.names_from(listed)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Which mitigation, in which environment, makes the failure stop?"""


@command.command("run", context_settings={"allow_interspersed_args": False})
@click.option("--recipe", type=click.Path(path_type=Path), metavar="FILE", help="A recipe.")
@click.option("--mode", type=click.Choice(["matrix", "optimize"]), default="matrix")
@click.option("--workload", metavar="NAME", help="A registered workload.")
@click.option("--mitigation-axis", metavar="A,B", help="The mitigations; none is the baseline.")
@click.option("--environment-axis", metavar="E,image:REF", help="The environments.")
@click.option("--trials", type=click.IntRange(1), help="At most so many a cell.")
@click.option("--steps", type=click.IntRange(1), help="Steps of one trial.")
@click.option("--ticket", help="Groups the results.")
@click.option("--baseline-cell", metavar="CELL")
@click.option("--confound-threshold", type=float, metavar="RATIO", help="[default: 1.15]")
@options.mitigations_files
@options.oracle_options
@options.running_trials
@options.output("triage_results", "--output-dir", "output_dir")
@options.resumable
@click.option("--strict", is_flag=True, help="Exit 1 if a cell did not run.")
@click.option("--dry-run", "only_say", is_flag=True, help="Say what would run, and write nothing.")
@options.displaying
@options.command_words("[-- COMMAND...]")
def run(
    strict: bool,
    only_say: bool,
    mitigation_axis: str | None,
    environment_axis: str | None,
    **given: Any,
) -> None:
    """Run a workload or any command in every cell of a matrix, or find the smallest stack that
    works.

    \b
    aorta triage run --recipe examples/triage/half_nan.yaml
    aorta triage run --recipe r.yaml -- torchrun --nproc-per-node 8 train.py
    aorta triage run --workload half_nan --mitigation-axis none,omp_one_thread \\
        --environment-axis local --trials 8 --steps 200
    aorta triage run --mode optimize --trials 20 -- python train.py

    \b
    Exit codes: 0 done; 1 --strict and a cell did not run; 2 the command line or recipe is wrong;
    3 no answer (the baseline did not run; optimize: nothing helps); 5 infrastructure, or no trial
    could tell; 130/143 interrupted (resume with --resume).
    """
    from aorta.triage.request import TriageRequest
    from aorta.triage.running import dry_run, triage

    display = options.display_from(given)
    request = TriageRequest(
        mitigation_axis=_names(mitigation_axis),
        environment_axis=_names(environment_axis),
        oracle=options.oracle_from(given),
        executor=options.executor_from(given),
        resume=options.resume_from(given),
        **given,
    )
    if only_say:
        show_plan("triage", **dry_run(request), as_json=display.as_json, echo=click.echo)
        return
    report = triage(request, display.listeners, say)
    _show(report, as_json=display.as_json)
    _leave(report, strict=strict)


@command.command("list-mitigations")
@options.mitigations_files
@options.as_json
def list_mitigations(mitigations_files: tuple[Path, ...], as_json: bool) -> None:
    """Every mitigation: who defines it, what it sets, where it is read."""
    from aorta.registry.mitigations import mitigation_rows

    _list(
        "mitigations",
        mitigation_rows(mitigations_files),
        ["NAME", "SOURCE", "ENV", "PLATFORMS"],
        as_json,
    )


@command.command("list-environments")
@options.mitigations_files
@options.as_json
def list_environments(mitigations_files: tuple[Path, ...], as_json: bool) -> None:
    """Every environment: who defines it, and what it is."""
    from aorta.registry.environments import environment_rows

    rows = [
        {**row, "DOCKER": row["IMAGE"] or "-", "VENV": row["VENV"] or "-"}
        for row in environment_rows(mitigations_files)
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


def _show(report: "MatrixReport | StackReport", *, as_json: bool) -> None:

    if as_json:
        print_json(report.SCHEMA, report.to_json())
    else:
        click.echo(report.page.read_text(encoding="utf-8"))
        click.echo(f"results: {report.run_dir}")


def _leave(report: "MatrixReport | StackReport", *, strict: bool) -> None:
    from aorta.triage.matrix import MatrixReport

    run_dir, exit_code = report.run_dir, report.exit_code
    if go_on := report.ending.how_to_go_on("triage run", run_dir):
        say(f"aorta: {go_on}")
    elif report.no_answer:
        say(f"aorta: {run_dir}: {report.no_answer}")
    elif strict and isinstance(report, MatrixReport) and report.did_not_run:
        say(f"aorta: did not run: {', '.join(report.did_not_run)}")
        exit_code = Exit.FAILED
    raise click.exceptions.Exit(int(exit_code))
