"""Slurm's accounting: a real slurmdbd and the MariaDB it keeps its records in, private like the
cluster they serve.
"""

import os
import secrets
import subprocess
from dataclasses import dataclass
from pathlib import Path

from support.services.guarded import Guarded
from support.services.ports import free_ports
from support.waiting import patience

CONFIGURATION = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={directory}/munge.sock
"""
_DAEMON = """\
AuthType=auth/munge
AuthInfo=socket={directory}/munge.sock
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=root
PidFile={directory}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database_port}
StorageUser=slurm
StoragePass={password}
StorageLoc=slurm
"""
_USER = """\
CREATE USER slurm@localhost IDENTIFIED BY '{password}';
GRANT ALL ON slurm.* TO slurm@localhost;
"""


@dataclass(frozen=True)
class Accounting:
    port: int
    database: Guarded
    daemon: Guarded

    def stop(self) -> None:
        self.daemon.stop()
        self.database.stop()


def start_accounting(directory: Path) -> Accounting:
    """For the cluster in `directory`, whose munge runs already."""
    port, database_port = free_ports(2)
    password = secrets.token_hex(16)
    database = _started_database(Path(f"{directory}-database"), database_port, password)
    place = Path(f"{directory}-slurmdbd")
    place.mkdir()
    configuration = directory / "slurmdbd.conf"
    configuration.touch(mode=0o600)
    configuration.write_text(
        _DAEMON.format(
            directory=directory, port=port, database_port=database_port, password=password
        )
    )
    slurm_conf = f"SLURM_CONF={directory / 'slurm.conf'}"
    daemon = Guarded(place, ("env", slurm_conf, "slurmdbd", "-D"))
    daemon.wait_until(lambda: _listens(daemon), "slurmdbd")
    return Accounting(port, database, daemon)


def register_cluster(name: str, environ: dict[str, str]) -> None:
    """Slurm accepts no record of a cluster that it was not told of."""
    command = ("sacctmgr", "--immediate", "add", "cluster", name)
    subprocess.run(
        command, env={**os.environ, **environ}, check=True, capture_output=True, timeout=patience()
    )


def _listens(daemon: Guarded) -> bool:
    return "slurmdbd version" in daemon.log and "started" in daemon.log


def _started_database(place: Path, port: int, password: str) -> Guarded:
    place.mkdir(mode=0o700)
    data, first_words = place / "data", place / "user.sql"
    first_words.write_text(_USER.format(password=password))
    first_words.chmod(0o600)
    common = ("--no-defaults", f"--datadir={data}", "--user=root")
    prepare = ("mariadb-install-db", *common, "--skip-test-db", "--skip-name-resolve")
    subprocess.run(prepare, check=True, capture_output=True, timeout=patience())
    where = (f"--socket={place}/db.sock", f"--port={port}", "--bind-address=127.0.0.1")
    speed = ("--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=64M")
    serve = ("mariadbd", *common, *where, *speed, f"--init-file={first_words}")
    kept = Guarded(place, serve)
    kept.wait_until(lambda: "ready for connections" in kept.log, "MariaDB")
    return kept
