"""A container engine through its own command: is it there, which image is this, which GPUs.

Images are looked up once a process; a missing one is pulled. What runs is the image by its id, so
that a tag that moves during a long search cannot change what is measured.
"""

import functools
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta.core.errors import InfrastructureError
from aorta.core.trial import Environment, RuntimeKind
from aorta.runtimes.launch import Refusal
from aorta.runtimes.programs import heard

_PATIENCE = 60.0  # seconds for a question that an engine answers in milliseconds
_ABSENT = ("no such image", "image not known", "failed to find image")


@dataclass(frozen=True)
class ContainerEngine:
    """The few differences between engines, as data."""

    command: str
    install: str  # the command that mends its absence
    start: str  # what to do when it does not answer
    client_options: frozenset[str]  # options that stand before the subcommand; each takes a value
    run_options: tuple[str, ...]  # further defaults of `run`
    remove: tuple[str, ...]
    refusals: tuple[Refusal, ...]
    nvidia: tuple[str, ...]  # options of `run` that let NVIDIA's devices in
    keeps_out: tuple[str, ...]  # variables the client would add of its own accord
    root_is_caller: bool  # root in a container started by a plain user is that user


@dataclass(frozen=True)
class Client:
    """The engine's command with the options that choose the engine it talks to."""

    engine: ContainerEngine
    argv: tuple[str, ...]

    def command(self, *words: str) -> tuple[str, ...]:
        return (*self.argv, *words)

    def remove(self, container: str) -> tuple[str, ...]:
        return self.command(*self.engine.remove, container)


@dataclass(frozen=True)
class Image:
    """`digest`: the registry's, or a local id. `entrypoint`: the words before every command."""

    id: str
    digest: str
    user: str = ""
    entrypoint: tuple[str, ...] = ()


ROOT = ("", "0", "root", "0:0", "root:root")
"""The ways in which an image says that it runs as root."""


def client_of(engine: ContainerEngine, options: Sequence[str]) -> tuple[Client, tuple[str, ...]]:
    """The client, and the options that are left for its `run`."""
    path = shutil.which(engine.command)
    if path is None:
        raise InfrastructureError(
            f"{engine.command} is not installed, or not on PATH; install it with: {engine.install}"
        )
    chosen: list[str] = []
    left: list[str] = []
    words = iter(options)
    for word in words:
        name, has_value, _ = word.partition("=")
        if name not in engine.client_options:
            left.append(word)
        elif has_value:
            chosen.append(word)
        else:
            chosen += [word, *(value for value in [next(words, None)] if value is not None)]
    return Client(engine, (path, *chosen)), tuple(left)


def image_named(client: Client, reference: str) -> Image:
    """The image, pulled if the engine has none of that name."""
    found = present_image(client, reference)
    if found is None:
        command = client.engine.command
        # No time limit: an image may weigh tens of gigabytes.
        done = ask(client, "pull", "--quiet", reference, patience=None)
        if done.returncode != 0:
            raise InfrastructureError(
                f"{command} has no image {reference!r} and cannot pull it: {_gist(done.stderr)}; "
                f"get it with: {command} pull {reference}"
            )
        found = present_image(client, reference)
    if found is None:
        raise InfrastructureError(f"{client.engine.command} does not know {reference!r} it pulled")
    return found


@functools.cache
def is_rootless(client: Client) -> bool:
    """True where root inside a container is the user who owns the engine."""
    answer = ask(client, "info", "--format", "{{json .SecurityOptions}}")
    return "name=rootless" in answer.stdout


def ask(
    client: Client, *words: str, patience: float | None = _PATIENCE
) -> subprocess.CompletedProcess[str]:
    """Put one question to the engine. A refusal is an answer; silence is an error."""
    name = client.engine.command
    try:
        return heard(client.command(*words), timeout=patience)
    except subprocess.TimeoutExpired:
        raise InfrastructureError(
            f"{name} {words[0]} gave no answer within {_PATIENCE:.0f} s; {client.engine.start}"
        ) from None


_FOUND: dict[tuple[Client, str], Image] = {}


def present_image(client: Client, reference: str) -> Image | None:
    """The image if the engine has one of that name; what was found once is not asked for again."""
    if (client, reference) in _FOUND:
        return _FOUND[client, reference]
    answer = ask(client, "image", "inspect", reference)
    if answer.returncode == 0:
        found = _image(json.loads(answer.stdout)[0])
        return _FOUND.setdefault((client, reference), found)
    if any(words in answer.stderr.lower() for words in _ABSENT):
        return None
    raise InfrastructureError(
        f"the {client.engine.command} engine does not answer: {_gist(answer.stderr)}; "
        f"{client.engine.start}"
    )


def is_at_hand(environment: Environment) -> bool:
    """Whether the engine has the image, so that no registry is asked for it."""
    if environment.kind not in ENGINES:
        return False
    client, _ = client_of(ENGINES[environment.kind], environment.options)
    return present_image(client, str(environment.image)) is not None


def _image(facts: dict[str, Any]) -> Image:
    digest = (facts.get("RepoDigests") or [facts["Id"]])[0].rpartition("@")[2]
    digest = digest if ":" in digest else f"sha256:{digest}"
    config = facts.get("Config") or {}
    entrypoint = config.get("Entrypoint") or ()
    words = (entrypoint,) if isinstance(entrypoint, str) else tuple(entrypoint)
    return Image(facts["Id"], digest, str(config.get("User") or ""), words)


def _gist(stderr: str) -> str:
    """The line of an engine's complaint that says what is wrong."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("Error", "Cannot", "error"))]
    return (telling or lines or ["it said nothing"])[0][:300]


# -- what is particular to each


_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy")

DOCKER = ContainerEngine(
    command="docker",
    install="apt-get install docker.io",
    start="systemctl start docker, or point DOCKER_HOST at the engine",
    client_options=frozenset({"--config", "--context", "--host", "--log-level", "-H"}),
    run_options=(),
    remove=("rm", "--force", "--volumes"),
    refusals=(
        Refusal(
            125, r"^docker: |^unknown |^invalid |'docker run --help'|error waiting for container"
        ),
        Refusal(126, r"^docker: |^\[FATAL tini "),  # of --init, which starts the command
        Refusal(127, r"^docker: |^\[FATAL tini "),
        Refusal(1, r"^Error response from daemon: .*[Cc]ontainer"),
    ),
    nvidia=("--gpus=all",),
    # The client's configuration may add proxies to every container; unset keeps them out.
    keeps_out=(*_PROXIES, *(name.upper() for name in _PROXIES)),
    root_is_caller=False,
)

PODMAN = ContainerEngine(
    command="podman",
    install="apt-get install podman catatonit",
    start="see what is wrong with: podman info",
    client_options=frozenset(
        {
            *("--cgroup-manager", "--connection", "--identity", "--log-level", "--root"),
            *("--runroot", "--runtime", "--storage-driver", "--storage-opt", "--url"),
        }
    ),
    run_options=("--http-proxy=false",),  # it copies the host's proxies into a container otherwise
    remove=("rm", "--force", "--volumes", "--time", "0"),  # its --force alone waits ten seconds
    refusals=(
        Refusal(125, r"^Error: "),
        Refusal(126, r"^Error: .*OCI"),
        Refusal(127, r"^Error: .*OCI|^Error: .*executable file"),
        Refusal(1, r"^ERROR \(catatonit:\d+\): failed to exec"),  # --init hides the usual 127
    ),
    nvidia=("--device=nvidia.com/gpu=all",),
    keeps_out=(),
    root_is_caller=True,
)

ENGINES = {RuntimeKind.DOCKER: DOCKER, RuntimeKind.PODMAN: PODMAN}


# -- the GPUs of this machine: which of them a trial sees, and how an engine lets them in


_DEV = Path("/dev")
_LETTING_IN = frozenset({"--gpus", "--device"})


def has_gpus(dev: Path = _DEV) -> bool:
    return (dev / "nvidiactl").exists() or _is_amd(dev)


def shown_devices(devices: Sequence[str], dev: Path = _DEV) -> dict[str, str]:
    """Variables that show a trial these devices alone; HIP counts anew what ROCr has left to it."""
    chosen = ",".join(devices)
    left = ",".join(str(index) for index in range(len(devices))) if _is_amd(dev) else chosen
    shown = dict.fromkeys(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"), left)
    return {**shown, "ROCR_VISIBLE_DEVICES": chosen}


def visible_devices(found: Sequence[str], dev: Path = _DEV) -> list[str]:
    """The devices that this process was given, as `shown_devices` takes them; else all."""
    of_rocr, of_cuda = _given("ROCR_VISIBLE_DEVICES"), _given("CUDA_VISIBLE_DEVICES")
    left = of_cuda if of_cuda is not None else _given("HIP_VISIBLE_DEVICES")
    if left is None:
        return list(found) if of_rocr is None else of_rocr
    if of_rocr is None or not _is_amd(dev):
        return left
    return [of_rocr[int(n)] for n in left if n.isdigit() and int(n) < len(of_rocr)]


def _given(variable: str) -> list[str] | None:
    words = os.environ.get(variable)
    return None if words is None else [word.strip() for word in words.split(",") if word.strip()]


def names_devices(options: Sequence[str]) -> bool:
    """Whether somebody chose by hand, in the engine's own words, what is let in."""
    return any(option.partition("=")[0] in _LETTING_IN for option in options)


def gpu_options(count: int, engine: ContainerEngine, dev: Path = _DEV) -> tuple[str, ...]:
    """Every GPU of the machine; the *_VISIBLE_DEVICES of the trial choose the slot's own."""
    if count == 0:
        return ()
    if (dev / "nvidiactl").exists():
        return engine.nvidia
    if _is_amd(dev):
        # The nodes, and the groups that own them by number: an image need not know their names.
        nodes = [dev / "kfd", *(dev / "dri").glob("renderD*")]
        groups = sorted({node.stat().st_gid for node in nodes})
        shown = [f"--device={dev / 'kfd'}", f"--device={dev / 'dri'}"]
        return (*shown, *(f"--group-add={group}" for group in groups))
    raise InfrastructureError(
        f"the trial asks for {count} GPUs and this machine has neither {dev / 'nvidiactl'} nor "
        f"{dev / 'kfd'}; ask for none, or load the GPU's driver"
    )


def _is_amd(dev: Path) -> bool:
    return (dev / "kfd").exists()
