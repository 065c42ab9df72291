"""A real PostgreSQL server with a cluster of its own, on a socket of its own."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from support.services.guarded import Guarded, private_directory
from support.waiting import patience

_VERSIONS = Path("/usr/lib/postgresql")
_USER = "postgres"


@dataclass(frozen=True)
class Postgres:
    url: str  # of an empty database
    admin: str  # how an administrator connects, to another one
    kept: Guarded

    def stop(self) -> None:
        self.kept.stop()


def program(name: str) -> str:
    """The newest version's; Debian keeps them off the path."""
    found = sorted(_VERSIONS.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    return str(found[-1]) if found else name


def start_postgres() -> Postgres:
    directory = private_directory("pg")
    as_user: tuple[str, ...] = ()
    if os.geteuid() == 0:  # the server refuses to run as root
        as_user = ("setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups")
        subprocess.run(("chown", f"{_USER}:{_USER}", directory), check=True)
    data = str(directory / "data")
    prepare = (*as_user, program("initdb"), "-D", data, "-A", "trust", "-U", _USER, "--no-sync")
    subprocess.run(prepare, cwd=directory, check=True, capture_output=True, timeout=patience())
    serve = (*as_user, program("postgres"), "-D", data, "-k", str(directory), "-h", "", "-F")
    kept = Guarded(directory, serve)
    kept.wait_until(lambda: "ready to accept connections" in kept.log, "PostgreSQL")
    admin = f"postgresql://{_USER}@/postgres?host={directory}"
    create = (program("psql"), "--quiet", "--command=CREATE DATABASE attribution", admin)
    subprocess.run(create, check=True, capture_output=True, timeout=patience())
    return Postgres(f"postgresql+psycopg://{_USER}@/attribution?host={directory}", admin, kept)
