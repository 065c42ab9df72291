"""Short questions to an image: which versions it holds, what its repositories say."""

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aorta.bisect.git import GitAnswer, RunGit
from aorta.bisect.spec import PackageSpec
from aorta.core.errors import InfrastructureError
from aorta.core.trial import Environment, RuntimeKind, TrialSpec
from aorta.runtimes import launch_for
from aorta.runtimes.pyxis import ONCE

_GIT = "git -c safe.directory='*'"
_PATIENCE = 3600  # an image may have to be pulled first


@dataclass(frozen=True)
class Contents:
    """What an image was made with: versions by package, and where each repository is."""

    versions: Mapping[str, str]
    paths: Mapping[str, str]


class Inside:
    """One image, asked by short commands, each in a container of its own that is gone afterwards. An image does not
    change, so nothing is asked twice.
    """

    def __init__(self, environment: Environment, scratch: Path) -> None:
        self.environment, self._scratch = environment, scratch
        self._answers: dict[tuple[str, ...], GitAnswer] = {}

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        self._scratch.mkdir(parents=True, exist_ok=True)
        environment = self.environment
        if environment.kind is RuntimeKind.PYXIS:
            environment = replace(environment, options=(*environment.options, *ONCE))
        trial = TrialSpec(argv, self._scratch, self._scratch, "question", environment=environment)
        launch = launch_for(trial)
        try:
            done = subprocess.run(
                launch.argv,
                cwd=launch.cwd,
                env=launch.environ(os.environ),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=_PATIENCE,
                check=False,
            )
        finally:
            for cleanup in launch.cleanup:
                subprocess.run(cleanup, capture_output=True, check=False)
        if refusal := launch.refusal(done.returncode, done.stderr):
            raise InfrastructureError(
                f"the container did not start: {refusal}", where=str(self.environment.image)
            )
        return done

    def contents(self, packages: Sequence[PackageSpec]) -> Contents:
        lines = [line for package in packages for line in _question(package)]
        answer = self.run("sh", "-c", "\n".join(lines))
        versions: dict[str, str] = {}
        paths: dict[str, str] = {}
        for line in answer.stdout.splitlines():
            kind, _, rest = line.partition("\t")
            name, _, value = rest.partition("\t")
            if kind == "path":
                paths[name] = value
            elif kind == "version" and value:
                versions[name] = value
        return Contents(versions, paths)

    def git(self, path: str) -> RunGit:
        def run(arguments: Sequence[str]) -> GitAnswer:
            key = (path, *arguments)
            if key not in self._answers:
                done = self.run("sh", "-c", f"{_GIT} -C {shlex.join(key)}")
                self._answers[key] = GitAnswer(done.returncode, done.stdout, done.stderr)
            return self._answers[key]

        return run

    def with_image(self, image: str) -> "Inside":
        return Inside(replace(self.environment, image=image), self._scratch)


def _question(package: PackageSpec) -> list[str]:
    """Sources lie at the path, or beside it with `-source` behind; versions of libraries are in the environment."""
    name = package.name
    if package.path is not None:
        path = package.path
        return [
            f"for p in {shlex.quote(path)} {shlex.quote(path + '-source')}; do",
            f'  if v=$({_GIT} -C "$p" rev-parse HEAD 2>/dev/null); then',
            f'    printf "path\\t%s\\t%s\\n" {name} "$p"; printf "version\\t%s\\t%s\\n" {name} "$v"; break',
            "  fi",
            "done",
        ]
    return [f'printf "version\\t%s\\t%s\\n" {name} "${package.env}"'] if package.env else []
