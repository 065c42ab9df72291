"""Where a bundle comes from: the run directory that is to be packed (what made it, for which
ticket, when), and the site: its user, its machine, and the directories that belong to them.
"""

import getpass
import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aorta.bundle.layouts import Layout, layout_of
from aorta.bundle.manifest import MAX_TICKET, RefusedError
from aorta.core.errors import UsageError
from aorta.engine.rundir import STAMP, STAMP_FORM, RunDir
from aorta.executors.evidence import json_object
from aorta.runtimes.owner import Owner
from aorta.scrub.scrubber import Identity
from aorta.scrub.vocabulary import announces_secret, is_secret_value

_REMOTE_OR_DATA = (
    "nfs",
    "nfs4",
    "lustre",
    "gpfs",
    "cifs",
    "smb3",
    "ceph",
    "beegfs",
    "ext4",
    "xfs",
    "btrfs",
    "zfs",
)
_SYSTEM = ("/", "/boot", "/etc", "/usr", "/proc", "/sys", "/dev", "/run", "/var")


def secret_values() -> tuple[str, ...]:
    """The values of this process's variables whose names announce a secret."""
    named = ((name, value) for name, value in os.environ.items() if announces_secret(name))
    return tuple(value for name, value in named if is_secret_value(name, value))


def this_site(run_dir: Path) -> Identity:
    """What the running system says of itself; whatever it cannot say is simply not known."""
    home = _home()
    roots = [home, str(Path.cwd()), str(run_dir.absolute()), str(run_dir.resolve()), *_mounts()]
    hosts = [socket.gethostname(), _fqdn(), *_compared_nodes(run_dir)]
    return Identity(
        users=tuple(dict.fromkeys(name for name in (_user(), Path(home).name) if name)),
        hosts=tuple(dict.fromkeys(name for name in hosts if name)),
        roots=tuple(dict.fromkeys(root for root in roots if root != "/")),
    )


def _compared_nodes(run_dir: Path) -> list[str]:
    """The hosts that an isolation placed its runs on; devices have numbers, which are no names."""
    result = json_object(run_dir / "result.json") or {}
    if not str(result.get("schema", "")).startswith("aorta.isolate/"):
        return []
    return [node["name"] for node in result.get("nodes", []) if not node["name"].isdigit()]


def _home() -> str:
    try:
        return str(Path.home())
    except RuntimeError:
        return "/"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user need not be in the password file
        return ""


def _fqdn() -> str:
    """Without asking a name server: that would be a packet leaving the machine."""
    try:
        domain = Path("/proc/sys/kernel/domainname").read_text("utf-8").strip()
    except OSError:
        return ""
    return "" if domain in {"", "(none)"} else f"{socket.gethostname()}.{domain}"


def _mounts() -> list[str]:
    try:
        lines = Path("/proc/self/mounts").read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return []
    fields = [line.split() for line in lines]
    points = [
        row[1].replace("\\040", " ") for row in fields if len(row) > 2 and row[2] in _REMOTE_OR_DATA
    ]
    return [point for point in points if not _is_system(point)]


def _is_system(point: str) -> bool:
    return point in _SYSTEM or point.startswith(("/etc/", "/proc/", "/sys/", "/dev/", "/run/"))


@dataclass(frozen=True)
class RunSource:
    root: Path
    layout: Layout
    ticket: str
    created: datetime | None  # when the run began; the only time inside a bundle
    reproduces: bool = False  # the run itself saw what ships fail

    def private_documents(self) -> list[dict[str, Any]]:
        """What the run was asked for: it does not ship, but it may name secrets that do."""
        names = ("request.json", "run.json", "known.json")
        found = (json_object(RunDir(self.root).private / name) for name in names)
        return [document for document in found if document]

    @property
    def top(self) -> str:
        """What the one top folder says besides the ticket."""
        return self.created.strftime("%Y%m%dT%H%M%SZ") if self.created else self.layout.verb


def open_source(run_dir: Path, ticket: str | None) -> RunSource:
    """The run, described by its own metadata; the ticket given on the command line goes before
    it.
    """
    if not run_dir.is_dir():
        raise UsageError("there is no such directory; expected a run directory", where=str(run_dir))
    about, known = RunDir(run_dir).about(), layout_of(run_dir)
    if known is None:
        raise UsageError(
            "this is no run directory: neither .aorta/run.json nor a result says which verb wrote "
            "it; "
            "expected a directory of reduce, triage, bisect, run or launch",
            where=str(run_dir),
        )
    layout, document = known
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


def _from_output(root: Path, layout: Layout) -> str:
    """`reduce --output reduce/TICKET` has no other place to name its ticket."""
    path = root.absolute()
    return path.parent.name if layout.verb == "reduce" and STAMP.match(path.name) else ""


def _created(about: dict[str, Any], root: Path) -> datetime | None:
    for text, form in (
        (_text(about, "created"), "%Y-%m-%dT%H:%M:%SZ"),
        (root.absolute().name[:19], STAMP_FORM),
    ):
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC)
        except ValueError:
            continue
    return None


def _text(document: dict[str, Any], key: str) -> str:
    value = document.get(key)
    return value.strip() if isinstance(value, str) else ""
