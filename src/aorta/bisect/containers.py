"""The way in through containers: the two days between which it broke, then the versions inside them."""

import hashlib
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from aorta.bisect.dated import Family, family_of
from aorta.bisect.experiment import ContainersExperiment, ProbedCommand
from aorta.bisect.findings import Findings, exit_code, findings_of
from aorta.bisect.git import Repository, without_secrets
from aorta.bisect.hidden import Sides, differences_of, explain_hidden_variable
from aorta.bisect.host import git_package, library
from aorta.bisect.images import Base, Images
from aorta.bisect.imaging import ImageJob
from aorta.bisect.inside import Contents, Inside
from aorta.bisect.investigation import Outcome, investigate
from aorta.bisect.package import Package
from aorta.bisect.presets import JAX_PACKAGES, JAX_URL_TEMPLATE
from aorta.bisect.reproducing import reproduce_inside
from aorta.bisect.spec import RUNTIME_KINDS, BisectSpec, ContainersSpec, PackageSpec, day
from aorta.bisect.verb import Request, Run
from aorta.core.errors import InfrastructureError, UsageError
from aorta.core.trial import LOCAL, Environment, RuntimeKind, TrialSpec
from aorta.engine.rundir import PRIVATE
from aorta.runtimes import sweep
from aorta.runtimes.containers import ENGINES
from aorta.runtimes.engine import client_of, image_named
from aorta.search.bisection import Settings
from aorta.search.gallop import GallopBack, GallopVerdict
from aorta.search.interval import Interval

AXIS = "container"
_OF_PYXIS = (
    ("--container-remap-root", "--no-container-remap-root"),
    ("--container-writable", "--container-readonly"),
)

_VERDICTS = {
    GallopVerdict.DOES_NOT_FAIL: ("did_not_reproduce", "the newest container does not fail"),
    GallopVerdict.UNTESTABLE: ("did_not_reproduce", "the newest container cannot be tested"),
    GallopVerdict.NEVER_GOOD: ("never_good", "every container that exists fails"),
    GallopVerdict.OPEN: ("partial", "stopped while looking for a container that passes"),
}


def bisect_in_containers(request: Request) -> Findings:
    containers = request.spec.containers
    assert containers is not None
    family = _family(containers) if containers.family else None
    environment = environment_of(containers)
    with Run(request) as run:
        sweep(environments=(environment,))
        if family is None:
            sides: Sides | Findings = Sides(containers.passing, containers.failing)
        else:
            sides = _between_days(run, environment, containers, family)
        findings, outcome = (
            (sides, None)
            if isinstance(sides, Findings)
            else _between_versions(run, environment, containers, sides)
        )
        run.write(findings, outcome)
    return findings


def environment_of(containers: ContainersSpec) -> Environment:
    if containers.runtime == "host":
        raise UsageError("containers run under docker, podman or pyxis; choose --container-runtime")
    cache = containers.bazel_cache
    mounts = (f"{cache}:{cache}",) if cache and cache.startswith("/") else ()
    return Environment(
        "bisection",
        RUNTIME_KINDS[containers.runtime],
        mounts=(*_absolute(containers.mounts), *mounts),
        options=(*_defaults(containers), *containers.options),
    )


def _defaults(containers: ContainersSpec) -> Iterator[str]:
    """As in the other engines' containers: root inside, and a file system that can be written."""
    if containers.runtime == "pyxis":
        for default, opposite in _OF_PYXIS:
            if not {default, opposite} & set(containers.options):
                yield default


def plan_of_containers(spec: BisectSpec) -> dict[str, Any]:
    containers = spec.containers
    assert containers is not None
    lines: list[str] = []
    days: list[str] = []
    if containers.family:
        family = _family(containers)
        days = family.days
        lines.append(f"containers {len(days)} of {containers.family}: {days[0]} .. {days[-1]}")
        lines.append(f"           {family.images[days[-1]]} first, then back in growing steps")
    else:
        lines.append(f"containers passing {containers.passing}, failing {containers.failing}")
    lines += [f"package    {p.name} at {p.path or p.env}" for p in package_specs(spec)]
    if len(days) > 1:
        most = 2 * math.ceil(math.log2(len(days))) + 1
        lines.append(f"probes     at most {most} containers, then the versions between two of them")
    return {"days": days, "lines": lines}


def package_specs(spec: BisectSpec) -> Sequence[PackageSpec]:
    """Those of the spec, or the preset: with ends given for its packages on the command line."""
    containers = spec.containers
    preset = containers is not None and not (containers.url_template or containers.passing)
    if spec.packages and not (preset and all(p.path == f"/opt/{p.name}" for p in spec.packages)):
        return spec.packages
    given = {package.name: package for package in spec.packages}
    return [
        package.model_copy(
            update={"good": given[package.name].good, "bad": given[package.name].bad}
        )
        if package.name in given
        else package
        for package in JAX_PACKAGES
    ]


# -- days ---------------------------------------------------------------------------------------------------------


def _family(containers: ContainersSpec) -> Family:
    return family_of(containers, containers.url_template or JAX_URL_TEMPLATE)


def _between_days(
    run: Run, environment: Environment, containers: ContainersSpec, family: Family
) -> Sides | Findings:
    spec = run.request.spec
    skip = spec.skip_precondition_checks
    search = GallopBack(
        AXIS,
        family.days,
        family.ordinals,
        first=float(day(containers.start_date).toordinal()) if containers.start_date else None,
        settings=Settings(
            confidence=spec.confidence, close_enough=_within(containers.threshold_days)
        ),
        known_bad=skip and containers.end_date is not None,
        known_good=skip and containers.start_date is not None,
    )
    command = _inside(run.command(), environment, None)
    experiment = ContainersExperiment(command, lambda name: family.images[name], AXIS)
    answer = run.stages.drive("containers", search, experiment)
    interval = search.bisection.answer if search.bisection else None
    if interval is None or run.stages.interrupted:
        status, words = _VERDICTS.get(search.verdict, ("partial", answer.ending.detail))
        findings = Findings(status=status, warnings=[words])
        findings.tests = len(answer.records)
        findings.builds = len({record.point.config_key for record in answer.records})
        findings.exit_code = exit_code(status, [answer])
        return findings
    good, bad = _names(interval)
    run.say(f"the containers of {good} and {bad} differ ({interval.mass:.1%})")
    return Sides(family.images[good], family.images[bad], interval.mass, (good, bad))


def _within(days: int) -> Callable[[Interval], bool]:
    def close_enough(interval: Interval) -> bool:
        good, bad = _names(interval)
        return (day(bad) - day(good)).days <= days

    return close_enough


def _names(interval: Interval) -> tuple[str, str]:
    versions = interval.timeline.histories[0].versions
    return versions[interval.start], versions[interval.stop]


# -- versions -----------------------------------------------------------------------------------------------------


def _between_versions(
    run: Run, environment: Environment, containers: ContainersSpec, sides: Sides
) -> tuple[Findings, Outcome | None]:
    root = run.stages.path / PRIVATE / "images"
    image = sides.failing or sides.passing
    if image is None:
        raise UsageError("name the passing or the failing container")
    inside = Inside(replace(environment, image=image), root / "questions")
    warnings: list[str] = []
    specs = package_specs(run.request.spec)
    found = inside.contents(specs)
    ends = _ends(specs, inside, found, sides, warnings)
    if not any(good != bad for _, good, bad in ends):
        return _only_containers(run, environment, sides, warnings, root), None
    base = _base(run, inside, found, ends, root)
    try:
        return _in_base(run, containers, sides, base, ends, found, warnings, root)
    finally:
        Images(root, base, []).remove()


def _in_base(
    run: Run,
    containers: ContainersSpec,
    sides: Sides,
    base: Base,
    ends: Sequence[tuple[PackageSpec, str, str]],
    found: Contents,
    warnings: list[str],
    root: Path,
) -> tuple[Findings, Outcome]:
    spec = run.request.spec
    inside = Inside(replace(base.environment, image=base.image), root / "questions")
    packages = [_package(p, good, bad, inside, found, spec.find_fix) for p, good, bad in ends]
    first = next((found.paths[p.name] for p in packages if p.name in found.paths), None)
    command = _inside(run.command(), base.environment, first)
    cache = containers.bazel_cache
    option = {"BAZEL_CACHE_OPTION": f"--bazel-cache={cache}" if cache else ""}

    def images(those: Sequence[Package]) -> Images:
        return Images(
            root,
            base,
            those,
            mounts=base.environment.mounts,
            build_env={**option, **spec.env},
            build_timeout=spec.build_timeout,
        )

    outcome = investigate(run.setting(images, command=command, image=base.digest), packages)
    findings = findings_of(outcome, list(run.stages.answers.values()))
    findings.warnings = [*warnings, *findings.warnings]
    findings.containers = {"last_good": sides.passing, "first_bad": sides.failing}
    if findings.status in {"inconsistent", "did_not_reproduce"}:
        explain_hidden_variable(run, findings, base.environment, sides, root)
    shown = outcome.inner or outcome.main
    script = images(shown.packages).script
    findings.reproduce = {
        side: reproduce_inside(base, command, script(versions))
        for side, versions in (("good", findings.good), ("bad", findings.bad))
    }
    return findings, outcome


def _ends(
    specs: Sequence[PackageSpec],
    inside: Inside,
    found: Contents,
    sides: Sides,
    warnings: list[str],
) -> list[tuple[PackageSpec, str, str]]:
    """Each package with its good and its bad version: as given, or as the two containers have them."""
    contents = {
        side: inside.with_image(image).contents(specs) if image else None
        for side, image in (("good", sides.passing), ("bad", sides.failing))
    }
    ends: list[tuple[PackageSpec, str, str]] = []
    for package in specs:
        good, bad = (
            getattr(package, side) or (had.versions.get(package.name) if had else None)
            for side, had in contents.items()
        )
        if not (good and bad):
            if good or bad:
                warnings.append(f"package {package.name} has a version on one side only: left out")
            continue
        if package.is_git and package.name not in found.paths:
            raise UsageError(
                f"there is no git repository of {package.name} at {package.path}",
                where=str(inside.environment.image),
            )
        ends.append((package, good, bad))
    return ends


def _package(
    spec: PackageSpec, good: str, bad: str, inside: Inside, found: Contents, find_fix: bool
) -> Package:
    if not spec.is_git:
        return library(spec, good, bad)
    path = found.paths[spec.name]
    return git_package(spec, Repository(inside.git(path), path), good, bad, find_fix)


def _base(
    run: Run,
    inside: Inside,
    found: Contents,
    ends: Sequence[tuple[PackageSpec, str, str]],
    root: Path,
) -> Base:
    """The bisection container, with every commit fetched that it does not have."""
    lines = ["set -e"]
    remotes: dict[str, str] = {}
    for package, good, bad in ends:
        if not package.is_git or good == bad:
            continue
        path = found.paths[package.name]
        repository = Repository(inside.git(path), path)
        missing = [v for v in (good, bad, *package.cherry_pick) if not repository.has(v)]
        if missing:
            variable = f"AORTA_REMOTE_{len(remotes)}"
            remotes[variable] = package.remote or "origin"
            lines.append(
                f"git -c safe.directory='*' -C {path} fetch --quiet \"${variable}\" {' '.join(missing)}"
            )
    image = str(inside.environment.image)
    digest = _digest(inside.environment)
    if remotes:
        image = _fetched(run, inside.environment, "\n".join(lines), remotes, root)
    return Base(inside.environment, image, digest, found.versions)


def _fetched(
    run: Run, environment: Environment, script: str, remotes: dict[str, str], root: Path
) -> str:
    key = hashlib.sha256(f"{environment.image}\n{script}".encode()).hexdigest()[:16]
    pyxis = environment.kind is RuntimeKind.PYXIS
    target = str(root.absolute() / f"{key}.sqsh") if pyxis else f"aorta-bisect:base-{key}"
    job = ImageJob(
        environment.kind.value,
        str(environment.image),
        target,
        script,
        environment.mounts,
        environment.options,
        remotes,
    )
    root.mkdir(parents=True, exist_ok=True)
    path = root / f"{key}.json"
    path.touch(mode=0o600)
    path.write_text(job.to_json(), encoding="utf-8")
    with (root / "made.txt").open("a", encoding="utf-8") as made:
        made.write(f"{target}\n")
    argv = (sys.executable, "-m", "aorta.bisect.imaging", str(path))
    executor = run.request.executor()
    try:
        executor.start(TrialSpec(argv, root / "fetch", root, "fetch", environment=LOCAL))
        ended = executor.wait(None)
    finally:
        executor.close()
        path.unlink(missing_ok=True)
    if not ended or ended[0].exit_code != 0:
        words = ended[0].stderr.tail.strip().splitlines()[-1:] if ended else []
        raise InfrastructureError(
            f"cannot fetch the commits: {without_secrets(''.join(words))}; give the package a remote",
            where=str(environment.image),
        )
    return target


def _digest(environment: Environment) -> str:
    if environment.kind not in ENGINES:
        return str(environment.image)
    client, _ = client_of(ENGINES[environment.kind], environment.options)
    return image_named(client, str(environment.image)).digest


def _inside(command: ProbedCommand, environment: Environment, path: str | None) -> ProbedCommand:
    """The command in the container, from the first package's sources where there are any."""
    option = "--container-workdir" if environment.kind is RuntimeKind.PYXIS else "--workdir"
    options = (*environment.options, *([f"{option}={path}"] if path else []))
    return replace(command, environment=replace(environment, options=options, image="unset"))


def _only_containers(
    run: Run, environment: Environment, sides: Sides, warnings: list[str], root: Path
) -> Findings:
    """The containers differ and no listed package does: they themselves are the answer."""
    answers = list(run.stages.answers.values())
    if sides.names is None:
        raise UsageError(
            "no listed package differs between the two containers; list the packages that may in a spec"
        )
    good, bad = sides.names
    nobody = dict.fromkeys(("title", "author", "date", "url"))
    records = [record for answer in answers for record in answer.records]
    findings = Findings(
        status="found",
        culprits=[{"package": AXIS, "good": good, "bad": bad, **nobody}],
        confidence=round(sides.confidence or 0.0, 4),
        good={AXIS: good},
        bad={AXIS: bad},
        containers={"last_good": sides.passing, "first_bad": sides.failing},
        warnings=[*warnings, "no listed package differs between the two containers"],
        builds=len({record.point.config_key for record in records}),
        tests=len(records),
    )
    findings.differences = differences_of(run, environment, sides, root)
    command = _inside(run.command(), environment, None)
    for side, image in (("good", sides.passing), ("bad", sides.failing)):
        place = Base(environment, str(image), "", {})
        findings.reproduce[side] = reproduce_inside(place, command, "")
    return findings


def _absolute(mounts: Sequence[str]) -> tuple[str, ...]:
    """Relative sources are relative to where the user stands."""
    return tuple(
        f"{Path(source).expanduser().absolute()}:{rest}"
        for source, _, rest in (mount.partition(":") for mount in mounts)
    )
