"""Containers under Slurm through the pyxis plugin: a trial's environment as options of srun.

The image is imported on the compute node, so nothing is asked of an engine here, and a digest is
known only when the reference itself holds one.
"""

import shutil
from collections.abc import Iterable, Iterator, Sequence

from aorta.core.errors import InfrastructureError, UsageError
from aorta.core.names import check_variable
from aorta.core.trial import TrialSpec
from aorta.runtimes.containers import mounts_of
from aorta.runtimes.launch import ANY_CODE, Launch, Refusal, variables_of

ONCE = ("--nodes=1", "--ntasks=1")
"""Options of a step that runs once, whatever the size of the allocation."""

ENDED_BY_SLURM = (
    Refusal(ANY_CODE, r"\*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT \S+ DUE TO ", "Slurm ended it"),
    Refusal(ANY_CODE, r"^srun: error: Node failure on ", "Slurm ended it"),
)
"""In which words a step says that the scheduler ended it; a rank that ends the others says less."""

# srun's own refusals, the plugin's inside a step, and a command that the image does not have (by
# its errno).
_REFUSALS = (
    Refusal(255, r"^(?:\S*/)?srun: (?:error: |unrecognized option|invalid option)"),
    Refusal(1, r"^(?:srun|slurmstepd\S*): error: .*(?:pyxis|spank)"),
    Refusal(2, r"^slurmstepd\S*: error: execve\(\)"),
    Refusal(13, r"^slurmstepd\S*: error: execve\(\)"),
)


def pyxis_launch(trial: TrialSpec) -> Launch:
    """A step in the allocation that the caller already has."""
    srun = shutil.which("srun")
    if srun is None:
        raise InfrastructureError(
            "srun is not on PATH, and pyxis is a plugin of it; install it with: apt-get install "
            "slurm-client"
        )
    if ":" in trial.argv:
        raise UsageError(
            "srun takes the word ':' in a command as the start of another one; put the command "
            "into a script",
            where=f"environment {trial.environment.name}",
        )
    return Launch(
        argv=(srun, *srun_options(trial), *trial.argv),
        cwd=trial.cwd,
        env=_variables(trial),
        image_digest=_digest(_image(trial)),
        refusals=(*_REFUSALS, *ENDED_BY_SLURM),
    )


IMAGES_WORKDIR = "--container-workdir="
"""The option that says: where the image itself says. Pyxis takes no empty one, so it is left
out.
"""


def srun_options(trial: TrialSpec) -> tuple[str, ...]:
    """The environment as options of srun, which must itself be started with the trial's variables.

    Variables go by name, so that no value stands in a process list; srun keeps the rest of the
    caller's environment out.
    """
    options = trial.environment.options
    elsewhere = any(option.startswith("--container-workdir=") for option in options)
    return (
        *image_options(_image(trial), tuple(_mounts(trial)), _variables(trial)),
        *([] if elsewhere else [f"--container-workdir={trial.cwd.absolute()}"]),
        *(option for option in options if option != IMAGES_WORKDIR),
    )


def image_options(image: str, mounts: Sequence[str], names: Iterable[str]) -> tuple[str, ...]:
    """What every step in a container says; pyxis refuses empty and double options."""
    exported, mounted = ",".join(sorted(names)), ",".join(mounts)
    return (
        f"--export={exported or 'NONE'}",
        f"--container-image={enroot_reference(image)}",
        *([f"--container-mounts={mounted}"] if mounted else []),
        *([f"--container-env={exported}"] if exported else []),
        "--no-container-mount-home",
    )


def _variables(trial: TrialSpec) -> dict[str, str]:
    image = _image(trial)
    digest = _digest(image)
    known = {"AORTA_DOCKER_IMAGE": image, **({"AORTA_DOCKER_DIGEST": digest} if digest else {})}
    variables = {**variables_of(trial), **known}
    return {name: check_variable(name, value, where="env") for name, value in variables.items()}


def _image(trial: TrialSpec) -> str:
    if not trial.environment.image:
        raise UsageError(
            "its kind is pyxis and it names no image; add a reference, or the path of a squashfs "
            "file",
            where=f"environment {trial.environment.name}",
        )
    return trial.environment.image


def _digest(image: str) -> str | None:
    return image.partition("@")[2] or None


def enroot_reference(image: str) -> str:
    """enroot wants `host#team/image` where others write `host/team/image`."""
    host, slash, rest = image.partition("/")
    is_registry = "." in host or ":" in host or host == "localhost"
    if not slash or not is_registry or image.startswith((".", "/")) or "#" in image:
        return image
    return f"{host}#{rest}"


def _mounts(trial: TrialSpec) -> Iterator[str]:
    for mount in mounts_of(trial):
        for path in (str(mount.source), mount.target):
            if "," in path or ":" in path:
                raise UsageError(
                    f"pyxis cannot mount {path!r}: it takes , and : as separators; mount a link "
                    "to it instead",
                    where=f"environment {trial.environment.name}",
                )
        yield f"{mount.source}:{mount.target}{':ro' if mount.read_only else ''}"
