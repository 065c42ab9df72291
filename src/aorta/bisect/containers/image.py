"""One container: the environment that trials in it share, and short questions to its image."""

import os
import secrets
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from aorta.bisect.spec import ContainersSpec, PackageSpec
from aorta.bisect.trials import ProbedCommand
from aorta.core.errors import InfrastructureError, UsageError
from aorta.core.names import slug
from aorta.core.trial import Environment, RuntimeKind, TrialSpec
from aorta.runtimes.containers import IMAGES_USER, user_name
from aorta.runtimes.engine import ENGINES, gpu_options, has_gpus, names_devices
from aorta.runtimes.git import GitAnswer, RunGit
from aorta.runtimes.launch import IMAGES_WORKDIR, ONCE, Launch, launch_for

_OF_PYXIS = (
    ("--container-remap-root", "--no-container-remap-root"),
    ("--container-writable", "--container-readonly"),
)
# The variable by which a build inside a container is told of the Bazel cache.
CACHE_OPTION = "BAZEL_CACHE_OPTION"


def bazel_cache_of(containers: ContainersSpec, packages: Sequence[PackageSpec]) -> str | None:
    """The named cache; else a local directory where a build uses one and can see it (not pyxis)."""
    if containers.bazel_cache is not None:
        if containers.bazel_cache.startswith("/"):
            _make_directory(Path(containers.bazel_cache), "--bazel-cache")
        return containers.bazel_cache
    is_used = any(CACHE_OPTION in (package.build or "") for package in packages)
    if RuntimeKind(containers.runtime) not in ENGINES or not is_used:
        return None
    place = Path(tempfile.gettempdir()) / f"{slug(user_name())}-bazel-triage-cache"
    _make_directory(place, "the default Bazel cache")
    return str(place)


def _make_directory(path: Path, what: str) -> None:
    try:
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as wrong:
        raise UsageError(f"{what}: cannot make it: {wrong.strerror}", where=str(path)) from None


def environment_of(
    containers: ContainersSpec, dev: Path = Path("/dev"), cache: str | None = None
) -> Environment:
    if containers.runtime == "host":
        raise UsageError("containers run under docker, podman or pyxis; choose --container-runtime")
    mounts = (f"{cache}:{cache}",) if cache and cache.startswith("/") else ()
    return Environment(
        "bisection",
        RuntimeKind(containers.runtime),
        mounts=(
            # Relative sources are relative to where the user stands.
            *(
                f"{Path(source).expanduser().absolute()}:{rest}"
                for source, _, rest in (mount.partition(":") for mount in containers.mounts)
            ),
            *mounts,
        ),
        options=(*_defaults(containers, dev), *containers.options),
    )


def _defaults(containers: ContainersSpec, dev: Path) -> Iterator[str]:
    """The image's own user, shared memory, this machine's GPUs; under pyxis root and writable."""
    kind = RuntimeKind(containers.runtime)
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


def command_inside(command: ProbedCommand, environment: Environment) -> ProbedCommand:
    """The command in the container, in the working directory that the image names."""
    option = IMAGES_WORKDIR if environment.kind is RuntimeKind.PYXIS else "--workdir="
    options = (*environment.options, option)
    return replace(command, environment=replace(environment, options=options, image="unset"))


def plugin_words(image: str, output: Path | str, workload: str | None = None) -> tuple[str, ...]:
    """What a command that runs on the host is told of a state."""
    more = ("--workload-version", workload) if workload else ()
    return ("--container", image, "--output-prefix", str(output), *more)


_GIT = "git -c safe.directory='*'"
_CLOSING = 10.0  # seconds for a shell that has nothing more to read


@dataclass(frozen=True)
class ImageContents:
    """What an image has: versions and paths of packages; libraries by `variables` or `scripts`."""

    versions: Mapping[str, str]
    paths: Mapping[str, str]
    variables: Mapping[str, str] = field(default_factory=dict)
    scripts: frozenset[str] = frozenset()

    def version(self, name: str) -> str | None:
        return self.versions.get(name) or self.variables.get(name)


class ImageReader:
    """One image, asked by short commands to one shell in a container; nothing is asked twice."""

    def __init__(self, environment: Environment, scratch: Path) -> None:
        self.environment, self._scratch = environment, scratch
        self._answers: dict[tuple[str, ...], GitAnswer] = {}
        self._shell: subprocess.Popen[bytes] | None = None
        self._launch: Launch | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, *argv: str) -> GitAnswer:
        """One command. Its answer ends with an unguessable mark, and its stderr stands before."""
        shell = self._shell or self._start()
        mark = secrets.token_hex(16)
        question = (
            f"err=$( (\n{shlex.join(argv)}\n) 2>&1 >&3 </dev/null ); code=$?; "
            f"printf '\\n%s %s\\n%s\\n%s\\n' {mark} $code \"$err\" {mark}\n"
        )
        assert shell.stdin
        assert shell.stdout
        with suppress(BrokenPipeError):  # why is on its stderr
            shell.stdin.write(question.encode())
            shell.stdin.flush()
        end = f"\n{mark}\n".encode()
        answer = bytearray()
        while not answer.endswith(end) and (new := os.read(shell.stdout.fileno(), 1 << 16)):
            answer += new
        if not answer.endswith(end):
            raise self._ended_early(shell.wait())
        out, _, rest = answer.removesuffix(end).decode("utf-8", "replace").partition(f"\n{mark} ")
        code, _, err = rest.partition("\n")
        return GitAnswer(int(code), out, err)

    def _start(self) -> subprocess.Popen[bytes]:
        place = self.environment
        own = ONCE if place.kind is RuntimeKind.PYXIS else ("--interactive", "--rm")
        place = replace(place, options=(*place.options, *own))
        words = ("sh", "-c", "exec 3>&1; exec sh")
        self._scratch.mkdir(parents=True, exist_ok=True)
        launch = launch_for(
            TrialSpec(words, self._scratch, self._scratch, "question", environment=place)
        )
        self._complaint = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the shell
        self._shell = subprocess.Popen(
            launch.argv,
            cwd=launch.cwd,
            env=launch.environ(os.environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaint,
        )
        self._launch = launch
        return self._shell

    def _ended_early(self, code: int) -> InfrastructureError:
        self._complaint.seek(0)
        complaint = self._complaint.read().decode("utf-8", "replace")
        refusal = self._launch.refusal(code, complaint) if self._launch else None
        return InfrastructureError(
            f"the container did not start: {refusal or f'its shell ended with {code}'}",
            where=str(self.environment.image),
        )

    def close(self) -> None:
        """Until the next question nothing runs, and nothing of an allocation is in use."""
        shell, launch = self._shell, self._launch
        if shell is None or launch is None:
            return
        self._shell = None
        try:
            shell.communicate(timeout=_CLOSING)
        except subprocess.TimeoutExpired:
            shell.kill()
            shell.communicate()
        finally:
            self._complaint.close()
            for cleanup in launch.cleanup:
                subprocess.run(cleanup, capture_output=True, check=False)

    def contents(
        self, packages: Sequence[PackageSpec], build_scripts: str | None = None
    ) -> ImageContents:
        """`build_scripts`: the directory of the image that has an installPKG.sh for each PKG."""
        lines = [line for package in packages for line in _question(package)]
        if build_scripts:
            lines += _library_question(build_scripts)
        found: dict[str, dict[str, str]] = {
            kind: {} for kind in ("path", "version", "variable", "script")
        }
        for line in self.run("sh", "-c", "\n".join(lines)).out.splitlines():
            kind, name, value = [*line.split("\t", 2), "", ""][:3]
            if kind in found and value:
                found[kind][name] = value
        return ImageContents(
            found["version"], found["path"], found["variable"], frozenset(found["script"])
        )

    def git(self, path: str) -> RunGit:
        def run(arguments: Sequence[str]) -> GitAnswer:
            key = (path, *arguments)
            if key not in self._answers:
                self._answers[key] = self.run("sh", "-c", f"{_GIT} -C {shlex.join(key)}")
            return self._answers[key]

        return run

    def with_image(self, image: str) -> "ImageReader":
        """Another one, or the same with all that it was asked."""
        if image == self.environment.image:
            return self
        return ImageReader(replace(self.environment, image=image), self._scratch)


def _library_question(build_scripts: str) -> list[str]:
    place = shlex.quote(build_scripts)
    return [
        r"env | sed -n 's/^\([A-Z0-9_]*\)_VERSION=\(.*\)$/variable\t\1\t\2/p'",
        f"for s in {place}/install*.sh; do",
        '  n=${s##*/install}; [ -x "$s" ] && printf "script\\t%s\\t-\\n" "${n%.sh}"',
        "done",
    ]


def _question(package: PackageSpec) -> list[str]:
    """Sources lie at the path, or at `PATH-source`; library versions in the environment."""
    name = package.name
    if package.path is not None:
        path = package.path
        return [
            f"for p in {shlex.quote(path)} {shlex.quote(path + '-source')}; do",
            f'  if v=$({_GIT} -C "$p" rev-parse HEAD 2>/dev/null); then',
            (
                f'    printf "path\\t%s\\t%s\\n" {name} "$p"; printf "version\\t%s\\t%s\\n" {name} '
                '"$v"; break'
            ),
            "  fi",
            "done",
        ]
    return [f'printf "version\\t%s\\t%s\\n" {name} "${package.env}"'] if package.env else []
