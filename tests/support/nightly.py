"""A small replica of a nightly container family: dated images of two packages, one of whose commits
broke a test.
"""

import io
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from support.git_images import with_git
from support.git_repositories import Repository
from support.services.images import Rootfs
from support.services.registry import Registry

CULPRIT = 5  # the commit of jax that broke it
TITLES = {
    "jax": (
        "Release notes",
        "Widen the type of segment ids",
        "Cache the lowered jaxpr",
        "Test sharded softmax",
        "Type the internal tree registry",
        "Fold the mask into softmax",
        "Tidy the profiler's paths",
        "Deprecate an alias of vmap",
        "Raise the minimum of scipy",
    ),
    "xla": (
        "Update a copyright header",
        "Fuse a reduction with its broadcast",
        "Pick layouts once for a module",
        "Drop a stale autotuning key",
        "Split the GPU compiler's tests",
        "Print shardings in dumps",
        "Retry a flaky lookup of devices",
        "Shard the autotuner's cache",
        "Remove an unused pass",
    ),
}
COMMITS = len(TITLES["jax"]) - 1  # of each package between the last good day and the first bad
BUILD = "cp /opt/jax/broken /installed"
TEST = (
    "cp /installed /triage-tool-output/kept || exit 7; "
    "grep -q no /installed || { echo Error: nn_test; exit 1; }"
)
_BEFORE_THE_BREAK = 1_726_650_000  # 2024-09-18


@dataclass(frozen=True)
class World:
    """Repositories of two packages with every commit in them, and the file systems of both sides of
    the break.
    """

    jax: list[str]
    xla: list[str]
    culprit: str
    rootfs: dict[str, Rootfs]
    root: Path

    def few(self, build: str = BUILD) -> list[dict[str, Any]]:
        """For tests of something else than the search: one package of a spec, with two changes left
        in it.
        """
        ends = {"good": self.jax[CULPRIT - 1], "bad": self.jax[CULPRIT + 1]}
        return [{"name": "jax", "path": "/opt/jax", "build": build, **ends}]

    def publish(
        self,
        registry: Registry,
        repository: str,
        days: Iterable[str],
        *,
        first_bad: str,
        family: str = "jax",
    ) -> str:
        """One image a day, each with a digest of its own; returns the template of their
        references.
        """
        for day in days:
            side = "bad" if day >= first_bad else "good"
            top = self._day_layer(day, "yes" if side == "bad" else "no")
            registry.push(repository, f"{family}-{day}", [self.rootfs[side].tarball, top])
        return f"{registry.address}/{repository}:{{container}}-{{date}}"

    def _day_layer(self, day: str, broken: str) -> Path:
        """What makes the image of one day another than that of the next, and what was built on
        it.
        """
        return layer(
            self.root / f"{day}-{broken}.tar",
            {"etc/nightly": f"{day}\n", "installed": f"{broken}\n"},
        )


def layer(path: Path, files: Mapping[str, str]) -> Path:
    """A layer of an image: these files, by their paths in it."""
    with tarfile.open(path, "w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text), 0o755
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def make_world(busybox: Rootfs, root: Path) -> World:
    """jax's commit CULPRIT breaks `test-jax.sh`; both packages move on by COMMITS commits from the
    good side to the bad.
    """
    repositories = {name: Repository.create(root / name) for name in ("jax", "xla")}
    for repository in repositories.values():
        repository.clock = _BEFORE_THE_BREAK
    shas: dict[str, list[str]] = {"jax": [], "xla": []}
    for i in range(COMMITS + 1):
        for name, repository in repositories.items():
            broken = "yes" if name == "jax" and i >= CULPRIT else "no"
            files = {"number": f"{i}\n", "broken": f"{broken}\n"}
            shas[name].append(repository.commit(TITLES[name][i], files))
    images = {}
    for side, commit in (("good", 0), ("bad", COMMITS)):
        for name, repository in repositories.items():
            repository.git("checkout", "--quiet", "--detach", shas[name][commit])
        here = {f"/opt/{name}": repository.path for name, repository in repositories.items()}
        programs = {
            "/usr/bin/build-jax.sh": f"#!/bin/sh\n{BUILD}\n",
            "/usr/bin/test-jax.sh": f"#!/bin/sh\n{TEST}\n",
            "/installed": "yes\n" if commit >= CULPRIT else "no\n",
        }
        images[side] = with_git(busybox, root / side, here, programs)
    return World(shas["jax"], shas["xla"], shas["jax"][CULPRIT], images, root)


def day(number: int) -> str:
    return (date(2024, 9, 1) + timedelta(days=number)).isoformat()
