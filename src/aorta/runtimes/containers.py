"""One container for one trial, by docker or podman: exactly the trial's variables, removed whatever happens.

Knows nothing of how a trial is watched or killed: the executor starts the client, and runs `cleanup` afterwards.
"""

import csv
import getpass
import io
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

from aorta.core.errors import UsageError
from aorta.core.names import slug
from aorta.core.trial import RuntimeKind, TrialSpec
from aorta.runtimes.container_env import passed_variables
from aorta.runtimes.devices import gpu_options, names_devices
from aorta.runtimes.docker import DOCKER
from aorta.runtimes.engine import Client, Image, client_of, image_named, is_rootless
from aorta.runtimes.launch import Launch, variables_of
from aorta.runtimes.mounts import Mount, mounts_of
from aorta.runtimes.owner import OWNER_LABEL, Owner
from aorta.runtimes.podman import PODMAN

ENGINES = {RuntimeKind.DOCKER: DOCKER, RuntimeKind.PODMAN: PODMAN}

# Each stands unless the environment's options name it, or its other spelling.
_DEFAULTS = (
    (("--network", "--net"), "--network=host"),
    (("--init",), "--init"),
    (
        ("--log-driver",),
        "--log-driver=none",
    ),  # the executor keeps the output; twice is once too often
    (("--pull",), "--pull=never"),  # the image is there already, and named by its id
)

# The client writes the container's id once the engine has made it. Where it never did, it may have been stopped in between,
# and the engine may yet make what nobody waits for: so look again for a while.
_REMOVE = """
made=$1; shift
removed=$("$@")
for again in 1 2 3 4 5 6 7 8 9 10; do
  if [ -n "$removed" ] || [ -s "$made" ]; then break; fi
  sleep 0.3
  removed=$("$@")
done
rm -f "$made"
"""


def container_launch(trial: TrialSpec) -> Launch:
    environment = trial.environment
    engine = ENGINES[environment.kind]
    client, options = client_of(engine, environment.options)
    reference = _reference(trial)
    mounts = mounts_of(trial)  # a wrong one is refused before anything is pulled
    image = image_named(client, reference)
    name = _name(trial)
    private = _private_directory(trial)
    id_file = private / f"{name}.id"
    variables = {**variables_of(trial), **_image_variables(reference, image)}
    passed = passed_variables(engine, variables, private)
    return Launch(
        argv=client.command(
            "run",
            f"--name={name}",
            f"--cidfile={id_file}",
            *_labels(trial),
            *_defaults(options),
            *engine.run_options,
            *_user(client, options),
            *(() if names_devices(options) else gpu_options(trial.resources.gpus, engine)),
            *(f"--mount={_mount_option(mount)}" for mount in mounts),
            f"--workdir={trial.cwd.absolute()}",
            *passed.options,
            *options,
            image.id,
            *trial.argv,
        ),
        cwd=trial.cwd,
        env=passed.client_env,
        unset=passed.client_unset,
        cleanup=(
            ("sh", "-c", _REMOVE, "remove", str(id_file), *client.remove(name)),
            *passed.cleanup,
        ),
        container=name,
        image_digest=image.digest,
        refusals=engine.refusals,
        ran_out_of_memory=client.command("inspect", "--format={{.State.OOMKilled}}", name),
    )


def _reference(trial: TrialSpec) -> str:
    environment = trial.environment
    if not environment.image:
        raise UsageError(
            f"its kind is {environment.kind} and it names no image; add the image's reference",
            where=f"environment {environment.name}",
        )
    return environment.image


def _private_directory(trial: TrialSpec) -> Path:
    """Beside the trial's results, under the name that is never packed or shown."""
    private = trial.trial_dir.absolute() / ".aorta"
    private.mkdir(parents=True, exist_ok=True)
    return private


def _image_variables(reference: str, image: Image) -> dict[str, str]:
    """What a snapshot taken inside the container reports as the image it runs in."""
    return {"AORTA_DOCKER_IMAGE": reference, "AORTA_DOCKER_DIGEST": image.digest}


def _name(trial: TrialSpec) -> str:
    """Says whose it is, and never meets the name of an earlier attempt that is still being removed."""
    return f"aorta-{slug(_user_name())}-{os.getpid()}-{slug(trial.id)[:80]}-{secrets.token_hex(3)}"


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        return str(os.geteuid())


def _labels(trial: TrialSpec) -> Iterator[str]:
    yield f"--label={OWNER_LABEL}={Owner.of_this_process().label}"
    yield f"--label=aorta.pid={os.getpid()}"
    yield f"--label=aorta.user={_user_name()}"
    yield f"--label=aorta.trial={trial.id}"
    yield f"--label=aorta.image={trial.environment.image}"


def _defaults(options: Sequence[str]) -> Iterator[str]:
    given = {option.partition("=")[0] for option in options}
    yield from (default for names, default in _DEFAULTS if given.isdisjoint(names))
    yield "--security-opt=label=disable"  # without it SELinux forbids the mounts, or relabels the host's files


def _user(client: Client, options: Sequence[str]) -> Iterator[str]:
    """The caller, where root inside would be root outside: the trial's files must stay the caller's own."""
    given = {option.partition("=")[0] for option in options}
    if os.geteuid() == 0 or client.engine.root_is_caller or not given.isdisjoint({"--user", "-u"}):
        return
    if not is_rootless(client):
        yield f"--user={os.geteuid()}:{os.getegid()}"


def _mount_option(mount: Mount) -> str:
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}"]
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(
        [*fields, *(["readonly"] if mount.read_only else [])]
    )
    return line.getvalue()
