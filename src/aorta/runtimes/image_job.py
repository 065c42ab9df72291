"""Makes an image from another by running scripts in it: `docker commit`, or pyxis' own save.

A step that is made already, or by another job at this moment, is not made again. Runs as a process
of its own, so that it goes through the executor like a trial.
"""

import fcntl
import marshal
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from aorta.core.trial import RuntimeKind
from aorta.runtimes.engine import ENGINES, ask, client_of
from aorta.runtimes.launch import ONCE, image_options

SAVING = "saving"  # the directory of images that are not whole yet
_IDLE = ("sleep", "2147483647")  # what a container does in which others are to run
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
    """Steps from `base`, made in `container`; jobs of a run share the directory `place`."""

    kind: str
    base: str
    steps: Sequence[ImageStep]
    place: str
    container: str
    mounts: Sequence[str] = ()  # of pyxis; with docker and podman they stand in the options
    options: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    entrypoint: Sequence[str] = ()  # of the base
    push: str | None = None  # the last image under this name, to its registry


def main() -> None:
    content = marshal.loads(Path(sys.argv[1]).read_bytes())  # noqa: S302 - from a process of ours
    job = ImageJob(**{**content, "steps": [ImageStep(**step) for step in content["steps"]]})
    if job.kind == RuntimeKind.PYXIS:
        raise SystemExit(_made(job, partial(_by_pyxis, job)))
    # Turned into an exception, so that the container goes on every way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with closing(_OneContainer(job)) as container:
        raise SystemExit(_made(job, container.make) or container.push())


def _made(job: ImageJob, make: Callable[[str, ImageStep], int]) -> int:
    """The exit code of the first step that fails; those before the last may be another job's."""
    base = job.base
    for step in job.steps:
        name = Path(step.target).name.replace(":", "-")
        with (Path(job.place) / f"{name}.lock").open("w") as one_maker:
            fcntl.flock(one_maker, fcntl.LOCK_EX)
            shared = step is not job.steps[-1]
            is_there = shared and is_made(job.kind, job.options, step.target)
            code = 0 if is_there else make(base, step)
        if code:
            return code
        base = step.target
    return 0


def is_made(kind: str, options: Sequence[str], target: str) -> bool:
    if kind == RuntimeKind.PYXIS:
        return Path(target).exists()
    client, _ = client_of(ENGINES[RuntimeKind(kind)], options)
    return ask(client, "image", "inspect", target).returncode == 0


class _OneContainer:
    """docker and podman: one container for all steps that are not made already."""

    def __init__(self, job: ImageJob) -> None:
        self._job, self._is_started = job, False
        self._client, self._options = client_of(ENGINES[RuntimeKind(job.kind)], job.options)

    def close(self) -> None:
        if self._is_started:
            self._remove()

    def _remove(self) -> None:
        remove = self._client.remove(self._job.container)
        subprocess.run(remove, capture_output=True, check=False)

    def make(self, base: str, step: ImageStep) -> int:
        job = self._job
        if not self._is_started:
            self._is_started = True
            self._remove()  # that of a job which was killed
            variables = (f"--env={variable}" for variable in job.env)
            named = ("run", "--detach", f"--name={job.container}", *variables)
            if code := self._done(*named, *self._options, base, *_IDLE):
                return code
        run = ("exec", job.container, *job.entrypoint, "sh", "-c", step.script)
        return self._done(*run, shown=True) or self._done("commit", job.container, step.target)

    def push(self) -> int:
        if not self._job.push:
            return 0
        made, name = self._job.steps[-1].target, self._job.push
        return self._done("tag", made, name) or self._done("push", "--quiet", name)

    def _done(self, *words: str, shown: bool = False) -> int:
        return subprocess.run(
            self._client.command(*words),
            stdin=subprocess.DEVNULL,
            stdout=None if shown else subprocess.DEVNULL,
            env={**os.environ, **self._job.env},
            check=False,
        ).returncode


def _by_pyxis(job: ImageJob, base: str, step: ImageStep) -> int:
    """Saved beside its place and moved there when whole: pyxis saves after the task, and srun does
    not wait for that. A save that comes late finds its directory gone.
    """
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
