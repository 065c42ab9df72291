"""A real Slurm of four nodes on this one machine, private: its own munge, configuration, state and ports."""

import os
import secrets
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from processes import processes_with
from services.guarded import Guarded, private_directory
from services.ports import free_ports

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
MessageTimeout=30
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
    nodes: dict[str, Guarded] = field(default_factory=dict)

    @property
    def environ(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.directory / "slurm.conf")}

    def __call__(self, *argv: str, check: bool = True) -> str:
        environ = {**os.environ, **self.environ}
        done = subprocess.run(
            argv, env=environ, capture_output=True, text=True, timeout=60, check=check
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
        """As if its power were cut: the daemon, its steps and everything they run, without a word."""
        for mark in (f"{_NODE_MARK}={self.directory}-{name}", f"SLURMD_NODENAME={name}"):
            for pid in processes_with(mark):
                if self._is_ours(pid):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        self.nodes.pop(name).stop()

    def _is_ours(self, pid: int) -> bool:
        with suppress(OSError):
            wanted = f"SLURM_CONF={self.environ['SLURM_CONF']}".encode()
            return wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return False

    def idle_nodes(self) -> set[str]:
        rows = self("sinfo", "-h", "-N", "-p", "main", "-o", "%N|%T", check=False).splitlines()
        return {row.partition("|")[0] for row in rows if row.endswith("|idle")}

    def wait_until_idle(self) -> None:
        self.controller.wait_until(lambda: set(NODES) == self.idle_nodes(), "slurm")

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
        self.munge.stop()


def start_slurm() -> SlurmCluster:
    directory = private_directory("slurm")
    directory.chmod(0o711)  # munge wants a socket that everybody could reach
    _write_configuration(directory)
    munge_place = Path(f"{directory}-munge")
    munge_place.mkdir()
    munge = Guarded(munge_place, _munged(directory))
    munge.wait_until((directory / "munge.sock").exists, "munged")
    slurm_conf = f"SLURM_CONF={directory / 'slurm.conf'}"
    controller = Guarded(directory, ("env", slurm_conf, "slurmctld", "-D"))
    cluster = SlurmCluster(directory, munge, controller)
    for name in NODES:
        cluster.start_node(name)
    cluster.wait_until_idle()
    return cluster


def _write_configuration(directory: Path) -> None:
    host = socket.gethostname().partition(".")[0]
    controller_port, *ports = free_ports(1 + len(NODES))
    nodes = "\n".join(
        _NODE.format(name=name, host=host, port=port, cpus=CPUS)
        for name, port in zip(NODES, ports, strict=True)
    )
    (directory / "state").mkdir()
    (directory / "gres.conf").write_text("Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n")
    (directory / "slurm.conf").write_text(
        _CONFIGURATION.format(
            host=host, controller_port=controller_port, directory=directory, nodes=nodes
        )
    )
    _write_plugin(directory)
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
