"""The run directory that is to be packed: what made it, for which ticket, when."""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aorta.bundle.errors import RefusedError
from aorta.bundle.layouts import LAYOUTS, Layout
from aorta.bundle.manifest import MAX_TICKET
from aorta.core.errors import UsageError
from aorta.engine.rundir import RunDir
from aorta.runtimes.owner import Owner

_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:-\d+)?\Z")


@dataclass(frozen=True)
class RunSource:
    root: Path
    layout: Layout
    ticket: str
    created: datetime | None  # when the run began; the only time inside a bundle
    reproduces: bool = False  # the run itself saw what ships fail

    @property
    def top(self) -> str:
        """What the one top folder says besides the ticket."""
        return self.created.strftime("%Y%m%dT%H%M%SZ") if self.created else self.layout.verb


def open_source(run_dir: Path, ticket: str | None) -> RunSource:
    """The run, described by its own metadata; the ticket given on the command line goes before it."""
    if not run_dir.is_dir():
        raise UsageError("there is no such directory; expected a run directory", where=str(run_dir))
    about = RunDir(run_dir).about()
    layout, document = _layout_of(run_dir, about)
    found = (
        ticket
        or _text(about, "ticket")
        or _text(document, "ticket")
        or _from_output(run_dir, layout)
    )
    if not found:
        raise UsageError("the run names no ticket; give one with --ticket", where=str(run_dir))
    _refuse_running(RunDir(run_dir))
    shipped = document.get("shipped_copy")
    reproduces = isinstance(shipped, dict) and shipped.get("self_contained") is True
    when = _created(about, run_dir)
    return RunSource(run_dir, layout, _checked_ticket(found), when, reproduces)


def _checked_ticket(ticket: str) -> str:
    if len(ticket) > MAX_TICKET or not ticket.isprintable():
        raise UsageError(
            f"the ticket is {len(ticket)} characters long or holds one that cannot be shown; "
            f"expected one line of at most {MAX_TICKET}, for example with --ticket"
        )
    return ticket


def _refuse_running(run: RunDir) -> None:
    try:
        owner = Owner.from_label(run.lock.read_text())
    except OSError:
        return
    if owner is not None and not owner.is_gone():
        raise RefusedError(
            ["the run is not over; wait for its end, or stop it with Ctrl-C"], where=str(run.path)
        )


def _layout_of(root: Path, about: dict[str, Any]) -> tuple[Layout, dict[str, Any]]:
    verb = _text(about, "verb").split()[:1]
    for layout in LAYOUTS:
        documents = [found for name in layout.documents for found in sorted(root.glob(name))]
        for document in map(_read_object, documents):
            if verb == [layout.verb] or _text(document, "schema").startswith(layout.schemas):
                return layout, document
        if verb == [layout.verb]:
            return layout, {}
    raise UsageError(
        "this is no run directory: neither .aorta/run.json nor a result says which verb wrote it; "
        "expected a directory of reduce, triage, bisect, run or launch",
        where=str(root),
    )


def _from_output(root: Path, layout: Layout) -> str:
    """`reduce --output reduce/TICKET` has no other place to name its ticket."""
    path = root.absolute()
    return path.parent.name if layout.verb == "reduce" and _STAMP.match(path.name) else ""


def _created(about: dict[str, Any], root: Path) -> datetime | None:
    for text, form in (
        (_text(about, "created"), "%Y-%m-%dT%H:%M:%SZ"),
        (root.absolute().name[:19], "%Y-%m-%dT%H-%M-%S"),
    ):
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC)
        except ValueError:
            continue
    return None


def _read_object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}  # packing reads it again, and says what is wrong with it
    return content if isinstance(content, dict) else {}


def _text(document: dict[str, Any], key: str) -> str:
    value = document.get(key)
    return value.strip() if isinstance(value, str) else ""
