"""Run directories: claimed atomically, written atomically, locked by one process, private state apart."""

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aorta.core.errors import InfrastructureError, ResumeError, UsageError
from aorta.engine.atomic import write_whole
from aorta.runtimes.owner import Owner
from aorta.version import __version__

PRIVATE = ".aorta"  # journal, lock, metadata: never part of what ships
_MOST_OF_ONE_NAME = 10_000
_TELLING = ("manifest.json", "result.json", "matrix.json", "optimize.json", "cycle_info.json")


@dataclass(frozen=True)
class RunDir:
    path: Path

    @property
    def private(self) -> Path:
        return self.path / PRIVATE

    @property
    def private_beside(self) -> str | None:
        """Where the private state lies, seen from the run directory, if it lies outside of it."""
        return str(self.private.readlink()) if self.private.is_symlink() else None

    @property
    def journal(self) -> Path:
        return self.private / "journal.jsonl"

    @property
    def lock(self) -> Path:
        return self.private / "lock"

    def describe(self, **facts: Any) -> None:
        """Add to what the run says of itself (verb, ticket, state ...); `bundle` and `runs` read it."""
        about = {**self.about(), **facts}
        write_atomically(self.private / "run.json", json.dumps(about, indent=2) + "\n")

    def about(self) -> dict[str, Any]:
        try:
            content = json.loads((self.private / "run.json").read_bytes())
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}


def claim_run_dir(
    parent: Path, verb: str, *, name: str | None = None, private_beside: bool = False, **facts: Any
) -> RunDir:
    """A new `<parent>/<name>[-N]`, by default named by the second; two runs never share a directory.

    With `private_beside` its private state lies in `<parent>/.aorta/<name>`, so that the run directory may be sent as it is.
    """
    stamp = name or datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S")
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for number in range(1, _MOST_OF_ONE_NAME + 1):
            path = parent / (stamp if number == 1 else f"{stamp}-{number}")
            with suppress(FileExistsError):
                path.mkdir()
                run = RunDir(path)
                _make_private(run, beside=private_beside)
                created = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                run.describe(verb=verb, created=created, aorta_version=__version__, **facts)
                return run
    except (FileExistsError, NotADirectoryError):
        raise UsageError("this is a file; results need a directory", where=str(parent)) from None
    except OSError as wrong:
        raise InfrastructureError(
            f"cannot make a run directory: {wrong.strerror}", where=str(parent)
        ) from None
    raise InfrastructureError("10000 runs of one name; clear some away", where=str(parent))


def _make_private(run: RunDir, *, beside: bool) -> None:
    if not beside:
        run.private.mkdir()
        return
    place = Path(PRIVATE) / run.path.name
    fresh_dir(run.path.parent / place)  # what is there belongs to a run that was deleted
    run.private.symlink_to(Path("..") / place, target_is_directory=True)


def is_output(folder: Path) -> bool:
    """Whether a verb wrote this directory: a run, or a bundle that was unpacked."""
    if os.path.lexists(folder / PRIVATE):
        return True
    for name in _TELLING:
        with suppress(OSError), (folder / name).open("rb") as file:
            if b'"schema": "aorta.' in file.read(256):
                return True
    return False


def find_resumable(output: Path, verb: str, given: Path | None = None) -> RunDir:
    """The run directory to go on with: the one given, or the newest unfinished one of this output."""
    if given is not None:
        run = RunDir(given)
        if run.private_beside and not run.private.is_dir():
            raise ResumeError(
                f"its private state is not at {run.private_beside}; move that along with the directory",
                where=str(given),
            )
        if not run.journal.is_file():
            raise ResumeError("this is no run directory: it has no journal", where=str(given))
        return run
    found = [
        run
        for entry in sorted(output.glob("*/"))
        if (run := RunDir(entry)).journal.is_file()
        if run.about().get("verb") == verb and run.about().get("state") != "done"
    ]
    if not found:
        raise ResumeError("there is no unfinished run to resume here", where=str(output))
    return max(found, key=lambda run: run.journal.stat().st_mtime)


def fresh_dir(path: Path) -> Path:
    """An empty directory at `path`; what an interrupted trial left there goes."""
    try:
        with suppress(FileNotFoundError):
            shutil.rmtree(path)
        path.mkdir(parents=True)
    except OSError as wrong:
        raise InfrastructureError(
            f"cannot make a trial directory: {wrong.strerror}", where=str(path)
        ) from None
    return path


def write_atomically(path: Path, content: str | bytes) -> None:
    """Whole or not at all, with its directory; a disk that cannot is one line."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
    except OSError as wrong:
        raise InfrastructureError(f"cannot write: {wrong.strerror}", where=str(path)) from None


def write_json(path: Path, schema: str, content: Mapping[str, Any]) -> None:
    document = {"schema": schema, "aorta_version": __version__, **content}
    write_atomically(
        path, json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    )


class RunLock:
    """Held from `take` to `release`. The lock of a process that is certainly gone is taken over."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def take(self) -> "RunLock":
        for _ in range(3):
            try:
                handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            except FileExistsError:
                self._refuse_unless_stale()
                continue
            except OSError as wrong:
                raise InfrastructureError(
                    f"cannot lock the run directory: {wrong.strerror}", where=str(self.path)
                ) from None
            with os.fdopen(handle, "w") as file:
                file.write(Owner.of_this_process().label)
            return self
        raise ResumeError("another process keeps taking this run directory", where=str(self.path))

    def release(self) -> None:
        with suppress(FileNotFoundError):
            self.path.unlink()

    def _refuse_unless_stale(self) -> None:
        try:
            owner = Owner.from_label(self.path.read_text())
        except FileNotFoundError:
            return
        if owner is not None and not owner.is_gone():
            raise ResumeError(
                f"process {owner.pid} on {owner.host} is running this already; "
                "wait for it or stop it first, and if it is surely gone, remove this file",
                where=str(self.path),
            )
        # Renaming first: of two processes that both see a stale lock, only one gets to remove it.
        aside = self.path.with_name(f"{self.path.name}.stale.{os.getpid()}")
        with suppress(FileNotFoundError):
            self.path.rename(aside)
            aside.unlink()
