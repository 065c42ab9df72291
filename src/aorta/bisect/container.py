"""One container: the environment that trials in it share, and short questions to its image."""

import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aorta.bisect.git import GitAnswer, RunGit
from aorta.bisect.oci import digest_of
from aorta.bisect.spec import RUNTIME_KINDS, ContainersSpec, PackageSpec
from aorta.bisect.trials import ProbedCommand
from aorta.core.errors import InfrastructureError, UsageError
from aorta.core.trial import Environment, RuntimeKind, TrialSpec
from aorta.runtimes import launch_for
from aorta.runtimes.containers import ENGINES, IMAGES_USER
from aorta.runtimes.devices import gpu_options, has_gpus, names_devices
from aorta.runtimes.engine import Image, client_of, present_image
from aorta.runtimes.pyxis import ONCE

_OF_PYXIS = (
    ("--container-remap-root", "--no-container-remap-root"),
    ("--container-writable", "--container-readonly"),
)


def environment_of(containers: ContainersSpec, dev: Path = Path("/dev")) -> Environment:
    if containers.runtime == "host":
        raise UsageError("containers run under docker, podman or pyxis; choose --container-runtime")
    cache = containers.bazel_cache
    mounts = (f"{cache}:{cache}",) if cache and cache.startswith("/") else ()
    return Environment(
        "bisection",
        RUNTIME_KINDS[containers.runtime],
        mounts=(*_absolute(containers.mounts), *mounts),
        options=(*_defaults(containers, dev), *containers.options),
    )


def _defaults(containers: ContainersSpec, dev: Path) -> Iterator[str]:
    """The image's own user, who may write where its builds write; shared memory, and the GPUs of this machine. Under
    pyxis, as in the other engines' containers, root and a writable file system.
    """
    kind = RUNTIME_KINDS[containers.runtime]
    named = {option.partition("=")[0] for option in containers.options}
    chosen = not containers.gpus or names_devices(containers.options)
    if kind in ENGINES and named.isdisjoint({"--user", "-u"}):
        yield IMAGES_USER
    if kind in ENGINES and named.isdisjoint({"--shm-size", "--ipc"}):
        yield f"--shm-size={containers.shm_size}"
    if kind in ENGINES and has_gpus(dev) and not chosen:
        yield from gpu_options(1, ENGINES[kind], dev)
    if kind is RuntimeKind.PYXIS:
        yield from (default for default, opposite in _OF_PYXIS if not {default, opposite} & named)


def command_inside(
    command: ProbedCommand, environment: Environment, path: str | None
) -> ProbedCommand:
    """The command in the container, from the first package's sources where there are any."""
    option = "--container-workdir" if environment.kind is RuntimeKind.PYXIS else "--workdir"
    options = (*environment.options, *([f"{option}={path}"] if path else []))
    return replace(command, environment=replace(environment, options=options, image="unset"))


def digest_in(environment: Environment) -> str | None:
    """The digest of what would run: of the image that the engine has, else of the one the registry would give.

    None where nobody can say: a squashfs file, or a registry that does not answer.
    """
    present = _present(environment)
    return present.digest if present else digest_of(str(environment.image))


def is_at_hand(environment: Environment) -> bool:
    """Whether the engine has the image, so that no registry is asked for it."""
    return _present(environment) is not None


def _present(environment: Environment) -> Image | None:
    if environment.kind not in ENGINES:
        return None
    client, _ = client_of(ENGINES[environment.kind], environment.options)
    return present_image(client, str(environment.image))


def _absolute(mounts: Sequence[str]) -> tuple[str, ...]:
    """Relative sources are relative to where the user stands."""
    return tuple(
        f"{Path(source).expanduser().absolute()}:{rest}"
        for source, _, rest in (mount.partition(":") for mount in mounts)
    )


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
