"""`bisect.yaml`: what may have changed, how it is built, where it runs, what is the failure."""

import re
from collections.abc import Mapping
from datetime import date
from typing import Literal

from pydantic import Field, field_validator, model_validator

from aorta.bisect.metric import MeasuredMetric
from aorta.core.documents import DocumentModel, Seconds
from aorta.core.errors import UsageError
from aorta.core.names import is_path_safe, is_variable
from aorta.core.oracle import Oracle

Runtime = Literal["docker", "podman", "pyxis", "host"]
_CACHE_SCHEMES = ("http://", "https://", "grpc://", "grpcs://")
_NOT_IN_VARIABLES = re.compile(r"[^A-Z0-9]")


class PackageSpec(DocumentModel):
    """A git repository (`path`), or a library whose `versions` are listed, oldest first."""

    name: str
    path: str | None = None
    good: str | None = None
    bad: str | None = None
    build: str | None = None
    remote: str | None = None
    versions: tuple[str, ...] = ()
    env: str | None = None  # the variable that carries the version
    cherry_pick: tuple[str, ...] = ()  # build fixes, applied to every state they apply to
    main_branch: str | None = None
    rebuild: Literal["always", "changed"] = "always"
    needs: tuple[str, ...] = ()  # packages whose change means a rebuild of this one
    good_parent: bool = False  # the good end is the parent of what is said, or read, of it

    @model_validator(mode="after")
    def _is_one_kind(self) -> "PackageSpec":
        if not is_path_safe(self.name):
            raise UsageError(
                f"{self.name!r} is no package name; expected letters, digits, _, . and -"
            )
        if (self.path is None) == (not self.versions) and self.env is None:
            raise UsageError(
                f"package {self.name} needs either path (a git repository) or versions (a list), "
                "not both"
            )
        if self.env is not None and not is_variable(self.env):
            raise UsageError(f"{self.env!r} is not a variable name")
        if len(set(self.versions)) != len(self.versions):
            raise UsageError(f"package {self.name} lists a version twice")
        return self

    @property
    def is_git(self) -> bool:
        return self.path is not None

    @property
    def variable(self) -> str:
        """The variable that tells the test where the checkout is, or which version it gets."""
        return f"AORTA_BISECT_{_NOT_IN_VARIABLES.sub('_', self.name.upper())}"


class ContainersSpec(DocumentModel):
    family: str | None = None
    runtime: Runtime = "docker"
    url_template: str | None = None  # with {container} and {date}
    start_date: str | None = None
    end_date: str | None = None
    threshold_days: int = Field(default=1, ge=1)
    passing: str | None = None
    failing: str | None = None
    mounts: tuple[str, ...] = ()
    bazel_cache: str | None = None
    shm_size: str = Field(default="1g", pattern=r"^\d+[bkmgBKMG]?$")
    # A path inside of the images with installPKG.sh: every PKG_VERSION there is a package.
    build_scripts: str | None = None
    # The command is run on the host and told of the image of each state.
    plugin: bool = False
    registry: str | None = None  # where a plugin's images are pushed to, with a prefix of the tag
    gpus: bool = True  # those of this machine, if it has any; under pyxis Slurm decides
    options: tuple[str, ...] = ()  # further options of the container engine

    @field_validator("start_date", "end_date")
    @classmethod
    def _is_date(cls, value: str | None) -> str | None:
        if value is not None:
            day(value)
        return value

    @field_validator("url_template")
    @classmethod
    def _has_date(cls, value: str | None) -> str | None:
        if value is not None and "{date}" not in value:
            raise UsageError(f"the template {value!r} holds no {{date}}")
        return value

    @field_validator("bazel_cache")
    @classmethod
    def _usable(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("/", *_CACHE_SCHEMES)):
            raise UsageError(
                f"the bazel cache {value!r} is neither an absolute path nor an http, https or "
                "grpc address"
            )
        return value

    @model_validator(mode="after")
    def _one_way_in(self) -> "ContainersSpec":
        dated = self.family or self.start_date or self.end_date
        if dated and (self.passing or self.failing):
            raise UsageError(
                "give either a container family with dates, or the passing and the failing "
                "container"
            )
        if (self.start_date or self.end_date) and not self.family:
            raise UsageError("start and end dates need a container family; add --container FAMILY")
        return self


class EnvironmentsSpec(DocumentModel):
    """Two environments: each a requirements file, an env.json, or a virtual environment."""

    good: str
    bad: str
    index_url: str | None = None
    extra_index_url: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    pre: bool = False  # pre-releases and nightly builds are candidates too


class BisectSpec(DocumentModel):
    command: tuple[str, ...] = ()
    packages: tuple[PackageSpec, ...] = ()
    containers: ContainersSpec | None = None
    environments: EnvironmentsSpec | None = None
    oracle: Oracle | None = None
    env: Mapping[str, str] = Field(default_factory=dict)
    confidence: float = Field(default=0.95, gt=0.5, lt=1.0)
    find_fix: bool = False
    first_parent: bool = False  # a merge is one change: what it merged is not looked into
    skip_precondition_checks: bool = False
    same_failure: bool = False  # a failure unlike the first one is neither good nor bad
    any_failure: bool = False  # between environments too every failing exit is bad
    # Further runs of both ends, and of both sides of the answer; None: as many as it takes.
    confirmations: int | None = Field(default=None, ge=0)
    # On the host: the repositories themselves are moved and built, where others expect them.
    in_place: bool = False
    timeout: Seconds = None
    build_timeout: Seconds = None

    @field_validator("oracle", mode="before")
    @classmethod
    def _measured(cls, value: object) -> object:
        """A metric without a threshold: here both ends are there to be measured."""
        if not isinstance(value, dict) or value.get("kind") != "metric":
            return value
        has_threshold = any(value.get(name) is not None for name in ("above", "below"))
        return value if has_threshold else MeasuredMetric.model_validate(value)

    @model_validator(mode="after")
    def _names_differ(self) -> "BisectSpec":
        names = [package.name for package in self.packages]
        variables = [package.variable for package in self.packages]
        for listed in (names, variables):
            doubled = next((one for one in listed if listed.count(one) > 1), None)
            if doubled is not None:
                raise UsageError(f"two packages are called {doubled}; rename one")
        unknown = [n for p in self.packages for n in p.needs if n not in names]
        if unknown:
            raise UsageError(f"a package needs {unknown[0]!r}, which is no package here")
        return self


def day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is no date; expected YYYY-MM-DD") from None


def pairs_from(text: str | None, option: str) -> list[tuple[str, str]]:
    """`jax:1.2,xla:abc`, in the order given."""
    found: list[tuple[str, str]] = []
    for part in text.split(",") if text else ():
        name, _, value = part.strip().partition(":")
        if not name or not value:
            raise UsageError(
                f"{option}: found {part!r}, expected PACKAGE:VERSION[,PACKAGE:VERSION]"
            )
        found.append((name, value))
    return found


def versions_from(text: str | None, option: str) -> dict[str, str]:
    """The same as a mapping; a package may stand once."""
    found: dict[str, str] = {}
    for name, version in pairs_from(text, option):
        if name in found:
            raise UsageError(f"{option}: package {name} stands twice")
        found[name] = version
    return found


def script_package(name: str, where: str, versions: tuple[str, ...]) -> PackageSpec:
    """A library that `installNAME.sh VERSION` of an image installs."""
    static = "STATIC=1 " if name == "NVSHMEM" else ""
    build = f'DEVEL=1 {static}{where}/install{name}.sh "${name}_VERSION"'
    return PackageSpec(
        name=name, versions=versions, env=f"{name}_VERSION", build=build, rebuild="changed"
    )


JAX_URL_TEMPLATE = "ghcr.io/nvidia/jax:{container}-{date}"

# XLA is a part of JAX: only the last of the two builds. `build-jax.sh` is the images' own.
JAX_PACKAGES = (
    PackageSpec(name="xla", path="/opt/xla"),
    PackageSpec(name="jax", path="/opt/jax", build="build-jax.sh ${BAZEL_CACHE_OPTION}"),
    PackageSpec(name="flax", path="/opt/flax"),
    PackageSpec(name="maxtext", path="/opt/maxtext"),
    PackageSpec(
        name="transformer-engine",
        path="/opt/transformer-engine",
        build="build-te.sh",
        rebuild="changed",
        needs=("xla", "jax"),
    ),
)
