"""Options that several verbs share, spelt once."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from aorta.core.durations import parse_duration
from aorta.core.errors import AortaError, UsageError

if TYPE_CHECKING:  # pydantic costs more than all of click: not for a help text
    from aorta.core.oracle import Oracle
    from aorta.engine.events import Listener
    from aorta.engine.session import Resume
    from aorta.executors import Executor
    from aorta.views.lines import Describe
    from aorta.views.pictures import Picture

Command = TypeVar("Command", bound=Callable[..., Any])


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


def talking(command: Command) -> Command:
    """`--json`, `-v`, `-q`."""
    return _stacked(
        click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout."),
        click.option("-v", "--verbose", is_flag=True, help="Every event, one line each."),
        click.option("-q", "--quiet", is_flag=True, help="No progress."),
    )(command)


def running_trials(command: Command) -> Command:
    """Where trials run, how many at once, how long."""
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
    )(command)


def warmable(command: Command) -> Command:
    return click.option(
        "--cold",
        is_flag=True,
        help="Start every trial from nothing, also where its imports could be kept warm.",
    )(command)


def watchable(command: Command) -> Command:
    return click.option(
        "--watch", is_flag=True, help="Serve this run's page live to this machine; says where."
    )(command)


def views(
    given: dict[str, Any],
    picture: "Picture | None" = None,
    *,
    describe: "Describe | None" = None,
    each: "Callable[[Listener], Listener]" = lambda view: view,
) -> "list[Listener]":
    """Everything that shows a run while it goes on, as `talking` and `watchable` ask for. `each` may wrap a view."""
    from aorta.views.lines import describe_values, progress_for

    shown = progress_for(
        describe or describe_values,
        picture=picture,
        quiet=given["quiet"],
        verbose=given["verbose"],
    )
    wrapped = [each(view) for view in shown]
    if not given["watch"]:
        return wrapped
    from aorta.report.watch.beside import WatchBeside

    beside = WatchBeside(wrapped, lambda words: click.echo(words, err=True))
    click.get_current_context().call_on_close(beside.close)
    return [beside]


def resumable(command: Command) -> Command:
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
    )(command)


def resume_from(given: dict[str, Any]) -> "Resume | None":
    """What the options of `resumable` ask for; None for a run that begins."""
    from aorta.engine.session import Resume

    resume = given["resume"]
    if resume is None:
        if given["salvage"]:
            raise UsageError("--salvage is for a run that is gone on with; give --resume too")
        return None
    return Resume(Path(resume) if resume else None, given["salvage"])


def environment_layers(command: Command) -> Command:
    return _stacked(
        click.option("--environment", default="local", show_default=True),
        click.option("--mitigations", default="none", show_default=True, help="Comma-separated."),
        click.option(
            "--mitigations-file",
            "mitigations_files",
            type=click.Path(path_type=Path),
            multiple=True,
            help="A sidecar file of further mitigations and environments; repeatable.",
        ),
        click.option(
            "--extra-env",
            multiple=True,
            metavar="NAME=VALUE",
            help="A variable on top of every other layer; repeatable.",
        ),
    )(command)


def oracle_options(command: Command) -> Command:
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
    )(command)


def oracle_from(given: dict[str, Any]) -> "Oracle | None":
    """The oracle that the options describe, taken out of `given`; None if they describe none."""
    names = {
        "exit_codes": "codes",
        "pattern": "pattern",
        "stream": "stream",
        "with_failure": "with_failure",
        "silent_for": "silent_for",
        "longer_than": "longer_than",
        "metric_file": "file",
        "metric_key": "key",
        "above": "above",
        "below": "below",
    }
    kind = given.pop("oracle_kind")
    content = {
        key: value
        for option, key in names.items()
        if (value := given.pop(option)) not in (None, False)
    }
    if "codes" in content:
        content["codes"] = [_whole_number(code) for code in content["codes"].split(",")]
    if kind is None and not content:
        return None
    return _validated(
        {"kind": kind or ("regex" if "pattern" in content else "exit_code"), **content}
    )


def _validated(content: dict[str, Any]) -> "Oracle":
    from aorta.core.documents import StrictModel, validated
    from aorta.core.oracle import Oracle

    class OracleOptions(StrictModel):
        oracle: Oracle

    return validated(OracleOptions, {"oracle": content}, file="command line").oracle


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"--exit-codes: {text!r} is not a number; expected such as 1,3") from None


def executor_from(given: dict[str, Any]) -> "Executor":
    """The executor that the options of `running_trials` describe."""
    from aorta.core.trial import Resources
    from aorta.executors.choosing import ExecutorOptions, open_executor
    from aorta.runtimes.devices import visible_devices

    resources = Resources(
        gpus=given["gpus_per_trial"],
        cpus=given["cpus_per_task"],
        nodes=given["nodes"],
        tasks_per_node=given["tasks_per_node"],
        partition=given["partition"],
        account=given["account"],
        time_limit=given["time_limit"],
    )
    here = given["executor"] == "local"  # elsewhere the scheduler knows and hands out the devices
    devices = visible_devices(_devices_found()) if resources.gpus and here else []
    cold = given.get("cold", True)  # a verb without the option has no warm trials
    options = ExecutorOptions(given["jobs"], resources, devices, given["ray_address"], cold)
    return open_executor(given["executor"], options)


def _devices_found() -> list[str]:
    from aorta.probe import collect_env

    return [str(index) for index, _ in enumerate(collect_env().gpus)]


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
