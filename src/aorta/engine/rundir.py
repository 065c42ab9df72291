"""Run directories: claimed and written atomically, locked by one process, with private state."""

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aorta.core.errors import InfrastructureError, ResumeError, UsageError
from aorta.engine.atomic import write_whole
from aorta.engine.events import Reason
from aorta.executors.evidence import json_object
from aorta.runtimes.owner import Owner
from aorta.version import __version__

STAMP_FORM = "%Y-%m-%dT%H-%M-%S"
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:-\d+)?\Z")
"""The name of a run directory that nobody named."""

PRIVATE = ".aorta"  # journal, lock, metadata: never part of what ships
_ABOUT = "run.json"
SHIP = "SHIP.md"
OF_THIS_DIRECTORY = "<!-- aorta: what follows is about this directory, before scrubbing -->"
"""A line of SHIP.md; a bundle, which has one of its own, does not take what follows it."""
_MOST_OF_ONE_NAME = 10_000
_TELLING = (
    "manifest.json",
    "result.json",
    "matrix.json",
    "optimize.json",
    "cycle_info.json",
    "solve.json",
)


@dataclass(frozen=True)
class RunDir:
    path: Path

    @property
    def private(self) -> Path:
        beside = self.private_beside
        return Path(os.path.realpath(self.path / beside)) if beside else self.path / PRIVATE

    @property
    def private_beside(self) -> str | None:
        """Where the private state lies, seen from the run directory, if it lies outside of it. Told
        by a file: what copies the directory would follow a link.
        """
        with suppress(OSError):
            if name := Path((self.path / PRIVATE).read_text("utf-8", "replace").strip()).name:
                return f"../{PRIVATE}/{name}"
        return None

    @property
    def journal(self) -> Path:
        return self.private / "journal.jsonl"

    @classmethod
    def of_journal(cls, journal: Path) -> "RunDir":
        return cls(journal.parent.parent)

    @property
    def lock(self) -> Path:
        return self.private / "lock"

    def describe(self, **facts: Any) -> None:
        """Add to what the run says of itself (verb, state ...); `bundle` and `runs` read it."""
        about = {**self.about(), **facts}
        write_atomically(self.private / _ABOUT, json.dumps(about, indent=2) + "\n")

    def ends(self, reason: Reason, **facts: Any) -> None:
        """Only what is done cannot be gone on with."""
        self.describe(state=reason.value, **facts)

    def about(self) -> dict[str, Any]:
        return json_object(self.private / _ABOUT) or {}


def claim_run_dir(
    parent: Path, verb: str, *, name: str | None = None, private_beside: bool = False, **facts: Any
) -> RunDir:
    """A new `<parent>/<name>[-N]`, by default named by the second; git ignores a parent made here.

    `private_beside`: private state in `<parent>/.aorta/<name>`, so that the run itself can be sent.
    """
    stamp = name or datetime.now(UTC).strftime(STAMP_FORM)
    try:
        if not parent.exists():
            parent.mkdir(parents=True)
            (parent / ".gitignore").write_text("*\n")  # results are no part of a repository
        for number in range(1, _MOST_OF_ONE_NAME + 1):
            path = parent / (stamp if number == 1 else f"{stamp}-{number}")
            with suppress(FileExistsError):
                path.mkdir()
                run = RunDir(path)
                if private_beside:
                    (path / PRIVATE).write_text(f"../{PRIVATE}/{path.name}\n")
                    fresh_dir(run.private)  # what is there belongs to a run that was deleted
                else:
                    run.private.mkdir()
                # First: a run without an owner would pass for dead until it is locked.
                run.lock.write_text(Owner.of_this_process().label)
                created = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                about = {"verb": verb, "created": created, "aorta_version": __version__, **facts}
                # In place: a process that is killed here leaves no draft of it.
                (run.private / _ABOUT).write_text(json.dumps(about, indent=2) + "\n")
                return run
    except (FileExistsError, NotADirectoryError):
        raise UsageError("this is a file; results need a directory", where=str(parent)) from None
    except OSError as wrong:
        raise InfrastructureError(
            f"cannot make a run directory: {wrong.strerror}", where=str(parent)
        ) from None
    raise InfrastructureError("10000 runs of one name; clear some away", where=str(parent))


def is_output(folder: Path) -> bool:
    """Whether a verb wrote this directory: a run, or a bundle that was unpacked."""
    if os.path.lexists(folder / PRIVATE):
        return True
    for name in _TELLING:
        with suppress(OSError), (folder / name).open("rb") as file:
            if b'"schema": "aorta.' in file.read(256):
                return True
    return False


def find_resumable(output: Path, verb: str, given: Path | None = None, below: str = "*/") -> RunDir:
    """The run to go on with: the one given, or the newest unfinished one of this output."""
    if given is not None:
        run = RunDir(given)
        if run.private_beside and not run.private.is_dir():
            raise ResumeError(
                f"its private state is not at {run.private_beside}; move that along with the "
                "directory",
                where=str(given),
            )
        if not _is_begun(run):
            raise ResumeError("this is no run directory: it has no journal", where=str(given))
        if (owner := run.about().get("verb", verb)) != verb:
            why = f"this is a run of another verb; go on with: aorta {owner} --resume {given}"
            raise ResumeError(why, where=str(given))
        return run
    found = [
        run
        for entry in sorted(output.glob(below))
        if _is_begun(run := RunDir(entry))
        if run.about().get("verb") == verb and run.about().get("state") != Reason.DONE
    ]
    if not found:
        raise ResumeError("there is no unfinished run to resume here", where=str(output))
    places = {run: run.journal if run.journal.is_file() else run.private for run in found}
    return max(found, key=lambda run: places[run].stat().st_mtime)


def _is_begun(run: RunDir) -> bool:
    """A run that was killed before its first trial has no journal, and begins when resumed."""
    with writing(run.path, "read it"):
        return run.journal.is_file() or "verb" in run.about()


def fresh_dir(path: Path) -> Path:
    """An empty directory at `path`; what was there goes."""
    with writing(path, "make a directory"):
        with suppress(FileNotFoundError):
            shutil.rmtree(path)
        path.mkdir(parents=True)
    return path


@contextmanager
def writing(place: Path, what: str = "write", advice: str = "") -> Iterator[None]:
    """A full or failing disk is one line, wherever a verb writes."""
    try:
        yield
    except OSError as wrong:
        why = f"cannot {what}: {wrong.strerror}{advice}"
        raise InfrastructureError(why, where=str(place)) from None


def write_atomically(path: Path, content: str | bytes) -> None:
    """Whole or not at all, with its directory."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)


def write_json(path: Path, schema: str, content: Mapping[str, Any]) -> None:
    document = {"schema": schema, "aorta_version": __version__, **content}
    write_atomically(
        path, json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    )


class RunLock:
    """Held from `take` to `release` by this process alone; the kernel frees it, however that ends.

    The file names its owner, for readers and for a process that is refused; empty without one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    def take(self) -> "RunLock":
        with writing(self.path, "lock the run directory"):
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                label = Owner.of_this_process().label.encode()
                os.pwrite(handle, label, 0)  # first: no reader finds it without an owner
                os.ftruncate(handle, len(label))
            except OSError as wrong:
                holder = os.pread(handle, 4096, 0).decode("utf-8", "replace")
                os.close(handle)
                if not isinstance(wrong, BlockingIOError):
                    raise
                owner = Owner.from_label(holder)
                who = f"process {owner.pid} on {owner.host}" if owner else "another process"
                why = f"{who} is running this already; wait for it or stop it first"
                raise ResumeError(why, where=str(self.path)) from None
        self._handle = handle
        return self

    def release(self) -> None:
        if self._handle is not None:
            with suppress(OSError):
                os.ftruncate(self._handle, 0)
            os.close(self._handle)
            self._handle = None
