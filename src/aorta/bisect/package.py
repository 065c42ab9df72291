"""A package with its line of versions: what the whole room talks about."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aorta.bisect.git import Repository
from aorta.bisect.histories import Line
from aorta.bisect.spec import PackageSpec
from aorta.search.timeline import History

Versions = Mapping[str, str]
"""Package name -> commit or version: one state of the timeline."""


@dataclass(frozen=True)
class Package:
    """Versions from the good end to the bad one. A git package knows its commits, a library only their names."""

    spec: PackageSpec
    versions: tuple[str, ...]
    line: Line | None = None
    repository: Repository | None = None
    skipped: frozenset[str] = frozenset()  # versions that are never tried

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def moves(self) -> bool:
        return len(self.versions) > 1

    @property
    def history(self) -> History:
        if self.line is not None:
            return self.line.history(self.name)
        return History(self.name, self.versions)

    def fixed_at(self, version: str) -> "Package":
        """The same package, standing still."""
        return Package(self.spec, (version,), None, self.repository)


def moving(packages: Sequence[Package]) -> list[Package]:
    return [package for package in packages if package.moves]


def whole(packages: Sequence[Package], versions: Versions) -> dict[str, str]:
    """The version of every package: those that move as given, the others where they stand."""
    return {package.name: versions.get(package.name, package.versions[0]) for package in packages}


def version_variables(packages: Sequence[Package], versions: Versions) -> dict[str, str]:
    """The variables that carry versions of libraries to builds and tests."""
    return {
        package.spec.env: versions[package.name] for package in packages if package.spec.env
    } | {
        package.spec.variable: versions[package.name]
        for package in packages
        if not package.spec.is_git
    }
