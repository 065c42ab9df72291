"""What worked, as `--good` says it: a revision of the checkout, an environment, or a container where it fails in one."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from aorta.bisect.containers.image import is_at_hand
from aorta.bisect.containers.registry import digest_of
from aorta.bisect.spec import RUNTIME_KINDS, ContainersSpec
from aorta.core.errors import UsageError
from aorta.core.trial import Environment
from aorta.runtimes.containers import ENGINES
from aorta.runtimes.git import Repository
from aorta.solve.request import SolveRequest
from aorta.solve.subject import environment_of, subject_of

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def good_environment(request: SolveRequest) -> Path | None:
    """A requirements or lock file, an env.json or a virtual environment; None where it is something else."""
    if request.good is None:
        return None
    path = request.directory / request.good
    return path if path.is_file() or (path / "pyvenv.cfg").is_file() else None


def good_containers(request: SolveRequest) -> ContainersSpec | None:
    """From the container that worked to the one it fails in. Two of one family with a date in their tags have those
    of the days between them.
    """
    failing = environment_of(request)
    if request.good is None or failing.image is None:
        return None
    about: dict[str, Any] = {
        "runtime": {kind: name for name, kind in RUNTIME_KINDS.items()}[failing.kind],
        "mounts": failing.mounts,
        "options": failing.options,
    }
    passing = _image_of(request.good, failing)
    template = _DATE.sub("{date}", failing.image)
    if template == failing.image or _DATE.sub("{date}", passing) != template:
        return ContainersSpec(passing=passing, failing=failing.image, **about)
    return ContainersSpec(
        family="containers",
        url_template=template,
        start_date=_DATE.findall(passing)[-1],
        end_date=_DATE.findall(failing.image)[-1],
        **about,
    )


def _image_of(good: str, failing: Environment) -> str:
    """An image by its name, or the one of the same family that a day is the date of."""
    image = str(failing.image)
    if _DATE.fullmatch(good) is None:
        return good
    if len(_DATE.findall(image)) != 1:
        raise UsageError(
            f"found the date {good}, but the container it fails in has no date in its name: {image}; "
            "expected the name of the one that worked",
            where="--good",
        )
    return _DATE.sub(good, image)


def _check_image(containers: ContainersSpec, failing: Environment) -> None:
    """Named outright it must be somewhere; between two dates the days that are missing are passed over."""
    passing = containers.passing
    if passing is None or failing.kind not in ENGINES:
        return
    if is_at_hand(replace(failing, image=passing)) or digest_of(passing) is not None:
        return
    raise UsageError(
        f"found {passing!r}, which {ENGINES[failing.kind].command} does not have, and no registry says that it has it; "
        "expected the image that worked, or its date",
        where="--good",
    )


def repository_of(directory: Path) -> Repository | None:
    """The checkout that this directory lies in."""
    try:
        return Repository.on_host(directory)
    except UsageError:
        return None


def check_good(request: SolveRequest) -> None:
    """A good end that is nowhere is said before anything runs."""
    environment = environment_of(request)
    if request.good is None:
        return
    containers = good_containers(request)
    if containers is not None:
        _check_image(containers, environment)
        return
    if environment.isolated:
        raise UsageError(
            f"what worked before {environment.name!r} cannot be looked for; expected a command of this machine, or one "
            "in an image",
            where="--good",
        )
    if good_environment(request) is not None:
        return
    repository = repository_of(subject_of(request).cwd)
    if repository is None:
        raise UsageError(
            f"found {request.good!r}, which is no file, and there is no git checkout to find it in; "
            "expected a revision, a requirements or lock file, an env.json or a virtual environment, "
            "or, beside --environment image:REF, the image or the date of one that worked",
            where="--good",
        )
    repository.resolve(request.good)
