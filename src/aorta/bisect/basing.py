"""The bisection container: got once, with every commit in it that the search will need."""

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from aorta.bisect.git import Repository, without_secrets
from aorta.bisect.images import Base
from aorta.bisect.imaging import ImageJob
from aorta.bisect.inside import Contents, Inside
from aorta.bisect.place import digest_in
from aorta.bisect.spec import PackageSpec
from aorta.bisect.verb import Run
from aorta.core.errors import InfrastructureError
from aorta.core.trial import LOCAL, Environment, RuntimeKind, TrialSpec
from aorta.runtimes.containers import ENGINES
from aorta.runtimes.engine import client_of, image_named

Ends = Sequence[tuple[PackageSpec, str, str]]
"""Each package with its good and its bad version."""


def at_hand(run: Run, environment: Environment, root: Path) -> Environment:
    """The environment with an image that costs no import: an engine keeps what it pulled, pyxis would import anew."""
    image = str(environment.image)
    if environment.kind in ENGINES:
        client, _ = client_of(ENGINES[environment.kind], environment.options)
        image_named(client, image)
        return environment
    if image.startswith((".", "/")):
        return environment
    return replace(environment, image=_made(run, environment, "true", {}, root))


def base_of(
    run: Run, environment: Environment, inside: Inside, found: Contents, ends: Ends, root: Path
) -> Base:
    """`environment` names the image as everybody can get it, `inside` asks the one at hand."""
    lines = ["set -e"]
    remotes: dict[str, str] = {}
    for package, good, bad in ends:
        if not package.is_git or good == bad:
            continue
        path = found.paths[package.name]
        repository = Repository(inside.git(path), path)
        missing = [v for v in (good, bad, *package.cherry_pick) if not repository.has(v)]
        if missing:
            variable = f"AORTA_REMOTE_{len(remotes)}"
            remotes[variable] = package.remote or "origin"
            fetch = f"git -c safe.directory='*' -C {shlex.quote(path)} fetch --quiet"
            lines.append(f'{fetch} "${variable}" {shlex.join(missing)}')
    image = str(inside.environment.image)
    if remotes:
        image = _made(run, inside.environment, "\n".join(lines), remotes, root)
    digest = digest_in(environment) or str(environment.image)
    return Base(environment, image, digest, found.versions)


def _made(
    run: Run, environment: Environment, script: str, remotes: Mapping[str, str], root: Path
) -> str:
    """An image by running a script in another, through the executor like every build."""
    key = hashlib.sha256(f"{root}\n{environment.image}\n{script}".encode()).hexdigest()[:16]
    pyxis = environment.kind is RuntimeKind.PYXIS
    target = str(root.absolute() / f"{key}.sqsh") if pyxis else f"aorta-bisect:base-{key}"
    job = ImageJob(
        environment.kind.value,
        str(environment.image),
        target,
        script,
        environment.mounts,
        environment.options,
        remotes,
    )
    root.mkdir(parents=True, exist_ok=True)
    path = root / f"{key}.json"
    argv = job.ordered(path)
    with (root / "made.txt").open("a", encoding="utf-8") as made:
        made.write(f"{target}\n")
    executor = run.request.executor()
    try:
        executor.start(TrialSpec(argv, root / "fetch", root, "fetch", environment=LOCAL))
        ended = executor.wait(None)
    finally:
        executor.close()
        path.unlink(missing_ok=True)
    if not ended or ended[0].exit_code != 0:
        words = ended[0].stderr.tail.strip().splitlines()[-1:] if ended else []
        mend = "; give the package a remote" if remotes else ""
        what = "fetch the commits" if remotes else "get the container"
        raise InfrastructureError(
            f"cannot {what}: {without_secrets(''.join(words))}{mend}",
            where=str(environment.image),
        )
    return target
