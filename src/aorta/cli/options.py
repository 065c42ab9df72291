"""Options that several verbs share, spelt once. A group of them reaches the command as one typed value."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aorta.core.durations import parse_duration
from aorta.core.errors import AortaError, UsageError

if TYPE_CHECKING:  # pydantic costs more than all of click: not for a help text
    from aorta.core.oracle import Oracle
    from aorta.engine.events import Listener
    from aorta.views.lines import Describe
    from aorta.views.pictures import Picture

Command = Callable[..., Any]


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


def _stacked(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

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


def displaying(command: Command) -> Command:
    """`--watch`, `--json`, `-v`, `-q` as `display`."""
    return displaying_with("-v", "--verbose", help="Every event, one line each.")(command)


def displaying_with(*verbose: str, help: str) -> Callable[[Command], Command]:  # noqa: A002
    """The same, where `-v` means something else too."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def given(
            *args: Any, watch: bool, as_json: bool, verbose: bool, quiet: bool, **others: Any
        ) -> Any:
            return command(*args, display=Display(as_json, verbose, quiet, watch), **others)

        return _stacked(
            click.option(
                "--watch",
                is_flag=True,
                help="Serve this run's page live to this machine; says where.",
            ),
            click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout."),
            click.option(*verbose, "verbose", is_flag=True, help=help),
            click.option("-q", "--quiet", is_flag=True, help="No progress."),
        )(given)

    return decorate


def running_trials(command: Command) -> Command:
    """Where trials run and how many at once as `executor`; how long one may take as `timeout`."""

    @wraps(command)
    def given(
        *args: Any,
        jobs: int | None,
        executor: str,
        ray_address: str | None,
        gpus_per_trial: int,
        cpus_per_task: int,
        nodes: int,
        tasks_per_node: int,
        partition: str | None,
        account: str | None,
        time_limit: float | None,
        cold: bool,
        **others: Any,
    ) -> Any:
        from aorta.core.trial import Resources
        from aorta.executors.choosing import ExecutorChoice

        resources = Resources(
            gpus=gpus_per_trial,
            cpus=cpus_per_task,
            nodes=nodes,
            tasks_per_node=tasks_per_node,
            partition=partition,
            account=account,
            time_limit=time_limit,
        )
        choice = ExecutorChoice(executor, jobs, resources, ray_address, cold)
        return command(*args, executor=choice, **others)

    return _stacked(
        click.option(
            "--jobs",
            type=click.IntRange(1),
            help="Trials side by side.  [default: 1; on a cluster: what fits]",
        ),
        click.option("--timeout", type=Duration(), help="Of one trial: seconds, or 30s, 10m, 4h."),
        click.option("--executor", default="local", show_default=True, help="local, slurm or ray."),
        click.option("--ray-address", help="An existing Ray cluster."),
        click.option(
            "--gpus-per-trial",
            type=click.IntRange(0),
            default=0,
            help="Give each trial this many devices of its own (on each of its nodes).",
        ),
        click.option("--cpus-per-task", type=click.IntRange(1), default=1, help="slurm, ray."),
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
    )(given)


def resumable(command: Command) -> Command:
    """Which run to go on with as `resume`; None for one that begins."""

    @wraps(command)
    def given(*args: Any, resume: str | None, salvage: bool, **others: Any) -> Any:
        from aorta.engine.session import Resume

        if resume is None and salvage:
            raise UsageError("--salvage is for a run that is gone on with; give --resume too")
        run = None if resume is None else Resume(Path(resume) if resume else None, salvage)
        return command(*args, resume=run, **others)

    return _stacked(
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
    )(given)


def mitigations_files(command: Command) -> Command:
    return click.option(
        "--mitigations-file",
        "mitigations_files",
        type=click.Path(path_type=Path),
        multiple=True,
        help="A sidecar file of further mitigations and environments; repeatable.",
    )(command)


def environment_layers(command: Command) -> Command:
    """What is put around the workload as `layers`. The defaults leave what a spec says."""

    @wraps(command)
    def given(
        *args: Any,
        environment: str,
        mitigations: str,
        mitigations_files: tuple[Path, ...],
        extra_env: tuple[str, ...],
        **others: Any,
    ) -> Any:
        from aorta.registry.environments import NO_MITIGATION, EnvironmentLayers

        names = names_from(mitigations)
        layers = EnvironmentLayers(
            environment=None if environment == "local" else environment,
            mitigations=None if names == (NO_MITIGATION,) else names,
            mitigations_files=mitigations_files,
            extra_env=variables_from(extra_env),
        )
        return command(*args, layers=layers, **others)

    return _stacked(
        click.option("--environment", default="local", show_default=True),
        click.option("--mitigations", default="none", show_default=True, help="Comma-separated."),
        mitigations_files,
        click.option(
            "--extra-env",
            multiple=True,
            metavar="NAME=VALUE",
            help="A variable on top of every other layer; repeatable.",
        ),
    )(given)


def oracle_options(command: Command) -> Command:
    """What counts as the failure as `oracle`; None if nothing says so."""

    @wraps(command)
    def given(
        *args: Any,
        oracle_kind: str | None,
        exit_codes: str | None,
        pattern: str | None,
        stream: str | None,
        with_failure: bool,
        silent_for: str | None,
        longer_than: str | None,
        metric_file: str | None,
        metric_key: str | None,
        above: float | None,
        below: float | None,
        **others: Any,
    ) -> Any:
        said = {
            "codes": [_whole_number(code) for code in exit_codes.split(",")]
            if exit_codes is not None
            else None,
            "pattern": pattern,
            "stream": stream,
            "with_failure": with_failure or None,
            "silent_for": silent_for,
            "longer_than": longer_than,
            "file": metric_file,
            "key": metric_key,
            "above": above,
            "below": below,
        }
        content = {key: value for key, value in said.items() if value is not None}
        return command(*args, oracle=_oracle(oracle_kind, content), **others)

    return _stacked(
        click.option(
            "--oracle",
            "oracle_kind",
            type=click.Choice(["exit_code", "regex", "hang", "metric"]),
            help="What counts as the failure.  [default: exit_code]",
        ),
        click.option("--exit-codes", metavar="N[,N]", help="exit_code: only these."),
        click.option("--pattern", help="regex, metric: a regular expression."),
        click.option("--stream", type=click.Choice(["stdout", "stderr", "both"])),
        click.option("--with-failure", is_flag=True, help="regex: and the exit is non-zero."),
        click.option("--silent-for", metavar="DURATION", help="hang: no output for this long."),
        click.option("--longer-than", metavar="DURATION", help="hang: runs longer than this."),
        click.option("--metric-file", help="metric: a JSON file the command writes."),
        click.option("--metric-key", help="metric: the dotted key in that file."),
        click.option("--above", type=float, help="metric: a larger number is the failure."),
        click.option("--below", type=float, help="metric: a smaller number is the failure."),
    )(given)


def _oracle(kind: str | None, content: dict[str, Any]) -> "Oracle | None":
    if kind is None and not content:
        return None
    from aorta.core.oracle import oracle_from_json

    chosen = kind or ("regex" if "pattern" in content else "exit_code")
    return oracle_from_json({"kind": chosen, **content}, file="command line")


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"--exit-codes: {text!r} is not a number; expected such as 1,3") from None


def names_from(listed: str) -> tuple[str, ...]:
    """The names of a comma-separated option."""
    return tuple(name.strip() for name in listed.split(",") if name.strip())


def variables_from(assignments: tuple[str, ...]) -> dict[str, str]:
    """`NAME=VALUE` options as variables. What is not of that form is not echoed: it may hold a secret."""
    from aorta.core.names import check_variable

    variables = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise UsageError("--extra-env: expected NAME=VALUE; the = is missing")
        variables[name] = check_variable(name, value, where="--extra-env")
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
