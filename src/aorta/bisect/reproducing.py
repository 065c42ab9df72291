"""The exact command that shows one side of an answer inside a container."""

import shlex

from aorta.bisect.experiment import ProbedCommand
from aorta.bisect.images import Base
from aorta.core.trial import RuntimeKind
from aorta.runtimes.containers import ENGINES
from aorta.runtimes.engine import client_of
from aorta.runtimes.pyxis import ONCE, image_options


def reproduce_inside(base: Base, command: ProbedCommand, script: str) -> str:
    """Checkouts, builds and the test in one container; the image is the one everybody can pull."""
    environment = base.environment
    image = str(environment.image or base.image)
    whole = "\n".join(part for part in (script, shlex.join(command.command)) if part)
    variables = list(command.env)  # by name alone: a value may be a secret
    options = command.environment.options
    if environment.kind is RuntimeKind.PYXIS:
        words = ["srun", *image_options(image, environment.mounts, variables), *options]
        words += ONCE if script else ()
    else:
        client, own = client_of(ENGINES[environment.kind], options)
        words = [environment.kind.value, *client.argv[1:], "run", "--rm", "--network=host", *own]
        words += [f"--volume={mount}" for mount in environment.mounts]
        words += [f"--env={variable}" for variable in variables]
        words.append(image)
    return shlex.join([*words, "sh", "-c", whole])
