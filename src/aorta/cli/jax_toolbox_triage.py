"""`jax-toolbox-triage`: bisection with the flags of JAX-Toolbox' tool, which mean the same."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from aorta.bisect.containers.build import WORKLOAD
from aorta.bisect.metric import metric_named
from aorta.bisect.request import BisectRequest
from aorta.bisect.spec import (
    JAX_PACKAGES,
    BisectSpec,
    ContainersSpec,
    PackageSpec,
    Runtime,
    pairs_from,
    script_package,
    versions_from,
)
from aorta.cli import options
from aorta.cli.bisect import MountsOrVerbose, bisect_and_show
from aorta.cli.printing import say
from aorta.core.documents import validated
from aorta.core.errors import UsageError
from aorta.engine.session import Resume

_NAME = "jax-toolbox-triage"
_WHERE = "command line"
_COMPULSORY = frozenset({"xla", "jax"})
_TRANSFORMER_ENGINE = "transformer-engine"
_RUNTIMES: Mapping[str, Runtime] = {"docker": "docker", "pyxis": "pyxis", "plugin": "docker"}
_NO_COMPILATION_CACHE = {"JAX_ENABLE_COMPILATION_CACHE": "false"}


class _UnderItsName(MountsOrVerbose):
    """Its name in the usage; options may be cut short as far as they stay clear, as there."""

    def with_long_names(self, args: list[str]) -> list[str]:
        return [self._whole(word) for word in super().with_long_names(args)]

    def _whole(self, word: str) -> str:
        name, equals, value = word.partition("=")
        options = [option for parameter in self.params for option in parameter.opts]
        meant = [option for option in options if option.startswith(name)]
        is_cut = name.startswith("--") and name not in options and len(meant) == 1
        return f"{meant[0]}{equals}{value}" if is_cut else word

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(_NAME, " ".join(self.collect_usage_pieces(ctx)))


@click.command(
    cls=_UnderItsName,
    context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]},
)
@click.option("--container", metavar="NAME", help="A family of dated containers, as jax.")
@click.option("--container-url-template", metavar="FMT", help="With {container} and {date}.")
@click.option("--start-date", metavar="DATE", help="The first date tried on the way back.")
@click.option("--end-date", metavar="DATE", help="A date that fails.  [default: the newest]")
@click.option("--threshold-days", type=click.IntRange(1), default=1, show_default=True)
@click.option("--passing-container", metavar="URL", help="Skip the search of containers.")
@click.option("--failing-container", metavar="URL", help="The same for the other end.")
@click.option("--passing-versions", metavar="PKG:VERSION[,...]", help="Of the passing end.")
@click.option("--failing-versions", metavar="PKG:VERSION[,...]", help="Of the failing end.")
@click.option("--passing-commits", metavar="PKG:VERSION[,...]", help="Deprecated.")
@click.option("--failing-commits", metavar="PKG:VERSION[,...]", help="Deprecated.")
@click.option("--skip-precondition-checks", is_flag=True, help="Trust the dates and the bad end.")
@click.option("--confirmation-iterations", type=click.IntRange(0), default=1, show_default=True)
@click.option("--metric-name", help="Judge by this number of metrics.json.")
@click.option("--passing-metric", type=float, multiple=True, help="A good value; repeatable.")
@click.option("--failing-metric", type=float, multiple=True, help="A bad value; repeatable.")
@click.option("--bazel-cache", metavar="DIR|URL", help="For builds of JAX and XLA.")
@click.option("--build-scripts-path", metavar="DIR", help="In the image: has installPKG.sh.")
@click.option("--cherry-pick", metavar="PKG:COMMIT[,...]", help="Build fixes, where they apply.")
@click.option("--override-remotes", metavar="PKG:URL[,...]", help="Fetch from these.")
@click.option("--main-branch", default="main", show_default=True, help="Of histories that fork.")
@click.option("--workaround-buggy-container", multiple=True, metavar="PKG", help="Its parent.")
@click.option("--exclude-transformer-engine", is_flag=True, help="It is neither built nor blamed.")
@click.option("--transformer-engine-ccache-env", multiple=True, metavar="K=V", help="Repeatable.")
@click.option("--container-mount", multiple=True, metavar="SRC:DST", help="Also -v; repeatable.")
@click.option(
    "--container-runtime",
    type=click.Choice(["docker", "pyxis", "local", "plugin"], case_sensitive=False),
    default="docker",
    show_default=True,
)
@click.option("--container-registry", metavar="R[:PREFIX]", help="Of plugin: push images there.")
@click.option("--output-prefix", type=click.Path(path_type=Path), help="[default: triage-<now>]")
@click.option("--restart", is_flag=True, help="Go on with the run in --output-prefix.")
@options.displaying_with("--verbose", help="Also -v. Every event, one line each.")
@click.argument("test_command", nargs=-1, required=True)
def command(
    test_command: tuple[str, ...],
    passing_commits: str | None,
    failing_commits: str | None,
    **given: Any,
) -> None:
    """Find the container, then the commit of JAX, XLA or another package, that broke a test.

    \b
    jax-toolbox-triage --container jax test-jax.sh //tests:nn_test_gpu
    jax-toolbox-triage --passing-container A --failing-container B -v $PWD:/work /work/test.sh

    The flags are those of JAX-Toolbox; exit codes and further options: `aorta bisect --help`.
    """
    display = options.display_from(given)
    for side, commits in (("passing", passing_commits), ("failing", failing_commits)):
        if commits and given[f"{side}_versions"]:
            raise UsageError(f"--{side}-commits is another name of --{side}-versions: give one")
        if commits:
            say(f"--{side}-commits is deprecated: it is called --{side}-versions now")
            given[f"{side}_versions"] = commits
        given[f"{side}_versions"] = versions_from(given[f"{side}_versions"], f"--{side}-versions")
    given["cherry_pick"] = pairs_from(given["cherry_pick"], "--cherry-pick")
    given["override_remotes"] = versions_from(given["override_remotes"], "--override-remotes")
    given["container_runtime"] = given["container_runtime"].lower()
    bisect_and_show(_request(SimpleNamespace(test_command=test_command, **given)), display)


# -- its flags as a request of ours: by its name each with its value; what is empty was not given


def _request(flags: SimpleNamespace) -> BisectRequest:
    """What it would do, as a bisection. Raises `UsageError` for what it refuses."""
    _refuse_unsupported(flags)
    local = flags.container_runtime == "local"
    spec: dict[str, Any] = {
        "command": flags.test_command,
        "packages": tuple(_packages(flags)),
        "containers": None if local else _containers(flags),
        "in_place": local,
        "env": _NO_COMPILATION_CACHE,
        "skip_precondition_checks": flags.skip_precondition_checks,
        "confirmations": flags.confirmation_iterations,
    }
    if flags.metric_name:
        spec["oracle"] = metric_named(flags.metric_name, flags.passing_metric, flags.failing_metric)
    stamp = datetime.now().astimezone().strftime("%Y-%m-%d-%H-%M-%S")
    prefix = flags.output_prefix or Path(f"triage-{stamp}")
    return BisectRequest(
        spec=validated(BisectSpec, spec, file=_WHERE),
        output_prefix=prefix,
        resume=Resume(prefix.absolute()) if flags.restart else None,
        summary=True,
    )


def _refuse_unsupported(flags: SimpleNamespace) -> None:
    dated = bool(flags.container or flags.start_date or flags.end_date)
    if flags.container_runtime not in {*_RUNTIMES, "local"}:
        raise UsageError(f"--container-runtime: there is no {flags.container_runtime!r}")
    if flags.restart and not flags.output_prefix:
        raise UsageError("--restart goes with the --output-prefix of the run to go on with")
    if flags.container_registry and flags.container_runtime != "plugin":
        raise UsageError("--container-registry is for --container-runtime plugin")
    if flags.container_runtime == "pyxis" and not flags.bazel_cache:
        raise UsageError("with --container-runtime pyxis a --bazel-cache must be named")
    _check_metric(flags, dated=dated)
    if flags.container_runtime != "local":
        _check_ends(flags, dated=dated)
    elif dated or flags.passing_container or flags.failing_container:
        raise UsageError("options of containers mean nothing with --container-runtime local")
    elif not (flags.passing_versions and flags.failing_versions):
        raise UsageError(
            "--container-runtime local takes --passing-versions and --failing-versions"
        )


def _check_metric(flags: SimpleNamespace, *, dated: bool) -> None:
    if flags.metric_name and dated:
        raise UsageError("--metric-name is only supported in version-level search")
    if flags.metric_name and not (flags.passing_metric and flags.failing_metric):
        raise UsageError(
            "You should pass seed metric values with --metric-name: by --passing-metric and "
            "--failing-metric"
        )
    if (flags.passing_metric or flags.failing_metric) and not flags.metric_name:
        raise UsageError("--metric-name must be passed if --passing-metric or --failing-metric is")


def _check_ends(flags: SimpleNamespace, *, dated: bool) -> None:
    ends = {
        "passing": (flags.passing_container, flags.passing_versions),
        "failing": (flags.failing_container, flags.failing_versions),
    }
    known = [bool(image or versions) for image, versions in ends.values()]
    if any(known) and dated:
        raise UsageError("give either dates of a --container, or explicit containers and versions")
    if any(known) != all(known):
        raise UsageError("what is given of the passing end is to be given of the failing one too")
    if not any(known) and not flags.container:
        raise UsageError("--container must be passed for the container-level search")
    if all(known) and not (flags.passing_container or flags.failing_container):
        raise UsageError("pass at least one of --passing-container and --failing-container")
    for side, (image, versions) in ends.items():
        if all(known) and not image and not versions.keys() >= _COMPULSORY:
            raise UsageError(f"--{side}-versions must name jax and xla without --{side}-container")


def _containers(flags: SimpleNamespace) -> dict[str, Any]:
    given: dict[str, Any] = {
        **{name: getattr(flags, name) for name in ("start_date", "end_date", "threshold_days")},
        "family": flags.container,
        "runtime": _RUNTIMES[flags.container_runtime],
        "url_template": flags.container_url_template,
        "passing": flags.passing_container,
        "failing": flags.failing_container,
        "mounts": flags.container_mount,
        "bazel_cache": flags.bazel_cache,
        "build_scripts": flags.build_scripts_path,
        "plugin": flags.container_runtime == "plugin",
        "registry": flags.container_registry,
    }
    return vars(validated(ContainersSpec, given, file=_WHERE))


def _packages(flags: SimpleNamespace) -> Iterator[PackageSpec]:
    preset = {package.name: package for package in JAX_PACKAGES}
    if flags.exclude_transformer_engine:
        del preset[_TRANSFORMER_ENGINE]
    elif flags.transformer_engine_ccache_env:
        words = " ".join(flags.transformer_engine_ccache_env)
        built = {"build": f"env {words} build-te.sh --ccache"}
        preset[_TRANSFORMER_ENGINE] = preset[_TRANSFORMER_ENGINE].model_copy(update=built)
    named = {*flags.passing_versions, *flags.failing_versions}
    if flags.container_runtime == "local":  # what is not named stays as it is
        preset = {name: with_sources(package) for name, package in preset.items() if name in named}
    for name, package in preset.items():
        given = {
            "good": flags.passing_versions.get(name),
            "bad": flags.failing_versions.get(name),
            "cherry_pick": tuple(commit for of, commit in flags.cherry_pick if of == name),
            "remote": flags.override_remotes.get(name),
            "main_branch": flags.main_branch,
            "good_parent": name in flags.workaround_buggy_container,
            "needs": tuple(need for need in package.needs if need in preset),
        }
        yield package.model_copy(update=given)
    yield from (_library(flags, name) for name in sorted(named - preset.keys()))


def with_sources(package: PackageSpec) -> PackageSpec:
    """The images have sources at the path, or at `PATH-source`."""
    beside = f"{package.path}-source"
    is_beside = not Path(str(package.path)).exists() and Path(beside).exists()
    return package.model_copy(update={"path": beside}) if is_beside else package


def _library(flags: SimpleNamespace, name: str) -> PackageSpec:
    ends = (flags.passing_versions.get(name), flags.failing_versions.get(name))
    versions = tuple(dict.fromkeys(version for version in ends if version))
    if name == WORKLOAD and flags.container_runtime == "plugin":
        found = PackageSpec(name=name, versions=versions, env="AORTA_WORKLOAD_VERSION")
    elif flags.build_scripts_path:
        found = script_package(name, flags.build_scripts_path, versions)
    else:
        raise UsageError(f"package {name} is not one of jax, xla, …: name --build-scripts-path")
    return found.model_copy(update={"good": ends[0], "bad": ends[1]})
