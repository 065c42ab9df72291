"""Makes one image from another by running a script in it: `docker commit`, or pyxis' own way to save a container.

Runs as a process of its own (`python -m aorta.bisect.imaging JOB.json`), so that it goes through the executor like a
trial. The container carries its owner, so that one whose maker was killed is swept away later.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from aorta.core.trial import Environment, RuntimeKind
from aorta.runtimes.containers import ENGINES
from aorta.runtimes.engine import client_of, image_named
from aorta.runtimes.owner import OWNER_LABEL, Owner


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

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)


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
    """Saved beside its place and moved there when whole."""
    unfinished = f"{job.target}.unfinished.sqsh"
    names = ",".join(job.env)
    run = (
        "srun",
        "--ntasks=1",
        f"--container-image={job.base}",
        f"--container-save={unfinished}",
        f"--container-mounts={','.join(job.mounts)}",
        "--container-remap-root",
        "--container-writable",
        "--no-container-mount-home",
        *([f"--container-env={names}"] if names else []),
        *job.options,
        "sh",
        "-c",
        job.script,
    )
    done = subprocess.run(run, stdin=subprocess.DEVNULL, env={**os.environ, **job.env}, check=False)
    if done.returncode == 0:
        Path(unfinished).replace(job.target)
    return done.returncode


if __name__ == "__main__":
    main()
