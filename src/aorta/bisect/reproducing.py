"""The exact command that shows one side of an answer inside a container."""

import shlex

from aorta.bisect.experiment import ProbedCommand
from aorta.bisect.images import Base
from aorta.core.trial import RuntimeKind


def reproduce_inside(base: Base, command: ProbedCommand, script: str) -> str:
    """Checkouts, builds and the test in one container; the image is the one everybody can pull."""
    environment = base.environment
    image = str(environment.image or base.image)
    whole = "\n".join(part for part in (script, shlex.join(command.command)) if part)
    variables = list(command.env)  # by name alone: a value may be a secret
    workdir = [o for o in command.environment.options if "workdir=" in o]
    if environment.kind is RuntimeKind.PYXIS:
        words = ["srun", f"--container-image={image}", *workdir]
        if environment.mounts:
            words.append(f"--container-mounts={','.join(environment.mounts)}")
        words += [f"--container-env={','.join(variables)}"] if variables else []
    else:
        words = [environment.kind.value, "run", "--rm", "--network=host", *workdir]
        words += [f"--volume={mount}" for mount in environment.mounts]
        words += [f"--env={variable}" for variable in variables]
        words.append(image)
    return shlex.join([*words, "sh", "-c", whole])
