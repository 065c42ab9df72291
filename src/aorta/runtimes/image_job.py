"""Makes an image from another by running scripts in it: `docker commit`, or pyxis' own way to save
a container.

What one step makes, the next one starts from; a step that is made already, or by somebody else at
this moment, is not made again.

Runs as a process of its own, told by a file (standard library only), so that it goes through the
executor like a trial. The container carries its owner, so that one whose maker was killed is swept
away later.
"""

import fcntl
import marshal
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aorta.core.trial import Environment, RuntimeKind
from aorta.runtimes.engine import ENGINES, ask, client_of
from aorta.runtimes.owner import OWNER_LABEL, Owner

SAVING = "saving"  # the directory of images that are not whole yet
_SQUASHFS_HEAD = struct.Struct("<4s36xQ")
_SAVE_POLL = 0.1
_SAVE_PATIENCE = 120.0


@dataclass(frozen=True)
class ImageStep:
    """What the script leaves becomes `target`: a tag, or the path of a squashfs file."""

    target: str
    script: str


@dataclass(frozen=True)
class ImageJob:
    """The first step starts from `base`. `place` is a directory that the jobs of a run share."""

    kind: str
    base: str
    steps: Sequence[ImageStep]
    place: str
    mounts: Sequence[str] = ()
    options: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    push: str | None = None  # the last image under this name, to its registry


def main() -> None:
    content = marshal.loads(Path(sys.argv[1]).read_bytes())  # noqa: S302 - from a process of ours
    job = ImageJob(**{**content, "steps": [ImageStep(**step) for step in content["steps"]]})
    base = job.base
    for step in job.steps:
        with _one_maker(job, step):
            # The last one is why there is a job; those before it may be another's too.
            shared = step is not job.steps[-1]
            is_there = shared and is_made(job.kind, job.options, step.target)
            code = 0 if is_there else _make(job, base, step)
        if code:
            raise SystemExit(code)
        base = step.target
    if job.push:
        client, _ = client_of(ENGINES[RuntimeKind(job.kind)], job.options)
        for words in (("tag", base, job.push), ("push", "--quiet", job.push)):
            code = subprocess.run(
                client.command(*words), stdin=subprocess.DEVNULL, check=False
            ).returncode
            if code:
                raise SystemExit(code)


@contextmanager
def _one_maker(job: ImageJob, step: ImageStep) -> Iterator[None]:
    name = Path(step.target).name.replace(":", "-")
    with (Path(job.place) / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_made(kind: str, options: Sequence[str], target: str) -> bool:
    if kind == RuntimeKind.PYXIS:
        return Path(target).exists()
    client, _ = client_of(ENGINES[RuntimeKind(kind)], options)
    return ask(client, "image", "inspect", target).returncode == 0


def _make(job: ImageJob, base: str, step: ImageStep) -> int:
    make = _by_pyxis if job.kind == RuntimeKind.PYXIS else _by_engine
    return make(job, base, step)


def _by_engine(job: ImageJob, base: str, step: ImageStep) -> int:
    environment = Environment("build", RuntimeKind(job.kind), options=tuple(job.options))
    client, options = client_of(ENGINES[environment.kind], environment.options)
    name = f"aorta-build-{os.getpid()}-{Path(step.target).name.replace(':', '-')}"
    run = client.command(
        "run",
        f"--name={name}",
        f"--label={OWNER_LABEL}={Owner.of_this_process().label}",
        "--network=host",
        "--log-driver=none",
        *(f"--volume={mount}" for mount in job.mounts),
        *(f"--env={variable}" for variable in job.env),
        *options,
        base,
        "sh",
        "-c",
        step.script,
    )
    # Turned into an exception, so that the container goes on every way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        environ = {**os.environ, **job.env}
        code = subprocess.run(run, stdin=subprocess.DEVNULL, env=environ, check=False).returncode
        if code == 0:
            commit = client.command("commit", name, step.target)
            code = subprocess.run(commit, stdout=subprocess.DEVNULL, check=False).returncode
    finally:
        subprocess.run(client.remove(name), capture_output=True, check=False)
    return code


def _by_pyxis(job: ImageJob, base: str, step: ImageStep) -> int:
    """Saved in a directory beside its place and moved there when whole.

    The plugin saves after the task, whatever became of it, and srun does not wait for that. So a
    save may come late; once its directory is gone it can leave nothing behind.
    """
    from aorta.runtimes.pyxis import ONCE, image_options

    saving = Path(step.target).parent / SAVING
    saving.mkdir(parents=True, exist_ok=True)
    unfinished = saving / Path(step.target).name
    unfinished.unlink(missing_ok=True)
    run = (
        "srun",
        *image_options(base, job.mounts, job.env),
        f"--container-save={unfinished}",
        *job.options,
        *ONCE,
        "sh",
        "-c",
        step.script,
    )
    done = subprocess.run(run, stdin=subprocess.DEVNULL, env={**os.environ, **job.env}, check=False)
    if done.returncode:
        return done.returncode
    if not _became_whole(unfinished):
        print(f"pyxis did not save the container as {unfinished}", file=sys.stderr)
        return 1
    unfinished.replace(step.target)
    return 0


def _became_whole(image: Path) -> bool:
    """Wait for a squashfs file to be written; False once it has not grown for a long time."""
    size, since = -1, time.monotonic()
    while time.monotonic() - since < _SAVE_PATIENCE:
        if is_whole(image):
            return True
        grown = image.stat().st_size if image.exists() else -1
        if grown != size:
            size, since = grown, time.monotonic()
        time.sleep(_SAVE_POLL)
    return False


def is_whole(image: Path) -> bool:
    """The head of a squashfs file, which is written last, says how long the file is."""
    try:
        with image.open("rb") as file:
            head = file.read(_SQUASHFS_HEAD.size)
            length = file.seek(0, os.SEEK_END)
    except OSError:
        return False
    if len(head) < _SQUASHFS_HEAD.size:
        return False
    magic, used = _SQUASHFS_HEAD.unpack(head)
    return bool(magic == b"hsqs" and length >= used)
