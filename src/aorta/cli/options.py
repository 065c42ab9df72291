"""Options that several verbs share, spelt once. A group of them reaches the command as one typed
value.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aorta._verbs import request_of
from aorta.core.durations import parse_duration
from aorta.core.errors import AortaError, UsageError

if TYPE_CHECKING:  # pydantic costs more than all of click: not for a help text
    from aorta.core.oracle import Oracle
    from aorta.engine.events import Listener
    from aorta.engine.session import Resume
    from aorta.executors.choosing import ExecutorChoice
    from aorta.registry.environments import EnvironmentLayers
    from aorta.views.lines import Describe
    from aorta.views.pictures import Picture

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


def _stacked(*options: Decorator) -> Decorator:
    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def unless(option: str, name: str, help: str) -> Decorator:  # noqa: A002
    """A flag that turns off what is on: `name` is False where it is given."""
    return click.option(option, name, is_flag=True, flag_value=False, default=True, help=help)


def grouped(name: str, make: Command, *options: Decorator) -> Decorator:
    """These options reach the command as one value, `name`: what `make` makes of theirs."""

    def decorate(command: Command) -> Command:
        own: list[str] = []

        @wraps(command)
        def given(*args: Any, **said: Any) -> Any:
            value = make(**{each: said.pop(each) for each in own})
            return command(*args, **{name: value}, **said)

        before = len(getattr(given, "__click_params__", ()))
        _stacked(*options)(given)
        own += [each.name for each in getattr(given, "__click_params__", ())[before:]]
        return given

    return decorate


def asking(verb: str, **read: Callable[[Any], object]) -> Decorator:
    """What is called like a field of the verb's request reaches the command as one value,
    `request`. `read` makes of what a command line holds what such a field does. To stand next to
    the function: the groups of options have been made then.
    """

    def decorate(command: Command) -> Command:
        @wraps(command)
        def given(*args: Any, **said: Any) -> Any:
            kind = request_of(verb)
            asked = {each.name: said.pop(each.name) for each in fields(kind) if each.name in said}
            asked |= {name: make(asked[name]) for name, make in read.items()}
            return command(*args, request=kind(**asked), **said)

        return given

    return decorate


@dataclass(frozen=True)
class Display:
    """How a command speaks while it runs and at its end."""

    as_json: bool
    verbose: bool
    quiet: bool
    watch: bool

    def listeners(
        self,
        picture: "Picture | None" = None,
        *,
        describe: "Describe | None" = None,
        each: "Callable[[Listener], Listener]" = lambda view: view,
    ) -> "Sequence[Listener]":
        """Everything that shows a run while it goes on. `each` may wrap a view."""
        from aorta.views.lines import describe_values, progress_for

        shown = progress_for(
            describe or describe_values, picture=picture, quiet=self.quiet, verbose=self.verbose
        )
        wrapped = [each(view) for view in shown]
        if not self.watch:
            return wrapped
        from aorta.report.watch import WatchBeside

        beside = WatchBeside(wrapped, lambda words: click.echo(words, err=True))
        click.get_current_context().call_on_close(beside.close)
        return [beside]


def displaying_with(*verbose: str, help: str) -> Decorator:  # noqa: A002
    """`--watch`, `--json`, `-v`, `-q` as `display`, where `-v` means something else too."""
    return grouped(
        "display",
        Display,
        click.option(
            "--watch", is_flag=True, help="Serve this run's page live to this machine; says where."
        ),
        click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout."),
        click.option(*verbose, "verbose", is_flag=True, help=help),
        click.option("-q", "--quiet", is_flag=True, help="No progress."),
    )


displaying = displaying_with("-v", "--verbose", help="Every event, one line each.")
"""The same, where it does not."""


def _executor_choice(
    executor: str, jobs: int | None, ray_address: str | None, cold: bool, **resources: Any
) -> "ExecutorChoice":
    from aorta.core.trial import Resources
    from aorta.executors.choosing import ExecutorChoice

    return ExecutorChoice(executor, jobs, Resources(**resources), ray_address, cold)


running_trials = _stacked(
    click.option("--timeout", type=Duration(), help="Of one trial: seconds, or 30s, 10m, 4h."),
    grouped(
        "executor",
        _executor_choice,
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
        click.option(
            "--cpus-per-task", "cpus", type=click.IntRange(1), default=1, help="slurm, ray."
        ),
        click.option("--nodes", type=click.IntRange(1), default=1, help="Of one trial (slurm)."),
        click.option("--tasks-per-node", type=click.IntRange(1), default=1, help="Ranks (slurm)."),
        click.option("--partition", help="slurm."),
        click.option("--account", help="slurm."),
        click.option("--time-limit", type=Duration(), help="Of one trial's job (slurm)."),
        click.option(
            "--cold",
            is_flag=True,
            help="Start every trial from nothing, also where its imports could be kept warm.",
        ),
    ),
)
"""Where trials run and how many at once as `executor`; how long one may take as `timeout`."""


def _resume(resume: str | None, salvage: bool) -> "Resume | None":
    from aorta.engine.session import Resume

    if resume is None and salvage:
        raise UsageError("--salvage is for a run that is gone on with; give --resume too")
    return None if resume is None else Resume(Path(resume) if resume else None, salvage)


resumable = grouped(
    "resume",
    _resume,
    click.option(
        "--resume",
        is_flag=False,
        flag_value="",
        metavar="[RUN_DIR]",
        help="Go on with a run; without a value, the newest unfinished one.",
    ),
    click.option(
        "--salvage",
        is_flag=True,
        help="With --resume: go on with what can be read of a damaged journal.",
    ),
)
"""Which run to go on with as `resume`; None for one that begins."""


mitigations_files = click.option(
    "--mitigations-file",
    "mitigations_files",
    type=click.Path(path_type=Path),
    multiple=True,
    help="A sidecar file of further mitigations and environments; repeatable.",
)


def _layers(
    environment: str,
    mitigations: str,
    mitigations_files: tuple[Path, ...],
    extra_env: tuple[str, ...],
) -> "EnvironmentLayers":
    from aorta.registry.environments import NO_MITIGATION, EnvironmentLayers

    names = names_from(mitigations)
    return EnvironmentLayers(
        environment=None if environment == "local" else environment,
        mitigations=None if names == (NO_MITIGATION,) else names,
        mitigations_files=mitigations_files,
        extra_env=variables_from(extra_env),
    )


environment_layers = grouped(
    "layers",
    _layers,
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
"""What is put around the workload as `layers`. The defaults leave what a spec says."""


def _oracle(oracle_kind: str | None, codes: str | None, **content: Any) -> "Oracle | None":
    if codes is not None:
        content["codes"] = [_whole_number(code) for code in codes.split(",")]
    said = {key: value for key, value in content.items() if value is not None}
    if oracle_kind is None and not said:
        return None
    from aorta.core.oracle import oracle_from_json

    kind = oracle_kind or ("regex" if "pattern" in said else "exit_code")
    return oracle_from_json({"kind": kind, **said}, file="command line")


oracle_options = grouped(
    "oracle",
    _oracle,
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
"""What counts as the failure as `oracle`; None if nothing says so. But for the kind, each is
called like its key in a spec.
"""


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"--exit-codes: {text!r} is not a number; expected such as 1,3") from None


def command_words(metavar: str) -> Decorator:
    """Everything behind the options, or behind `--`, as `command`."""
    return click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar=metavar)


def directory_or_command(name: str, metavar: str) -> Decorator:
    """A directory alone as the field `name`, any other words as `command`."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def given(*args: Any, **said: Any) -> Any:
            words = said["command"]
            if len(words) == 1 and Path(words[0]).is_dir():
                said |= {name: Path(words[0]), "command": ()}
            return command(*args, **said)

        return command_words(metavar)(given)

    return decorate


def names_from(listed: str) -> tuple[str, ...]:
    """The names of a comma-separated option."""
    return tuple(name.strip() for name in listed.split(",") if name.strip())


def variables_from(assignments: tuple[str, ...], option: str = "--extra-env") -> dict[str, str]:
    """`NAME=VALUE` options as variables. What is not of that form is not echoed: it may hold a
    secret.
    """
    from aorta.core.names import check_variable

    variables = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise UsageError(f"{option}: expected NAME=VALUE; the = is missing")
        variables[name] = check_variable(name, value, where=option)
    return variables


def pairs_from(texts: tuple[str, ...], option: str, form: str) -> dict[str, str]:
    """What is given as `NAME=DIR`, by name."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise UsageError(f"{option}: found {text!r}, expected {form}")
        pairs[name] = value
    return pairs
