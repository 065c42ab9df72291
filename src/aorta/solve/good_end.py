"""What worked, as `--good` says it: an environment, or a revision of the checkout that the command runs in."""

from pathlib import Path

from aorta.core.errors import UsageError
from aorta.runtimes.git import Repository
from aorta.solve.request import SolveRequest


def good_environment(request: SolveRequest) -> Path | None:
    """A requirements or lock file, an env.json or a virtual environment; None where it is something else."""
    if request.good is None:
        return None
    path = request.directory / request.good
    return path if path.is_file() or (path / "pyvenv.cfg").is_file() else None


def repository_of(directory: Path) -> Repository | None:
    """The checkout that this directory lies in."""
    try:
        return Repository.on_host(directory)
    except UsageError:
        return None


def check_good(request: SolveRequest, cwd: Path) -> None:
    """A good end that is nowhere is said before anything runs."""
    if request.good is None or good_environment(request) is not None:
        return
    repository = repository_of(cwd)
    if repository is None:
        raise UsageError(
            f"found {request.good!r}, which is no file, and there is no git checkout to find it in; "
            "expected a revision, a requirements or lock file, an env.json or a virtual environment",
            where="--good",
        )
    repository.resolve(request.good)
