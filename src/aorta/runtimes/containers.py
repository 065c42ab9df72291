"""One container for one trial, by docker or podman: exactly the trial's variables, removed whatever
happens.

No value stands in a process list: `--env NAME` passes on one of the client's own. Those that the
client or its loader would obey (PATH, LD_LIBRARY_PATH ...) go through a private file.
"""

import csv
import getpass
import io
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aorta.core.errors import UsageError
from aorta.core.names import check_variable, slug
from aorta.core.trial import TrialSpec
from aorta.runtimes.engine import (
    ENGINES,
    ROOT,
    Client,
    ContainerEngine,
    Image,
    client_of,
    gpu_options,
    image_named,
    is_rootless,
    names_devices,
)
from aorta.runtimes.launch import Launch, Mount, mounts_of, variables_of

# The option by which a container runs as the user that its image names, not as the caller.
IMAGES_USER = "--user="

# Each stands unless the environment's options name it, or its other spelling.
_DEFAULTS = (
    (("--network", "--net"), "--network=host"),
    (("--init",), "--init"),
    # The executor keeps the output; twice is once too often.
    (("--log-driver",), "--log-driver=none"),
    (("--pull",), "--pull=never"),  # the image is there already, and named by its id
)

# The client writes the container's id once the engine has made it. Where the client was stopped
# before that, the engine may yet make one: so look again for a while.
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
_IF_SOMEBODY_ELSES = """
place=$1; shift
if [ -n "$(find "$place" ! -user "$(id -u)" 2>/dev/null | head -n 1)" ]; then "$@"; fi
"""


def container_launch(trial: TrialSpec) -> Launch:
    environment = trial.environment
    engine = ENGINES[environment.kind]
    client, options = client_of(engine, environment.options)
    reference = environment.image
    if not reference:
        raise UsageError(
            f"its kind is {environment.kind} and it names no image; add the image's reference",
            where=f"environment {environment.name}",
        )
    mounts = mounts_of(trial)  # a wrong one is refused before anything is pulled
    image = image_named(client, reference)
    # Beside the trial's results, under the name that is never packed or shown.
    private = trial.trial_dir.absolute() / ".aorta"
    private.mkdir(parents=True, exist_ok=True)
    # What a snapshot taken inside the container reports as the image it runs in.
    known = {"AORTA_DOCKER_IMAGE": reference, "AORTA_DOCKER_DIGEST": image.digest}
    variables = {**variables_of(trial), **known}
    passed = passed_variables(engine, variables, private)
    # A user of the image's own may write into the trial's directory; root may anyway.
    if IMAGES_USER in options and image.user not in ROOT:
        trial.trial_dir.chmod(0o1777)
    # Says whose it is, and never meets an earlier attempt's name.
    whose = f"{slug(user_name())}-{os.getpid()}"
    name = f"aorta-{whose}-{slug(trial.id)[:80]}-{secrets.token_hex(3)}"
    id_file = private / f"{name}.id"
    words = (
        "run",
        f"--name={name}",
        f"--cidfile={id_file}",
        *_run_options(trial, client, options, mounts),
        f"--workdir={trial.cwd.absolute()}",
        *passed.options,
        *options,
        image.id,
        *trial.argv,
    )
    return Launch(
        argv=client.command(*words),
        cwd=trial.cwd,
        env=passed.client_env,
        unset=passed.client_unset,
        cleanup=(
            ("sh", "-c", _REMOVE, "remove", str(id_file), *client.remove(name)),
            *passed.cleanup,
            *_handed_over(client, options, image, trial.trial_dir.absolute()),
        ),
        container=name,
        image_digest=image.digest,
        refusals=engine.refusals,
        ran_out_of_memory=client.command("inspect", "--format={{.State.OOMKilled}}", name),
    )


def options_of_run(trial: TrialSpec) -> tuple[str, ...]:
    """Of the engine and its `run`, for a container like that of this trial that goes once ended."""
    client, options = client_of(ENGINES[trial.environment.kind], trial.environment.options)
    own = _run_options(trial, client, options, mounts_of(trial))
    return ("--rm", *own, *trial.environment.options)


def _run_options(
    trial: TrialSpec, client: Client, options: Sequence[str], mounts: Sequence["Mount"]
) -> tuple[str, ...]:
    """All but its name, its variables, and the options that the environment names."""
    engine = client.engine
    given = {option.partition("=")[0] for option in options}
    # The caller, where root inside is root outside: the trial's files stay the caller's.
    is_callers = os.geteuid() == 0 or engine.root_is_caller
    is_chosen = is_callers or not given.isdisjoint({"--user", "-u"}) or is_rootless(client)
    return (
        f"--label=aorta.pid={os.getpid()}",
        f"--label=aorta.user={user_name()}",
        f"--label=aorta.trial={trial.id}",
        f"--label=aorta.image={trial.environment.image}",
        *(default for names, default in _DEFAULTS if given.isdisjoint(names)),
        # Without it SELinux forbids the mounts, or relabels the host's files.
        "--security-opt=label=disable",
        *engine.run_options,
        *([] if is_chosen else [f"--user={os.geteuid()}:{os.getegid()}"]),
        *(() if names_devices(options) else gpu_options(trial.resources.gpus, engine)),
        *(f"--mount={_mount_option(mount)}" for mount in mounts),
    )


def user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        return str(os.geteuid())


def _handed_over(
    client: Client, options: Sequence[str], image: Image, trial_dir: Path
) -> Iterator[tuple[str, ...]]:
    """What another user wrote into the trial's directory is given to the caller, by root inside."""
    if IMAGES_USER not in options or os.geteuid() == 0:
        return
    inside_is_caller = client.engine.root_is_caller or is_rootless(client)
    caller = "0:0" if inside_is_caller else f"{os.geteuid()}:{os.getegid()}"
    mount = _mount_option(Mount(trial_dir, "/handed-over"))
    run = client.command(
        "run",
        "--rm",
        "--user=0",
        "--network=none",
        "--entrypoint=chown",
        f"--mount={mount}",
        "--security-opt=label=disable",
        image.id,
        "-R",
        caller,
        "/handed-over",
    )
    yield ("sh", "-c", _IF_SOMEBODY_ELSES, "hand-over", str(trial_dir), *run)


def _mount_option(mount: "Mount") -> str:
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}"]
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(
        [*fields, *(["readonly"] if mount.read_only else [])]
    )
    return line.getvalue()


# -- variables


_OBEYED = re.compile(
    r"(HOME|LANG|LOGNAME|PATH|SHELL|TERM|TMPDIR|TZ|USER)\Z"
    r"|BUILDKIT|CONTAINER|DBUS_|DOCKER_|GCONV_|GLIBC_|GO|LC_|LD_|LISTEN_|MALLOC_|NOTIFY_|OTEL_"
    r"|PODMAN_|REGISTRY_|SSH_|SSL_|STORAGE_|XDG_|_CONTAINERS"
)


@dataclass(frozen=True)
class PassedVariables:
    """Options of `run`, the client's side of them, and what removes the traces."""

    options: tuple[str, ...]
    client_env: Mapping[str, str]
    client_unset: frozenset[str]
    cleanup: tuple[tuple[str, ...], ...]


def passed_variables(
    engine: ContainerEngine, variables: Mapping[str, str], directory: Path
) -> PassedVariables:
    for name, value in variables.items():
        check_variable(name, value, where="env")
    by_file = {name: value for name, value in variables.items() if _OBEYED.match(name)}
    by_name = {name: value for name, value in variables.items() if name not in by_file}
    kept_out = [name for name in engine.keeps_out if name not in variables]
    options = [f"--env={name}" for name in (*sorted(by_name), *kept_out)]
    cleanup: list[tuple[str, ...]] = []
    if by_file:
        path = _written(by_file, directory)
        options.append(f"--env-file={path}")
        cleanup.append(("rm", "-f", str(path)))
    return PassedVariables(tuple(options), by_name, frozenset(kept_out), tuple(cleanup))


def _written(variables: Mapping[str, str], directory: Path) -> Path:
    for name, value in variables.items():
        if "\n" in value or "\r" in value:
            raise UsageError(
                f"the value of {name} holds a line break, which a container engine cannot take for "
                "a variable that its own client obeys; set it inside the command instead",
                where="env",
            )
    path = directory / "container.env"
    path.unlink(missing_ok=True)  # an earlier one may have wider permissions
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.writelines(f"{name}={value}\n" for name, value in sorted(variables.items()))
    return path
