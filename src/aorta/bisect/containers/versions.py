"""The way in through containers: the two days, then the versions inside the two containers."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from aorta.bisect.containers.build import BaseImage, Ends, Images, at_hand, base_of, remove_images
from aorta.bisect.containers.days import (
    AXIS,
    STAGE,
    ContainerPair,
    between_days,
    family_of,
    shown_containers,
)
from aorta.bisect.containers.image import (
    ImageContents,
    ImageReader,
    bazel_cache_of,
    command_inside,
    environment_of,
)
from aorta.bisect.findings import Findings, counted, findings_of
from aorta.bisect.investigation import Investigation, SearchSetup, investigate
from aorta.bisect.package import Package, git_package, library
from aorta.bisect.report import shown_of, write_answer
from aorta.bisect.run import BisectRun, ResolvedRequest
from aorta.bisect.spec import JAX_PACKAGES, BisectSpec, PackageSpec, script_package
from aorta.core.axis import Point
from aorta.core.errors import InfrastructureError, NoAnswerError, Terminated, UsageError
from aorta.core.trial import Environment
from aorta.engine.rundir import PRIVATE
from aorta.runtimes.git import Repository


def bisect_in_containers(request: ResolvedRequest) -> Findings:
    containers = request.spec.containers
    assert containers is not None
    family = family_of(containers) if containers.family else None
    cache = bazel_cache_of(containers, package_specs(request.spec))
    environment = environment_of(containers, cache=cache)
    with BisectRun(request) as run:
        if family is None:
            pair: ContainerPair | Findings = ContainerPair(containers.passing, containers.failing)
        else:
            pair = between_days(run, environment, containers, family)
        if isinstance(pair, Findings):
            return write_answer(run, pair, {})
        between = ContainerBisection(run, environment, pair, package_specs(request.spec), cache)
        try:
            return between.search()
        except (KeyboardInterrupt, Terminated, InfrastructureError, UsageError) as wrong:
            if isinstance(wrong, UsageError) and not run.answers:
                raise
            # Stopped outside any search: the containers are known, the versions in them are not.
            known = Findings(
                status="partial",
                containers=pair.document,
                **counted(list(run.answers.values())),
                **pair.seen,
                reproduce=shown_containers(run, environment, pair.passing, pair.failing),
                warnings=["stopped before the versions inside the two containers were searched"],
            )
            write_answer(run, known, {})
            if isinstance(wrong, UsageError):  # which is said where nothing was run
                raise NoAnswerError(wrong.message, where=wrong.where) from None
            raise


def plan_of_containers(spec: BisectSpec) -> tuple[list[str], list[str]]:
    """The days that there are, and what would be tried, a line each."""
    containers = spec.containers
    assert containers is not None
    packages = [f"package    {p.name} at {p.path or p.env}" for p in package_specs(spec)]
    if not containers.family:
        ends = f"passing {containers.passing}, failing {containers.failing}"
        return [], [f"containers {ends}", *packages]
    days = list(family_of(containers))
    most = 2 * math.ceil(math.log2(len(days))) + 1
    return days, [
        f"containers {len(days)} of {containers.family}: {days[0]} .. {days[-1]}",
        *packages,
        f"probes     at most {most} containers, then the versions between two of them",
    ]


def package_specs(spec: BisectSpec) -> Sequence[PackageSpec]:
    """Those of the spec, or the preset: with ends given for its packages on the command line."""
    if spec.packages and not all(_is_of_the_preset(package) for package in spec.packages):
        return spec.packages
    ends = {package.name: {"good": package.good, "bad": package.bad} for package in spec.packages}
    return [package.model_copy(update=ends.get(package.name)) for package in JAX_PACKAGES]


def _is_of_the_preset(package: PackageSpec) -> bool:
    """One of its packages, of which nothing is said but the two ends."""
    names = {known.name for known in JAX_PACKAGES}
    given = {name for name in package.model_fields_set if getattr(package, name)}
    return package.name in names and given <= {"name", "path", "good", "bad"}


@dataclass(frozen=True)
class ContainerBisection:
    """Two containers, the packages that may differ in them, and what was noticed on the way."""

    run: BisectRun
    environment: Environment
    pair: ContainerPair
    specs: Sequence[PackageSpec]
    bazel_cache: str | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.run.path / PRIVATE / "images"

    def search(self) -> Findings:
        image = self.pair.failing or self.pair.passing
        if image is None:
            raise UsageError("name the passing or the failing container")
        environment = replace(self.environment, image=image)
        try:
            at = at_hand(self.run, environment, self.root)
            with ImageReader(at, self.root / "questions") as inside:
                found = inside.contents(self.specs, self._build_scripts)
                ends = list(self._ends(inside, found))
                if not any(good != bad for _, good, bad in ends):
                    return self._only_containers()
                base = base_of(self.run, environment, inside, found, ends, self.root)
                if base.image != inside.environment.image:
                    inside.close()
                with inside.with_image(base.image) as in_base:
                    return self._in_base(base, ends, found, in_base)
        finally:
            remove_images(self.root, environment)

    def _in_base(
        self, base: BaseImage, ends: Ends, found: ImageContents, inside: ImageReader
    ) -> Findings:
        run, spec = self.run, self.run.request.spec
        packages = []
        for package, good, bad in ends:
            if package.is_git:
                path = found.paths[package.name]
                repository = Repository(inside.git(path), path)
                repository.remote_address()  # for the answer, which must start no container again
                packages.append(git_package(package, repository, good, bad, spec))
            else:
                packages.append(library(package, good, bad))
        inside.close()  # a search takes hours
        command = command_inside(run.command(), base.environment)

        def images(those: Sequence[Package]) -> Images:
            return Images(
                self.root, those, command, spec.build_timeout, base, spec, self.bazel_cache
            )

        outcome = investigate(SearchSetup(run, images), packages)
        findings = self._findings(outcome)
        shown = images(outcome.last.packages).shown
        reproduce = {"good": shown(findings.good), "bad": shown(findings.bad)}
        return write_answer(run, replace(findings, reproduce=reproduce), shown_of(outcome))

    def _findings(self, outcome: Investigation) -> Findings:
        findings = findings_of(outcome, list(self.run.answers.values()))
        warnings = [*self.warnings, *findings.warnings]
        both = self.pair.passing and self.pair.failing
        if findings.status in {"inconsistent", "did_not_reproduce"} and both:
            warnings.append(
                "no listed version explains the difference of the two containers; where it is "
                "Python packages or variables, run `aorta env probe -o good.json` in the one, the "
                "same with bad.json in the other, and "
                "`aorta bisect --good-env good.json --bad-env bad.json -- COMMAND`"
            )
        return replace(findings, warnings=warnings, containers=self.pair.document)

    def _ends(
        self, inside: ImageReader, found: ImageContents
    ) -> Iterator[tuple[PackageSpec, str, str]]:
        """Each package with its good and its bad version: as given, or as in the containers."""
        contents = {
            "good": self._contents(inside, found, self.pair.passing),
            "bad": self._contents(inside, found, self.pair.failing),
        }
        for package in (*self.specs, *self._installed_by_scripts(contents)):
            good, bad = (
                getattr(package, side) or (had.version(package.name) if had else None)
                for side, had in contents.items()
            )
            if not (good and bad):
                if good or bad:
                    self.warnings.append(
                        f"package {package.name} has a version on one side only: left out"
                    )
                continue
            if package.is_git and package.name not in found.paths:
                raise UsageError(
                    f"there is no git repository of {package.name} at {package.path}",
                    where=str(self.pair.failing or self.pair.passing),
                )
            yield package, good, bad

    def _installed_by_scripts(
        self, contents: Mapping[str, ImageContents | None]
    ) -> Iterator[PackageSpec]:
        """Libraries that a script of the image installs in another version, by their variables."""
        where = self._build_scripts
        known = {package.name for package in self.specs}
        images = [had for had in contents.values() if had]
        for name in sorted({name for had in images for name in had.variables} - known):
            versions = tuple(
                dict.fromkeys(had.variables[name] for had in images if name in had.variables)
            )
            if len(versions) < 2:
                continue
            if not any(name in had.scripts for had in images):
                self.warnings.append(
                    f"{name} is {versions[0]} and {versions[1]}, and {where} has no script for it: "
                    "left out"
                )
                continue
            yield script_package(name, str(where), versions)

    def _contents(
        self, inside: ImageReader, found: ImageContents, image: str | None
    ) -> ImageContents | None:
        if image is None or image == (self.pair.failing or self.pair.passing):
            return found if image else None
        with inside.with_image(image) as other:
            return other.contents(self.specs, self._build_scripts)

    @property
    def _build_scripts(self) -> str | None:
        given = self.run.request.spec.containers
        return given.build_scripts if given else None

    def _only_containers(self) -> Findings:
        """The containers differ and no listed package does: they themselves are the answer."""
        run, pair = self.run, self.pair
        if pair.names is None:
            raise UsageError(
                "no listed package differs between the two containers; list the packages that may "
                "in a spec"
            )
        good, bad = pair.names
        nobody = dict.fromkeys(("title", "author", "date", "url"))
        findings = Findings(
            status="found",
            culprits=[{"package": AXIS, "good": good, "bad": bad, **nobody}],
            confidence=round(pair.confidence or 0.0, 4),
            good={AXIS: good},
            bad={AXIS: bad},
            containers=pair.document,
            warnings=[*self.warnings, "no listed package differs between the two containers"],
            **counted(list(run.answers.values())),
            **pair.seen,
            reproduce=shown_containers(run, self.environment, pair.passing, pair.failing),
        )
        shown = {
            side: (STAGE, Point.of({AXIS: name}).config_key)
            for side, name in zip(("good", "bad"), pair.names, strict=True)
        }
        return write_answer(run, findings, shown)
