"""Where trials in containers run: the environment they share, and the command as it runs in there."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from aorta.bisect.experiment import ProbedCommand
from aorta.bisect.oci import digest_of
from aorta.bisect.spec import RUNTIME_KINDS, ContainersSpec
from aorta.core.errors import UsageError
from aorta.core.trial import Environment, RuntimeKind
from aorta.runtimes.containers import ENGINES
from aorta.runtimes.devices import gpu_options, has_gpus, names_devices
from aorta.runtimes.engine import Image, client_of, present_image

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
    """The GPUs of this machine; under pyxis, as in the other engines' containers, root and a writable file system."""
    kind = RUNTIME_KINDS[containers.runtime]
    chosen = not containers.gpus or names_devices(containers.options)
    if kind in ENGINES and has_gpus(dev) and not chosen:
        yield from gpu_options(1, ENGINES[kind], dev)
    if kind is RuntimeKind.PYXIS:
        named = {option.partition("=")[0] for option in containers.options}
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
