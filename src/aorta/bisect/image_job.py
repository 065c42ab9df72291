"""Makes one image from another by running a script in it: `docker commit`, or pyxis' own way to save a container.

Runs as a process of its own (`python -m aorta.bisect.image_job JOB.json`), so that it goes through the executor like a
trial. The container carries its owner, so that one whose maker was killed is swept away later.
"""

import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from aorta.core.trial import Environment, RuntimeKind
from aorta.runtimes.containers import ENGINES
from aorta.runtimes.engine import client_of, image_named
from aorta.runtimes.owner import OWNER_LABEL, Owner
from aorta.runtimes.pyxis import ONCE, image_options

SAVING = "saving"  # the directory of images that are not whole yet
_SQUASHFS_HEAD = struct.Struct("<4s36xQ")
_SAVE_POLL = 0.1
_SAVE_PATIENCE = 120.0


@dataclass(frozen=True)
class ImageJob:
    """`script` runs in `base`; what it leaves becomes `target`: a tag, or the path of a squashfs file."""

    kind: str
    base: str
    target: str
    script: str
    mounts: Sequence[str] = ()
    options: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def ordered(self, path: Path) -> tuple[str, ...]:
        """The command that does it, told by a file that others may not read: its variables may be secrets."""
        path.touch(mode=0o600)
        path.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
        return (sys.executable, "-m", __name__, str(path))


def main() -> None:
    job = ImageJob(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    raise SystemExit(_by_pyxis(job) if job.kind == RuntimeKind.PYXIS else _by_engine(job))


def _by_engine(job: ImageJob) -> int:
    environment = Environment("build", RuntimeKind(job.kind), options=tuple(job.options))
    client, options = client_of(ENGINES[environment.kind], environment.options)
    name = f"aorta-build-{os.getpid()}-{Path(job.target).name.replace(':', '-')}"
    run = client.command(
        "run",
        f"--name={name}",
        f"--label={OWNER_LABEL}={Owner.of_this_process().label}",
        "--network=host",
        "--log-driver=none",
        *(f"--volume={mount}" for mount in job.mounts),
        *(f"--env={variable}" for variable in job.env),
        *options,
        image_named(client, job.base).id,
        "sh",
        "-c",
        job.script,
    )
    # Turned into an exception, so that the container goes on every way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        environ = {**os.environ, **job.env}
        code = subprocess.run(run, stdin=subprocess.DEVNULL, env=environ, check=False).returncode
        if code == 0:
            commit = client.command("commit", name, job.target)
            code = subprocess.run(commit, stdout=subprocess.DEVNULL, check=False).returncode
    finally:
        subprocess.run(client.remove(name), capture_output=True, check=False)
    return code


def _by_pyxis(job: ImageJob) -> int:
    """Saved in a directory beside its place and moved there when whole.

    The plugin saves after the task, whatever became of it, and srun does not wait for that. So a save may come late; once
    its directory is gone it can leave nothing behind.
    """
    saving = Path(job.target).parent / SAVING
    saving.mkdir(parents=True, exist_ok=True)
    unfinished = saving / Path(job.target).name
    unfinished.unlink(missing_ok=True)
    run = (
        "srun",
        *image_options(job.base, job.mounts, job.env),
        f"--container-save={unfinished}",
        *job.options,
        *ONCE,
        "sh",
        "-c",
        job.script,
    )
    done = subprocess.run(run, stdin=subprocess.DEVNULL, env={**os.environ, **job.env}, check=False)
    if done.returncode:
        return done.returncode
    if not _became_whole(unfinished):
        print(f"pyxis did not save the container as {unfinished}", file=sys.stderr)
        return 1
    unfinished.replace(job.target)
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


if __name__ == "__main__":
    main()
