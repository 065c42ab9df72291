"""`aorta diverge`: at which operation do the numbers part?"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aorta.cli import options
from aorta.cli.printing import print_json, say
from aorta.core.errors import UsageError

if TYPE_CHECKING:
    from aorta.diverge.running import DivergePlan
    from aorta.diverge.sides import GoodSide, Sides


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--bad-env", multiple=True, metavar="NAME=VALUE", help="A variable of the bad side.")
@click.option(
    "--good-env", multiple=True, metavar="NAME=VALUE", help="A variable of the good side."
)
@click.option("--good-mitigations", default="", help="Comma-separated, for the good side.")
@click.option("--good", "revision", metavar="REV", help="The good side is this revision.")
@click.option("--good-device", type=click.Choice(["cpu"]), help="The good side runs there.")
@click.option(
    "--good-dtype",
    type=click.Choice(["float32", "float64"]),
    help="The good side computes at least in this precision.",
)
@click.option("--between-ranks", is_flag=True, help="Compare the ranks of one run instead.")
@click.option("--steps", metavar="A:B", help="Record these steps only.")
@click.option(
    "--mitigations-file",
    "mitigations_files",
    type=click.Path(path_type=Path),
    multiple=True,
    help="A sidecar file of further mitigations; repeatable.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of both sides.")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("diverge"),
    show_default=True,
    help="Directory of the results.",
)
@options.running_trials
@options.resumable
@options.watchable
@click.option("--dry-run", is_flag=True, help="Say what would run, and write nothing.")
@options.talking
@click.argument(
    "command_line", nargs=-1, type=click.UNPROCESSED, metavar="[RUN_DIR] [-- COMMAND...]"
)
def command(**given: Any) -> None:
    """Run both sides of a program with the same seeds and name the first operation whose result differs.

    \b
    aorta diverge --good-mitigations tf32_off -- python train.py
    aorta diverge --good-dtype float64 --steps 0:20 -- python train.py
    aorta diverge --good v2.3 -- python train.py
    aorta diverge -- python train.py                 # first NaN, and: does it repeat its own numbers?
    aorta diverge triage_results/T-1/command/2026-11-02T10-00-00

    \b
    Exit codes: 0 an operation was found, or none differs; 2 the command line is wrong;
    3 nothing was recorded, or the sides do different things; 5 infrastructure;
    130/143 interrupted (resume with --resume).
    """
    plan, words = _plan(given)
    if given["dry_run"]:
        for line in words:
            say(line)
        say("nothing was run")
        return
    from aorta.diverge.output import SCHEMA
    from aorta.diverge.running import run_diverge
    from aorta.engine.events import Reason

    report = run_diverge(
        plan,
        lambda: options.executor_from(given),
        lambda: options.views(given),
        resume=options.resume_from(given),
    )
    if report.ended is not Reason.DONE:
        say(
            f"aorta: {report.ended.value}; go on with: aorta diverge --resume {report.run_dir} ... "
            "and the same options"
        )
    if given["as_json"]:
        print_json(SCHEMA, report.to_json())
    else:
        for line in report.lines():
            click.echo(line)
    raise click.exceptions.Exit(report.exit_code)


def _plan(given: dict[str, Any]) -> "tuple[DivergePlan, list[str]]":
    from aorta.diverge.running import DivergePlan
    from aorta.diverge.sides import Sides, parse_steps

    good = _good(given)
    known = _known_sides(given)
    if given["between_ranks"] and good.is_given:
        raise UsageError("--between-ranks compares the ranks of one run; remove the good side")

    def sides(scratch: Path) -> Sides:
        if good.is_given:
            return Sides(known.bad, good.of(known.bad, scratch))
        return Sides(known.bad, None) if given["between_ranks"] else known

    about = {
        "command": [known.bad.workload, dict(known.bad.config), str(known.bad.base)],
        "bad": sorted(known.bad.env.items()),
        "good": repr(good if good.is_given else known.good),
        "steps": given["steps"],
        "seed": given["seed"],
        "between ranks": given["between_ranks"],
    }
    plan = DivergePlan(
        sides=sides,
        output=given["output"],
        about=about,
        steps=parse_steps(given["steps"]),
        between_ranks=given["between_ranks"],
        timeout=given["timeout"],
        seed=given["seed"],
    )
    return plan, _words(known, good)


def _known_sides(given: dict[str, Any]) -> "Sides":
    from aorta.diverge.sides import Side, Sides, sides_of_run, with_env

    words = list(given["command_line"])
    bad_env = options.variables_from(given["bad_env"])
    if len(words) == 1 and Path(words[0]).is_dir():
        found = sides_of_run(Path(words[0]))
        return Sides(with_env(found.bad, bad_env) if bad_env else found.bad, found.good)
    if not words:
        raise UsageError("give a run directory, or a command behind --")
    side = Side.of_command(words, Path.cwd())
    return Sides(with_env(side, bad_env), None)


def _good(given: dict[str, Any]) -> "GoodSide":
    from aorta.core.layers import stack_mitigations
    from aorta.diverge.sides import GoodSide
    from aorta.registry.mitigations import get_mitigation

    names = [name.strip() for name in given["good_mitigations"].split(",") if name.strip()]
    files = given["mitigations_files"]
    return GoodSide(
        env=options.variables_from(given["good_env"]),
        mitigations=stack_mitigations([(n, get_mitigation(n, files).env) for n in names]),
        revision=given["revision"],
        device=given["good_device"],
        dtype=given["good_dtype"],
    )


def _words(known: "Sides", good: "GoodSide") -> list[str]:
    import shlex

    told = known.bad.config.get("command", known.bad.workload)
    bad = known.bad.words or "as it is"
    other = good.words if good.is_given else known.good.words if known.good else ""
    return [
        f"command  {told if isinstance(told, str) else shlex.join(told)}",
        f"  in     {known.bad.base}",
        f"  bad    {bad}",
        f"  good   {other or 'none: first NaN, and whether it repeats its own numbers'}",
    ]
