"""Options that several verbs share, spelt once.

A group is a decorator of plain click options and a function `..._from(given)` beside it, which
takes the group's values out of what click gave and returns one typed value. `typed` does so with
every group of a verb; what it returns is called like the fields of the verb's request:

    RunRequest(**typed(given))
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aorta.core.durations import parse_duration
from aorta.core.errors import AortaError, UsageError

if TYPE_CHECKING:  # pydantic costs more than all of click: not for a help text
    from aorta.core.oracle import Oracle
    from aorta.engine.events import Listener
    from aorta.engine.session import Resume
    from aorta.executors.choosing import ExecutorChoice
    from aorta.registry.environments import EnvironmentLayers
    from aorta.views.lines import Describe

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]


class Duration(click.ParamType[float]):
    """Seconds, or `30s`, `10m`, `4h`."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            return parse_duration(value)
        except AortaError as wrong:
            self.fail(wrong.message, param, ctx)


def stacked(*options: Decorator) -> Decorator:
    """Several options as one decorator, in the order in which the help shows them."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def unless(option: str, name: str, help: str) -> Decorator:  # noqa: A002
    """A flag that turns off what is on: `name` is False where it is given."""
    return click.option(option, name, is_flag=True, flag_value=False, default=True, help=help)


def output(default: str, *names: str) -> Decorator:
    """Where the run directory is made."""
    return click.option(
        *("--output", *names),
        type=click.Path(path_type=Path),
        default=Path(default),
        show_default=True,
        help="Directory of the results.",
    )


as_json = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")


Given = dict[str, Any]
"""What click gave a command: a value for each of its options, by name."""


@dataclass(frozen=True)
class Display:
    """How a command speaks while it runs and at its end."""

    as_json: bool
    verbose: bool
    quiet: bool
    watch: bool

    def listeners(
        self,
        *,
        describe: "Describe | None" = None,
        each: "Callable[[Listener], Listener]" = lambda view: view,
    ) -> "Sequence[Listener]":
        """Everything that shows a run while it goes on. `each` may wrap a view."""
        from aorta.views.lines import describe_values, progress_for

        shown = progress_for(describe or describe_values, quiet=self.quiet, verbose=self.verbose)
        wrapped = [each(view) for view in shown]
        if not self.watch:
            return wrapped
        return [*wrapped, _live_page()]


def _live_page() -> "Listener":
    """One for all stages of a command."""
    from aorta.cli.printing import say
    from aorta.report.building import LivePage

    context = click.get_current_context()
    if "aorta.page" not in context.meta:
        page = context.meta["aorta.page"] = LivePage(say)
        context.call_on_close(page.close)
    found: Listener = context.meta["aorta.page"]
    return found


def a_line_a_trial(listener: "Listener") -> "Listener":
    """For a verb whose every verdict is one trial: one line says it all. A live view keeps both."""
    from aorta.engine.events import Event, PointDecided
    from aorta.views.lines import PlainProgress

    def listen(event: Event) -> None:
        if not isinstance(event, PointDecided):
            listener(event)

    return listen if isinstance(listener, PlainProgress) else listener


def displaying_with(*verbose: str, help: str) -> Decorator:  # noqa: A002
    """`--watch`, `--json`, `-v`, `-q`, where `-v` means something else too."""
    return stacked(
        click.option("--watch", is_flag=True, help="Keep RUN_DIR/report.html as the run is."),
        as_json,
        click.option(*verbose, "verbose", is_flag=True, help=help),
        click.option("-q", "--quiet", is_flag=True, help="No progress."),
    )


displaying = displaying_with("-v", "--verbose", help="Every event, one line each.")


def display_from(given: Given) -> Display:
    return Display(**{name: given.pop(name) for name in ("as_json", "verbose", "quiet", "watch")})


_NODES_OF_A_TRIAL = click.option(
    "--nodes", type=click.IntRange(1), default=1, help="Of one trial (slurm)."
)
_TRIALS = (
    click.option("--timeout", type=Duration(), help="Of one trial: seconds, or 30s, 10m, 4h."),
    click.option(
        "--jobs",
        type=click.IntRange(1),
        help="Trials side by side.  [default: 1; on a cluster: what fits]",
    ),
    click.option("--executor", default="local", show_default=True, help="local, slurm or ray."),
    click.option("--ray-address", help="An existing Ray cluster."),
    click.option(
        "--gpus-per-trial",
        "gpus",
        type=click.IntRange(0),
        default=0,
        help="Give each trial this many devices of its own (on each of its nodes).",
    ),
    click.option("--cpus-per-task", "cpus", type=click.IntRange(1), default=1, help="slurm, ray."),
    click.option("--tasks-per-node", type=click.IntRange(1), default=1, help="Ranks (slurm)."),
    click.option("--partition", help="slurm."),
    click.option("--account", help="slurm."),
    click.option("--time-limit", type=Duration(), help="Of one job (slurm)."),
    click.option("--job-per-trial", is_flag=True, help="One job a trial, not workers (slurm)."),
    click.option(
        "--warm/--cold",
        default=False,
        help="Fork trials from a process that has imported their libraries (local).",
    ),
)
running_trials = stacked(*_TRIALS, _NODES_OF_A_TRIAL)
"""How long one trial may take; where trials run and how many at once."""

placed_trials = stacked(*_TRIALS)
"""The same for a verb that chooses the nodes of every trial itself."""

_RESOURCES = (*("gpus", "cpus", "tasks_per_node"), *("partition", "account", "time_limit"))


def executor_from(given: Given) -> "ExecutorChoice":
    from aorta.core.trial import Resources
    from aorta.executors.choosing import ExecutorChoice

    nodes = given.pop("nodes", 1)
    resources = Resources(nodes=nodes, **{name: given.pop(name) for name in _RESOURCES})
    return ExecutorChoice(
        given.pop("executor"),
        given.pop("jobs"),
        resources,
        given.pop("ray_address"),
        **{name: given.pop(name) for name in ("warm", "job_per_trial")},
    )


resumable = click.option(
    "--resume",
    is_flag=False,
    flag_value="",
    metavar="[RUN_DIR]",
    help="Go on with a run; without a value, the newest unfinished one.",
)


def resume_from(given: Given) -> "Resume | None":
    """Which run to go on with; None for one that begins."""
    from aorta.engine.session import Resume

    resume = given.pop("resume")
    if resume and not Path(resume).is_dir():
        raise UsageError("there is no run directory of this name", where=str(resume))
    return None if resume is None else Resume(Path(resume) if resume else None)


mitigations_files = click.option(
    "--mitigations-file",
    "mitigations_files",
    type=click.Path(path_type=Path),
    multiple=True,
    help="A sidecar file of further mitigations and environments; repeatable.",
)


environment_layers = stacked(
    click.option("--environment", default="local", show_default=True),
    click.option("--mitigations", default="none", show_default=True, help="Comma-separated."),
    mitigations_files,
    click.option(
        "--extra-env",
        multiple=True,
        metavar="NAME=VALUE",
        help="A variable on top of every other layer; repeatable.",
    ),
)


def layers_from(given: Given) -> "EnvironmentLayers":
    """What is put around the workload. The defaults leave what a spec says."""
    from aorta.registry.environments import NO_MITIGATION, EnvironmentLayers

    environment, names = given.pop("environment"), names_from(given.pop("mitigations"))
    return EnvironmentLayers(
        environment=None if environment == "local" else environment,
        mitigations=None if names == (NO_MITIGATION,) else names,
        mitigations_files=given.pop("mitigations_files"),
        extra_env=variables_from(given.pop("extra_env")),
    )


oracle_options = stacked(
    click.option(
        "--oracle",
        "oracle_kind",
        type=click.Choice(["exit_code", "regex", "hang", "metric"]),
        help="What counts as the failure.  [default: exit_code]",
    ),
    click.option("--exit-codes", "codes", metavar="N[,N]", help="exit_code: only these."),
    click.option("--pattern", help="regex, metric: a regular expression."),
    click.option("--stream", type=click.Choice(["stdout", "stderr", "both"])),
    click.option(
        "--with-failure", is_flag=True, default=None, help="regex: and the exit is non-zero."
    ),
    click.option("--silent-for", metavar="DURATION", help="hang: no output for this long."),
    click.option("--longer-than", metavar="DURATION", help="hang: runs longer than this."),
    click.option("--metric-file", "file", help="metric: a JSON file the command writes."),
    click.option("--metric-key", "key", help="metric: the dotted key in that file."),
    click.option("--above", type=float, help="metric: a larger number is the failure."),
    click.option("--below", type=float, help="metric: a smaller number is the failure."),
)
_ORACLE_KEYS = (
    *("pattern", "stream", "with_failure", "silent_for", "longer_than"),
    *("file", "key", "above", "below"),
)


def oracle_from(given: Given) -> "Oracle | None":
    """What counts as the failure; None if nothing says so. Options are a spec's keys."""
    kind, codes = given.pop("oracle_kind"), given.pop("codes")
    content = {name: given.pop(name) for name in _ORACLE_KEYS}
    if codes is not None:
        content["codes"] = [_whole_number(code) for code in codes.split(",")]
    content = {key: value for key, value in content.items() if value is not None}
    if kind is None and not content:
        return None
    from aorta.core.oracle import oracle_from_json

    kind = kind or ("regex" if "pattern" in content else "exit_code")
    return oracle_from_json({"kind": kind, **content}, file="command line")


# What a request calls the value of a group, an option by which the group is known, and its maker.
_GROUPS: tuple[tuple[str, str, Callable[[Given], Any]], ...] = (
    ("layers", "extra_env", layers_from),
    ("oracle", "oracle_kind", oracle_from),
    ("executor", "executor", executor_from),
    ("resume", "resume", resume_from),
)


def typed(given: Given) -> Given:
    """What click gave, with one typed value for each group of options that the verb has."""
    made = {name: make(given) for name, option, make in _GROUPS if option in given}
    return {**given, **made}


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"--exit-codes: {text!r} is not a number; expected such as 1,3") from None


def command_words(metavar: str) -> Decorator:
    """Everything behind the options, or behind `--`, as `command`."""
    return click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar=metavar)


class DirectoryFirst(click.Command):
    """A run directory may stand before the options; every other word begins the command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        rest = super().parse_args(ctx, args)
        words = ctx.params["command"]
        if len(words) < 2 or "--" in given or not Path(words[0]).is_dir():
            return rest
        ctx.params.clear()
        options_first = [*given[: -len(words)], *words[1:], words[0]]
        rest = super().parse_args(ctx, options_first)
        if ctx.params["command"] != words[:1]:
            raise UsageError(f"{words[0]} is a directory; give it alone, or a command behind --")
        return rest


def directory_from(given: Given) -> Path | None:
    """The directory that stands in place of a command, which is then empty; None for a command."""
    words = given["command"]
    if len(words) != 1 or not Path(words[0]).is_dir():
        return None
    given["command"] = ()
    return Path(words[0])


def names_from(listed: str) -> tuple[str, ...]:
    """The names of a comma-separated option."""
    return tuple(name.strip() for name in listed.split(",") if name.strip())


def variables_from(assignments: tuple[str, ...], option: str = "--extra-env") -> dict[str, str]:
    """`NAME=VALUE` options as variables. A wrong one is not echoed: it may hold a secret."""
    from aorta.core.names import check_variable

    variables = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise UsageError(f"{option}: expected NAME=VALUE; the = is missing")
        variables[name] = check_variable(name, value, where=option)
    return variables
