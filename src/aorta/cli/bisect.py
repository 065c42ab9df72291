"""`aorta bisect`: which container, and which commit of which package, broke it?"""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aorta.cli import options
from aorta.cli.printing import print_json, say, say_above
from aorta.core.errors import InfrastructureError, UsageError

if TYPE_CHECKING:
    from aorta.bisect.findings import Findings
    from aorta.bisect.run import Request
    from aorta.bisect.spec import BisectSpec
    from aorta.engine.events import Listener
    from aorta.engine.session import Resume

_SCHEMA = "aorta.bisect/1"


class _MountsOrVerbose(click.Command):
    """`-v SRC:DST` mounts, as container engines have it; a bare `-v` is the usual --verbose. Neither is read in the
    command, which begins after `--`, or with the first word that is no option.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = len(args) - self._command_length(ctx, _with_long_names(args))
        return super().parse_args(ctx, [*_with_long_names(args)[:own], *args[own:]])

    def _command_length(self, ctx: click.Context, args: list[str]) -> int:
        try:
            found, _, _ = self.make_parser(ctx).parse_args(list(args))
        except click.UsageError:  # told by whoever parses for good
            return 0
        command = found.get("command_line")  # without a command click has a mark of its own here
        return len(command) if isinstance(command, (list, tuple)) else 0


def _with_long_names(args: list[str]) -> list[str]:
    return [
        word if word != "-v" else "--container-mount" if ":" in follower else "--verbose"
        for word, follower in zip(args, [*args[1:], ""], strict=True)
    ]


@click.command(cls=_MountsOrVerbose, context_settings={"allow_interspersed_args": False})
@click.option("--good", metavar="REV", help="A revision without the failure.")
@click.option("--bad", metavar="REV", help="A revision with it.  [default: HEAD]")
@click.option("--good-env", metavar="FILE|VENV", help="An environment without the failure.")
@click.option("--bad-env", metavar="FILE|VENV", help="Requirements, a lock, an env.json, a venv.")
@click.option("--index-url", metavar="URL", help="The package index.  [default: as pip has it]")
@click.option("--extra-index-url", multiple=True, metavar="URL", help="Another one; repeatable.")
@click.option("--find-links", multiple=True, metavar="DIR|URL", help="More files; repeatable.")
@click.option("--no-index", is_flag=True, help="No index, only --find-links.")
@click.option("--pre", is_flag=True, help="Pre-releases and nightly builds are candidates too.")
@click.option("--yanked", is_flag=True, help="Yanked releases are candidates too.")
@click.option(
    "--repository", "repositories", multiple=True, metavar="NAME=DIR", help="Whose commits to name."
)
@click.option("--spec", "spec_file", type=click.Path(path_type=Path), help="A bisect.yaml.")
@click.option("--find-fix", is_flag=True, help="Find the commit that repaired it: --good is newer.")
@click.option("--first-parent", is_flag=True, help="Name the merge, not the commit it merged.")
@click.option("--path", "paths", multiple=True, help="Only commits that touch it; repeatable.")
@click.option("--skip", "skipped", multiple=True, metavar="REV|A..B", help="Never try these.")
@click.option("--confidence", type=float, help="Stop at this probability.  [default: 0.95]")
@click.option("--container", "family", metavar="FAMILY", help="Bisect the dated containers of it.")
@click.option(
    "--container-runtime", "runtime", type=click.Choice(["docker", "podman", "pyxis", "host"])
)
@click.option("--container-url-template", "url_template", help="With {container} and {date}.")
@click.option("--start-date", metavar="YYYY-MM-DD", help="The first date tried on the way back.")
@click.option("--end-date", metavar="YYYY-MM-DD", help="A date that fails.  [default: the newest]")
@click.option("--threshold-days", type=click.IntRange(1), help="Stop at containers this close.")
@click.option("--passing-container", "passing", metavar="URL")
@click.option("--failing-container", "failing", metavar="URL")
@click.option("--passing-versions", metavar="PKG:VERSION[,...]")
@click.option("--failing-versions", metavar="PKG:VERSION[,...]")
@click.option("--skip-precondition-checks", is_flag=True, help="Take both ends as they are said.")
@click.option(
    "--same-failure", is_flag=True, help="A failure unlike the first is neither good nor bad."
)
@click.option("--bazel-cache", metavar="DIR|URL", help="For builds inside containers.")
@click.option("--shm-size", help="Shared memory of a container.  [default: 1g]")
@click.option(
    "--container-mount", "mounts", multiple=True, metavar="SRC:DST", help="Also -v; repeatable."
)
@click.option("--metric-name", help="Judge by this number in the probe's metrics.json.")
@click.option("--passing-metric", type=float, multiple=True, help="A good sample; repeatable.")
@click.option("--failing-metric", type=float, multiple=True, help="A bad sample; repeatable.")
@options.oracle_options
@options.running_trials
@click.option("--build-timeout", type=options.Duration(), help="Of one build.")
@click.option("--max-trials", type=click.IntRange(1), help="Stop after this many.")
@click.option("--max-time", type=options.Duration(), help="Stop after this long.")
@click.option("--extra-env", multiple=True, metavar="NAME=VALUE", help="For the test; repeatable.")
@click.option("--output-prefix", type=click.Path(path_type=Path), help="Where everything goes.")
@click.option("--cache-dir", type=click.Path(path_type=Path), help="Outcomes shared between runs.")
@click.option("--no-cache", is_flag=True, help="Neither use nor keep outcomes of other runs.")
@click.option(
    "--no-checks",
    is_flag=True,
    help="No trials to check the answer: its sides, partner, older break.",
)
@options.resumable
@options.watchable
@click.option("--dry-run", is_flag=True, help="Print the plan, and run nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--verbose", is_flag=True, help="Also -v. Every event, one line each.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="[--] [COMMAND...]")
def command(**given: Any) -> None:
    """Find the change that brought a failure, however flaky it is, in git history, dated containers or versions.

    The command fails as the oracle says (by default: any exit but 0); exit 125 skips a state.

    \b
    aorta bisect --good v1.2 --bad HEAD -- pytest -x tests/test_nn.py
    aorta bisect --good-env last-week.txt --bad-env .venv -- python train.py
    aorta bisect --container jax -- test-jax.sh //tests:nn_test_gpu
    aorta bisect --spec bisect.yaml --jobs 8

    \b
    Exit codes: 0 found, or a range or pair that holds it; 2 the command line or spec is wrong;
    3 no answer: did not reproduce, inconsistent ends, never good; 4 stopped by a budget;
    5 infrastructure; 130/143 interrupted (go on with --resume).
    """
    request = _request(given)
    if given["dry_run"]:
        _dry_run(request, as_json=given["as_json"])
        return
    from aorta.bisect.entry import bisect

    findings = bisect(request)
    if given["as_json"]:
        print_json(_SCHEMA, findings.document())
    _show(findings, quiet=given["quiet"])
    raise click.exceptions.Exit(findings.exit_code)


def _request(given: dict[str, Any]) -> "Request":
    from aorta.bisect.run import Request, kept_request
    from aorta.bisect.watching import short
    from aorta.engine.question import Budget
    from aorta.views.pictures import BeliefPicture

    resume = options.resume_from(given)
    prefix = _prefix(given, resume)
    picture = BeliefPicture()
    asked = kept_request(prefix) if resume and not _asks_something(given) else _asked(given)
    return Request(
        **asked,
        prefix=prefix,
        executor=lambda: options.executor_from(given),
        listeners=lambda: options.views(given, picture, describe=short, each=_a_line_a_trial),
        say=(lambda _: None) if given["quiet"] else say_above,
        resume=resume,
        budget=Budget(given["max_trials"], given["max_time"]),
        on_belief=picture.follow,
    )


def _asks_something(given: dict[str, Any]) -> bool:
    """Without any of these, a run that is gone on with is asked what it was asked before."""
    names = ("command_line", "spec_file", "good", "bad", "family", "passing", "failing", "good_env")
    return any(given[name] for name in names)


def _asked(given: dict[str, Any]) -> dict[str, Any]:
    from aorta.bisect.cache import default_cache

    spec = _spec(given)
    containers = spec.containers
    cache = given["cache_dir"] or default_cache(
        knows_what_was_read=containers is not None and not containers.mounts
    )
    return {
        "spec": spec,
        "directory": _directory(given),
        "checks": not given["no_checks"],
        "cache": None if given["no_cache"] else cache,
    }


def _a_line_a_trial(listener: "Listener") -> "Listener":
    """Here every verdict is one trial, so one of the two lines says it all. A live view keeps both."""
    from aorta.engine.events import Event, PointSettled
    from aorta.views.lines import PlainProgress

    def listen(event: Event) -> None:
        if not isinstance(event, PointSettled):
            listener(event)

    return listen if isinstance(listener, PlainProgress) else listener


def _directory(given: dict[str, Any]) -> Path:
    """Paths in a spec are relative to the spec."""
    return given["spec_file"].resolve().parent if given["spec_file"] else Path.cwd()


def _prefix(given: dict[str, Any], resume: "Resume | None") -> Path:
    from datetime import datetime

    from aorta.engine.rundir import find_resumable

    prefix: Path | None = given["output_prefix"]
    if resume is None:
        stamp = datetime.now().astimezone().strftime("%Y-%m-%d-%H-%M-%S")
        return (prefix or Path(f"bisect-{stamp}")).absolute()
    found = resume.run or prefix
    if found is None:
        found = find_resumable(Path.cwd(), "bisect").path
        say(f"going on with {found}")
    return found.absolute()


def _spec(given: dict[str, Any]) -> "BisectSpec":
    """The spec file, with what the command line says on top of it."""
    from aorta.bisect.metric import metric_named
    from aorta.bisect.spec import BisectSpec, load_spec
    from aorta.core.documents import validated

    spec = load_spec(given["spec_file"]) if given["spec_file"] else BisectSpec()
    oracle = options.oracle_from(given)
    if given["metric_name"]:
        oracle = metric_named(
            given["metric_name"], given["passing_metric"], given["failing_metric"]
        )
    told = {
        "command": tuple(given["command_line"]) or None,
        "oracle": oracle,
        "confidence": given["confidence"],
        "find_fix": given["find_fix"] or None,
        "first_parent": given["first_parent"] or None,
        "same_failure": given["same_failure"] or None,
        "skip_precondition_checks": given["skip_precondition_checks"] or None,
        "timeout": given["timeout"],
        "build_timeout": given["build_timeout"],
        "packages": _packages(spec, given),
        "containers": _containers(spec, given),
        "environments": _environments(spec, given),
    }
    content = {name: value for name, value in vars(spec).items() if name != "env"}
    content |= {name: value for name, value in told.items() if value is not None}
    content["env"] = {**spec.env, **options.variables_from(given["extra_env"])}
    return validated(BisectSpec, content, file="command line")


def _packages(spec: "BisectSpec", given: dict[str, Any]) -> tuple[Any, ...] | None:
    from aorta.bisect.spec import PackageSpec, versions_from

    packages = list(spec.packages)
    if given["good"] or given["bad"]:
        if packages or not given["good"]:
            raise UsageError("--good and --bad go together, for one repository and without a spec")
        top = Path.cwd()
        packages = [
            PackageSpec(
                name=_package_name(top),
                path=".",
                good=given["good"],
                bad=given["bad"] or "HEAD",
                paths=given["paths"],
                skip=given["skipped"],
            )
        ]
    elif given["repositories"]:
        packages += [_repository(text) for text in given["repositories"]]
    elif given["paths"] or given["skipped"]:
        raise UsageError("--path and --skip go with --good; in a spec they are keys of a package")
    sides = {
        side: versions_from(given[f"{word}_versions"], f"--{word}-versions")
        for side, word in (("good", "passing"), ("bad", "failing"))
    }
    for side, versions in sides.items():
        known = {package.name for package in packages}
        for name in versions.keys() - known:
            packages.append(PackageSpec(name=name, path=f"/opt/{name}"))
        packages = [
            package.model_copy(update={side: versions.get(package.name, getattr(package, side))})
            for package in packages
        ]
    return tuple(packages) or None


def _repository(text: str) -> Any:
    from aorta.bisect.spec import PackageSpec

    name, equals, path = text.partition("=")
    if not equals or not name or not path:
        raise UsageError(f"--repository: found {text!r}, expected NAME=DIR")
    return PackageSpec(name=name, path=path)


def _environments(spec: "BisectSpec", given: dict[str, Any]) -> Any | None:
    from aorta.bisect.spec import EnvironmentsSpec
    from aorta.core.documents import validated

    told = {side: given[f"{side}_env"] for side in ("good", "bad") if given[f"{side}_env"]}
    names = ("index_url", "extra_index_url", "find_links", "no_index", "pre", "yanked")
    how = {name: given[name] for name in names if given[name]}
    if not told and not spec.environments:
        if how or given["repositories"]:
            raise UsageError("the options of a package index go with --good-env and --bad-env")
        return None
    before = vars(spec.environments) if spec.environments else {}
    if {"good", "bad"} - {*before, *told}:
        raise UsageError("--good-env and --bad-env go together")
    if given["good"] or given["bad"]:
        raise UsageError("give either --good and --bad or --good-env and --bad-env")
    return validated(EnvironmentsSpec, {**before, **told, **how}, file="command line")


def _package_name(directory: Path) -> str:
    from aorta.bisect.git import Repository
    from aorta.core.names import slug

    return slug(Path(Repository.on_host(directory).where).name).lstrip(".-") or "repository"


def _containers(spec: "BisectSpec", given: dict[str, Any]) -> Any | None:
    from aorta.bisect.spec import ContainersSpec
    from aorta.core.documents import validated

    names = (
        "family",
        "runtime",
        "url_template",
        "start_date",
        "end_date",
        "threshold_days",
        "passing",
        "failing",
        "bazel_cache",
        "shm_size",
    )
    told: dict[str, Any] = {name: given[name] for name in names if given[name] is not None}
    if given["mounts"]:
        told["mounts"] = given["mounts"]
    if told.get("runtime") == "host" and len(told) == 1:
        return None
    if not told:
        return spec.containers
    before = vars(spec.containers) if spec.containers else {}
    return validated(ContainersSpec, {**before, **told}, file="command line")


def _dry_run(request: "Request", *, as_json: bool) -> None:
    from aorta.bisect.entry import plan_lines, plan_of

    plan = plan_of(request)
    if as_json:
        print_json("aorta.bisect.plan/1", plan)
    for line in plan_lines(plan):
        say(line)


def _show(findings: "Findings", *, quiet: bool) -> None:
    from aorta.bisect.report import summary_lines
    from aorta.core.exits import Exit

    for line in summary_lines(findings):
        if not quiet:
            say(line)
    if findings.exit_code == Exit.INFRASTRUCTURE:
        raise InfrastructureError(
            findings.warnings[-1] if findings.warnings else "trials were lost"
        )
    if findings.status == "partial":
        say(f"aorta: go on with: aorta bisect --resume {shlex.quote(findings.output_dir)}")
