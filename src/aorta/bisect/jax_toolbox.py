"""The command line of JAX-Toolbox' triage tool as a request of ours.

In: its flags, each with the meaning it has there. Out: a `BisectRequest`; combinations that it
refuses raise `UsageError`.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from aorta.bisect.containers.build import WORKLOAD
from aorta.bisect.metric import metric_named
from aorta.bisect.report import SUMMARY
from aorta.bisect.request import BisectRequest
from aorta.bisect.spec import (
    JAX_PACKAGES,
    BisectSpec,
    ContainersSpec,
    PackageSpec,
    Runtime,
    script_package,
)
from aorta.core.documents import validated
from aorta.core.errors import UsageError
from aorta.engine.session import Resume

_WHERE = "command line"
_COMPULSORY = frozenset({"xla", "jax"})
_TRANSFORMER_ENGINE = "transformer-engine"
_RUNTIMES: Mapping[str, Runtime] = {"docker": "docker", "pyxis": "pyxis", "plugin": "docker"}
_NO_COMPILATION_CACHE = {"JAX_ENABLE_COMPILATION_CACHE": "false"}


Flags = SimpleNamespace
"""By its name each flag with the value it has on the command line; None, and what is empty, was not
given.
"""


def request_of(options: Flags) -> BisectRequest:
    """What it would do, as a bisection. Raises `UsageError` for what it refuses."""
    _check(options)
    local = options.container_runtime == "local"
    spec: dict[str, Any] = {
        "command": options.test_command,
        "packages": tuple(_packages(options)),
        "containers": None if local else _containers(options),
        "in_place": local,
        "env": _NO_COMPILATION_CACHE,
        "skip_precondition_checks": options.skip_precondition_checks,
        "confirmations": options.confirmation_iterations,
    }
    if options.metric_name:
        spec["oracle"] = metric_named(
            options.metric_name, options.passing_metric, options.failing_metric
        )
    stamp = datetime.now().astimezone().strftime("%Y-%m-%d-%H-%M-%S")
    prefix = options.output_prefix or Path(f"triage-{stamp}")
    return BisectRequest(
        spec=validated(BisectSpec, spec, file=_WHERE),
        output_prefix=prefix,
        resume=Resume(prefix.absolute()) if options.restart else None,
        summary=True,
    )


def _check(options: Flags) -> None:
    dated = bool(options.container or options.start_date or options.end_date)
    if options.container_runtime not in {*_RUNTIMES, "local"}:
        raise UsageError(f"--container-runtime: there is no {options.container_runtime!r}")
    kept = options.output_prefix and (options.output_prefix / SUMMARY).exists()
    if options.restart and not kept:
        raise UsageError("--restart goes with the --output-prefix of a run that wrote summary.json")
    if options.container_registry and options.container_runtime != "plugin":
        raise UsageError("--container-registry is for --container-runtime plugin")
    if options.container_runtime == "pyxis" and not options.bazel_cache:
        raise UsageError("with --container-runtime pyxis a --bazel-cache must be named")
    _check_metric(options, dated=dated)
    if options.container_runtime != "local":
        _check_ends(options, dated=dated)
    elif dated or options.passing_container or options.failing_container:
        raise UsageError("options of containers mean nothing with --container-runtime local")
    elif not (options.passing_versions and options.failing_versions):
        raise UsageError(
            "--container-runtime local takes --passing-versions and --failing-versions"
        )


def _check_metric(options: Flags, *, dated: bool) -> None:
    if options.metric_name and dated:
        raise UsageError("--metric-name is only supported in version-level search")
    if options.metric_name and not (options.passing_metric and options.failing_metric):
        raise UsageError(
            "You should pass seed metric values with --metric-name: by --passing-metric and "
            "--failing-metric"
        )
    if (options.passing_metric or options.failing_metric) and not options.metric_name:
        raise UsageError("--metric-name must be passed if --passing-metric or --failing-metric is")


def _check_ends(options: Flags, *, dated: bool) -> None:
    ends = {
        "passing": (options.passing_container, options.passing_versions),
        "failing": (options.failing_container, options.failing_versions),
    }
    known = [bool(image or versions) for image, versions in ends.values()]
    if any(known) and dated:
        raise UsageError("give either dates of a --container, or explicit containers and versions")
    if any(known) != all(known):
        raise UsageError("what is given of the passing end is to be given of the failing one too")
    if not any(known) and not options.container:
        raise UsageError("--container must be passed for the container-level search")
    if all(known) and not (options.passing_container or options.failing_container):
        raise UsageError("pass at least one of --passing-container and --failing-container")
    for side, (image, versions) in ends.items():
        if all(known) and not image and not versions.keys() >= _COMPULSORY:
            raise UsageError(f"--{side}-versions must name jax and xla without --{side}-container")


def _containers(options: Flags) -> dict[str, Any]:
    given: dict[str, Any] = {
        **{name: getattr(options, name) for name in ("start_date", "end_date", "threshold_days")},
        "family": options.container,
        "runtime": _RUNTIMES[options.container_runtime],
        "url_template": options.container_url_template,
        "passing": options.passing_container,
        "failing": options.failing_container,
        "mounts": options.container_mount,
        "bazel_cache": options.bazel_cache,
        "build_scripts": options.build_scripts_path,
        "plugin": options.container_runtime == "plugin",
        "registry": options.container_registry,
    }
    return vars(validated(ContainersSpec, given, file=_WHERE))


def _packages(options: Flags) -> Iterator[PackageSpec]:
    preset = {package.name: package for package in JAX_PACKAGES}
    if options.exclude_transformer_engine:
        del preset[_TRANSFORMER_ENGINE]
    elif options.transformer_engine_ccache_env:
        words = " ".join(options.transformer_engine_ccache_env)
        built = {"build": f"env {words} build-te.sh --ccache"}
        preset[_TRANSFORMER_ENGINE] = preset[_TRANSFORMER_ENGINE].model_copy(update=built)
    named = {*options.passing_versions, *options.failing_versions}
    if options.container_runtime == "local":  # what is not named stays as it is
        preset = {name: package for name, package in preset.items() if name in named}
    for name, package in preset.items():
        given = {
            "good": options.passing_versions.get(name),
            "bad": options.failing_versions.get(name),
            "cherry_pick": tuple(options.cherry_pick.get(name, ())),
            "remote": options.override_remotes.get(name),
            "main_branch": options.main_branch,
            "good_parent": name in options.workaround_buggy_container,
            "needs": tuple(need for need in package.needs if need in preset),
        }
        yield package.model_copy(update=given)
    yield from (_library(options, name) for name in sorted(named - preset.keys()))


def _library(options: Flags, name: str) -> PackageSpec:
    ends = (options.passing_versions.get(name), options.failing_versions.get(name))
    versions = tuple(dict.fromkeys(version for version in ends if version))
    if name == WORKLOAD and options.container_runtime == "plugin":
        found = PackageSpec(name=name, versions=versions, env="AORTA_WORKLOAD_VERSION")
    elif options.build_scripts_path:
        found = script_package(name, options.build_scripts_path, versions)
    else:
        raise UsageError(f"package {name} is not one of jax, xla, …: name --build-scripts-path")
    return found.model_copy(update={"good": ends[0], "bad": ends[1]})
