"""Who and where this site is: the user, the machine, and the directories that belong to them."""

import getpass
import socket
from pathlib import Path

from aorta.scrub.scrubber import Identity

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


def this_site(run_dir: Path) -> Identity:
    """What the running system says of itself; whatever it cannot say is simply not known."""
    home = _home()
    roots = [home, str(Path.cwd()), str(run_dir.absolute()), str(run_dir.resolve()), *_mounts()]
    return Identity(
        users=tuple(dict.fromkeys(name for name in (_user(), Path(home).name) if name)),
        hosts=tuple(dict.fromkeys(name for name in (socket.gethostname(), _fqdn()) if name)),
        roots=tuple(dict.fromkeys(root for root in roots if root != "/")),
    )


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
