"""What an executor needs to start one trial and leave nothing behind; on the host, in a virtual
environment, or under pyxis. The code of container engines is loaded for them alone.
"""

import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aorta.core.errors import InfrastructureError, UsageError
from aorta.core.names import check_variable
from aorta.core.trial import STEP_TIMES_FILE, RuntimeKind, TrialSpec


@dataclass(frozen=True)
class Refusal:
    """How a starter says that an exit is its own: an exit code, and a line of stderr."""

    exit_code: int
    says: str  # a regular expression
    means: str = "the container did not start"


ANY_CODE = -1  # whatever it fails with

# What our process around a workload says where that never began, or its result is lost.
_OURS = (
    Refusal(126, r"^aorta: cannot (?:read the order|keep the result)", "the workload did not run"),
)


@dataclass(frozen=True)
class Launch:
    """One process to start. For a container, all of it is the engine client's."""

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)  # set on top of what is inherited
    unset: frozenset[str] = frozenset()  # inherited variables that must not get through
    # Run them however it ends; their exit code is no news.
    cleanup: tuple[tuple[str, ...], ...] = ()
    container: str | None = None
    image_digest: str | None = None
    refusals: tuple[Refusal, ...] = ()
    ran_out_of_memory: tuple[str, ...] = ()  # prints `true` if the kernel killed it for memory

    def environ(self, host: Mapping[str, str]) -> dict[str, str]:
        """The whole environment of the process, given the host's."""
        kept = {name: value for name, value in host.items() if name not in self.unset}
        return {**kept, **self.env}

    def refusal(self, exit_code: int | None, stderr_tail: str) -> str | None:
        """Why this end is not the command's own, else None; the exit code alone does not tell."""
        for known in (*self.refusals, *_OURS):
            if known.exit_code == exit_code or (known.exit_code == ANY_CODE and exit_code):
                line = re.search(rf"^.*?(?:{known.says}).*", stderr_tail, re.MULTILINE)
                if line:
                    return f"{known.means}: {line[0].strip()[:300]}"
        return None


def launch_for(trial: TrialSpec) -> Launch:
    """How to start `trial`. Its `env` must hold every layer, its devices included."""
    match trial.environment.kind:
        case RuntimeKind.HOST:
            return Launch(argv=trial.argv, cwd=trial.cwd, env=variables_of(trial))
        case RuntimeKind.VENV:
            return _venv_launch(trial)
        case RuntimeKind.DOCKER | RuntimeKind.PODMAN:
            from aorta.runtimes.containers import container_launch

            return container_launch(trial)
        case RuntimeKind.PYXIS:
            return _pyxis_launch(trial)


def variables_of(trial: TrialSpec) -> dict[str, str]:
    """The trial's resolved layers, and what every trial finds: a place of its own."""
    metric, folder = metric_file_of(trial), trial.trial_dir.absolute()
    own = {} if metric is None else {"AORTA_METRIC_FILE": str(metric)}
    return {
        **trial.env,
        "AORTA_TRIAL_DIR": str(folder),
        "AORTA_STEP_TIMES": str(folder / STEP_TIMES_FILE),
        **own,
    }


def metric_file_of(trial: TrialSpec) -> Path | None:
    """Where this trial alone may leave its metric; None where no metric is asked for."""
    if trial.watch.json_file is None:
        return None
    name = Path(trial.watch.json_file)
    return trial.trial_dir.absolute() / (name.name if name.is_absolute() else name)


def _venv_launch(trial: TrialSpec) -> Launch:
    environment = trial.environment
    where = f"environment {environment.name}"
    if environment.venv is None:
        raise UsageError(
            "its kind is venv and it names none; add venv: PATH to its definition", where=where
        )
    # Links are kept: a virtual environment knows itself by the path it was made with.
    venv = trial.cwd.absolute() / Path(environment.venv).expanduser()
    if not (venv / "bin" / "python").exists():
        raise UsageError(
            f"{venv} is not a virtual environment: it has no bin/python; "
            f"make it with: python3 -m venv {venv}",
            where=where,
        )
    variables = variables_of(trial)
    search_path = variables.get("PATH", os.environ.get("PATH", os.defpath))
    activated = {"VIRTUAL_ENV": str(venv), "PATH": f"{venv / 'bin'}{os.pathsep}{search_path}"}
    unset = frozenset({"PYTHONHOME"} - variables.keys())
    return Launch(argv=trial.argv, cwd=trial.cwd, env={**variables, **activated}, unset=unset)


# -- which directories of the host it sees


@dataclass(frozen=True)
class Mount:
    source: Path
    target: str
    read_only: bool = False


def mounts_of(trial: TrialSpec) -> tuple[Mount, ...]:
    """The working directory, the trial's directory, and the environment's own, which win."""
    paths = (trial.cwd.absolute(), trial.trial_dir.absolute())
    here = [Mount(path, str(path)) for path in paths if path != Path("/")]
    named = [_parsed(text, trial) for text in trial.environment.mounts]
    by_target = {mount.target: mount for mount in (*here, *named)}
    return tuple(by_target.values())


def _parsed(text: str, trial: TrialSpec) -> Mount:
    source, *rest = text.split(":")
    target = rest[0] if rest else ""
    mode = rest[1:]
    if not source or not target.startswith("/") or mode not in ([], ["ro"], ["rw"]):
        raise UsageError(
            f"found mount {text!r}, expected SOURCE:DESTINATION or SOURCE:DESTINATION:ro "
            "with an absolute DESTINATION",
            where=f"environment {trial.environment.name}",
        )
    return Mount(trial.cwd.absolute() / Path(source).expanduser(), target, read_only=mode == ["ro"])


# -- containers under Slurm through the pyxis plugin: a trial's environment as options of srun.
#
# The image is imported on the compute node, so nothing is asked of an engine here, and a digest is
# known only when the reference itself holds one.


ONCE = ("--nodes=1", "--ntasks=1")
"""Options of a step that runs once, whatever the size of the allocation."""

ENDED_BY_SLURM = (
    Refusal(ANY_CODE, r"\*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT \S+ DUE TO ", "Slurm ended it"),
    Refusal(ANY_CODE, r"^srun: error: Node failure on ", "Slurm ended it"),
)
"""In which words a step says that the scheduler ended it; a rank that ends the others says less."""

# Refusals of srun, of the plugin in a step, and of a command that the image lacks (its errno).
_REFUSALS = (
    Refusal(255, r"^(?:\S*/)?srun: (?:error: |unrecognized option|invalid option)"),
    Refusal(1, r"^(?:srun|slurmstepd\S*): error: .*(?:pyxis|spank)"),
    Refusal(2, r"^slurmstepd\S*: error: execve\(\)"),
    Refusal(13, r"^slurmstepd\S*: error: execve\(\)"),
)


def _pyxis_launch(trial: TrialSpec) -> Launch:
    """A step in the allocation that the caller already has."""
    srun = shutil.which("srun")
    if srun is None:
        raise InfrastructureError(
            "srun is not on PATH, and pyxis is a plugin of it; install it with: apt-get install "
            "slurm-client"
        )
    return Launch(
        argv=(srun, *srun_options(trial), *trial.argv),
        cwd=trial.cwd,
        env=_variables(trial),
        image_digest=_image(trial).partition("@")[2] or None,
        refusals=(*_REFUSALS, *ENDED_BY_SLURM),
    )


IMAGES_WORKDIR = "--container-workdir="
"""The option that says: where the image itself says. Pyxis takes no empty one, so it is left
out.
"""


def srun_options(trial: TrialSpec) -> tuple[str, ...]:
    """The environment as options of an srun that is started with the trial's variables: they go by
    name, so that no value stands in a process list.
    """
    options = trial.environment.options
    mounts = [f"{m.source}:{m.target}{':ro' if m.read_only else ''}" for m in mounts_of(trial)]
    elsewhere = any(option.startswith("--container-workdir=") for option in options)
    return (
        *image_options(_image(trial), mounts, _variables(trial)),
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
    digest = image.partition("@")[2]
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


def enroot_reference(image: str) -> str:
    """enroot wants `host#team/image` where others write `host/team/image`."""
    host, slash, rest = image.partition("/")
    is_registry = "." in host or ":" in host or host == "localhost"
    if not slash or not is_registry or image.startswith((".", "/")) or "#" in image:
        return image
    return f"{host}#{rest}"
