"""A real Slurm of four nodes, or as many as are named, on this one machine, private: its own munge, configuration, state and
ports.
"""

import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from support.processes import processes_with
from support.services.guarded import Guarded, private_directory
from support.services.ports import free_ports
from support.services.slurm_accounting import (
    CONFIGURATION,
    Accounting,
    register_cluster,
    start_accounting,
)
from support.waiting import patience

NODES = ("n1", "n2", "n3", "n4")
CPUS = 4
_CONFIGURATION = """\
ClusterName=aorta
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge.sock
CredType=cred/munge
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}-%n/spool
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}-%n/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_min_interval=50000,bf_interval=1
SlurmdParameters=config_overrides
SlurmdTimeout=10
KillWait=2
MessageTimeout={message_timeout}
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
GresTypes=gpu
PlugStackConfig={directory}/plugstack.conf
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10
"""
_NODE = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} Gres=gpu:2"
_NODE_MARK = "AORTA_TEST_SLURM_NODE"
_PLUGIN = Path(__file__).with_name("containers_in_slurm.c")
_IMPORTER = Path(__file__).with_name("import_image.py")


@dataclass
class SlurmCluster:
    """`environ` leads Slurm's commands, and Aorta through them, to this cluster."""

    directory: Path
    munge: Guarded
    controller: Guarded
    accounting: Accounting | None = None
    names: Sequence[str] = NODES
    nodes: dict[str, Guarded] = field(default_factory=dict)

    @property
    def environ(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.directory / "slurm.conf")}

    def __call__(self, *argv: str, check: bool = True) -> str:
        environ = {**os.environ, **self.environ}
        done = subprocess.run(
            argv, env=environ, capture_output=True, text=True, timeout=patience(), check=check
        )
        return done.stdout

    def start_node(self, name: str) -> None:
        place = Path(f"{self.directory}-{name}")
        place.mkdir(exist_ok=True)
        mark = f"{_NODE_MARK}={place}"
        daemon = (
            "env",
            f"SLURM_CONF={self.environ['SLURM_CONF']}",
            mark,
            "slurmd",
            "-D",
            "-N",
            name,
        )
        self.nodes[name] = Guarded(place, daemon)

    def kill_node(self, name: str) -> None:
        """As if its power were cut: the daemon, its steps and everything they run, without a
        word.
        """
        for mark in (f"{_NODE_MARK}={self.directory}-{name}", f"SLURMD_NODENAME={name}"):
            for pid in processes_with(mark):
                if self._is_ours(pid):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        self.nodes.pop(name).stop()

    def replace_node(self, name: str) -> None:
        """A node that was killed is there again, and the job that Slurm believes on it is given up.

        Declared lost, as its administrator would: Slurm takes a minute to find it out.
        """
        self("scontrol", "update", f"NodeName={name}", "State=DOWN", "Reason=killed")
        self.start_node(name)

    def _is_ours(self, pid: int) -> bool:
        with suppress(OSError):
            wanted = f"SLURM_CONF={self.environ['SLURM_CONF']}".encode()
            return wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return False

    def stop_controller(self) -> None:
        """Jobs go on; nobody can be asked for them, and none can be submitted."""
        self.controller.stop()

    def start_controller(self, *, forgetful: bool = False) -> None:
        """Forgetful: as one that lost its state directory, it knows no job of before."""
        self.controller = _started_controller(self.directory, *(("-c",) if forgetful else ()))

    def idle_nodes(self) -> set[str]:
        rows = self("sinfo", "-h", "-N", "-p", "main", "-o", "%N|%T", check=False).splitlines()
        return {row.partition("|")[0] for row in rows if row.endswith("|idle")}

    def wait_until_idle(self) -> None:
        self.controller.wait_until(lambda: set(self.names) == self.idle_nodes(), "slurm")

    def containers(self) -> list[str]:
        """The file systems of containers that are not removed yet."""
        return [path.name for path in (self.directory / "containers").iterdir()]

    def queue(self) -> list[str]:
        """Every job that is not over."""
        return self("squeue", "-h", "-r", "-o", "%i %j %T").splitlines()

    def stop(self) -> None:
        for node in self.nodes.values():
            node.stop()
        self.controller.stop()
        if self.accounting is not None:
            self.accounting.stop()
        self.munge.stop()


def start_slurm(
    *, accounting: bool = False, message_timeout: int = 30, names: Sequence[str] = NODES
) -> SlurmCluster:
    """`message_timeout`: the seconds that Slurm's commands wait for a controller that does not
    answer.
    """
    directory = private_directory("slurm")
    directory.chmod(0o711)  # munge wants a socket that everybody could reach
    _write_keys(directory)
    # The last to stop: the directory goes with it, and the controller writes its state there as it
    # ends.
    munge = Guarded(directory, _munged(directory), [_until_gone(_controllers_place(directory))])
    munge.wait_until((directory / "munge.sock").exists, "munged")
    kept = start_accounting(directory) if accounting else None
    _write_configuration(directory, message_timeout, kept, names)
    if kept is not None:
        register_cluster("aorta", {"SLURM_CONF": str(directory / "slurm.conf")})
    cluster = SlurmCluster(directory, munge, _started_controller(directory), kept, names)
    for name in names:
        cluster.start_node(name)
    cluster.wait_until_idle()
    return cluster


def _controllers_place(directory: Path) -> Path:
    return Path(f"{directory}-controller")


def _until_gone(place: Path) -> tuple[str, ...]:
    """Waits for the end of whoever has this place, and no longer than a guard would."""
    return (
        "sh",
        "-c",
        'for _ in $(seq 250); do [ -e "$0" ] || exit 0; sleep 0.1; done',
        str(place),
    )


def _started_controller(directory: Path, *options: str) -> Guarded:
    """With a place of its own: what it must remember when it is killed is in the cluster's."""
    place = _controllers_place(directory)
    place.mkdir()
    slurm_conf = f"SLURM_CONF={directory / 'slurm.conf'}"
    return Guarded(place, ("env", slurm_conf, "slurmctld", "-D", *options))


def _write_configuration(
    directory: Path, message_timeout: int, accounting: Accounting | None, names: Sequence[str]
) -> None:
    host = socket.gethostname().partition(".")[0]
    controller_port, *ports = free_ports(1 + len(names))
    nodes = "\n".join(
        _NODE.format(name=name, host=host, port=port, cpus=CPUS)
        for name, port in zip(names, ports, strict=True)
    )
    (directory / "state").mkdir()
    (directory / "gres.conf").write_text("Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n")
    (directory / "slurm.conf").write_text(
        _CONFIGURATION.format(
            host=host,
            controller_port=controller_port,
            directory=directory,
            message_timeout=message_timeout,
            nodes=nodes,
        )
        + (CONFIGURATION.format(port=accounting.port, directory=directory) if accounting else "")
    )
    _write_plugin(directory)


def _write_keys(directory: Path) -> None:
    key = directory / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(64))


def _write_plugin(directory: Path) -> None:
    """srun's options for containers, as a plugin built for the Slurm that is installed."""
    plugin = directory / "containers_in_slurm.so"
    subprocess.run(("gcc", "-shared", "-fPIC", "-o", str(plugin), str(_PLUGIN)), check=True)
    importer = directory / "import-image"
    importer.write_text(f'#!/bin/sh\nexec {sys.executable} {_IMPORTER} "$@"\n')
    importer.chmod(0o755)
    (directory / "containers").mkdir()
    line = f"required {plugin} {directory}/containers {importer}\n"
    (directory / "plugstack.conf").write_text(line)


def _munged(directory: Path) -> tuple[str, ...]:
    files = {
        "socket": "sock",
        "key-file": "key",
        "pid-file": "pid",
        "log-file": "log",
        "seed-file": "seed",
    }
    options = (f"--{option}={directory}/munge.{suffix}" for option, suffix in files.items())
    return ("munged", "--foreground", *options)
