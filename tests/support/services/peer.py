"""The peer whose wire the attribution service speaks: NVIDIA's resiliency extension, as it is on
PyPI.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.services.guarded import Guarded, private_directory
from support.services.ports import free_ports
from support.services.requirements import end_without
from support.waiting import patience

_PACKAGES = Path(sys.prefix) / "peer"
_LAUNCHER = "nvidia_resiliency_ext.fault_tolerance.launcher"
_SERVICE = "nvidia_resiliency_ext.services.attrsvc"


def demand_peer() -> None:
    if not (_PACKAGES / "nvidia_resiliency_ext").is_dir():
        end_without("the peer's packages are missing; install them with: make peer")


def run_peer_launcher(folder: Path, service_url: str, script: Path) -> int:
    """Its `ft_launcher`, unchanged, with two ranks on this machine, acting on what the service
    says. The exit code.
    """
    rendezvous, log_server = free_ports(2)
    arguments = {
        "--nnodes": "1",
        "--nproc-per-node": "2",
        "--rdzv-backend": "c10d",
        "--rdzv-endpoint": f"127.0.0.1:{rendezvous}",
        "--rdzv-id": "peer",
        "--max-restarts": "3",
        "--ft-attribution-endpoint": service_url,
        "--ft-attribution-stop-action": "no-restart",
        "--ft-per-cycle-applog-prefix": str(folder / "job.log"),
        "--ft-nvrx-logfile": str(folder / "launcher.log"),
        "--ft-log-server-port": str(log_server),
        "--ft-gpu-memory-reclaim-timeout": "0",
        "--ft-enable-nic-healthcheck": "false",
    }
    spelt = [word for pair in arguments.items() for word in pair]
    command = [sys.executable, "-m", _LAUNCHER, "--ft-ignore-missing-cfg", *spelt, str(script)]
    environment = _environment(NVRX_DISABLE_RANK_MONITORS="1", OMP_NUM_THREADS="1")
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, timeout=patience()
    )
    return done.returncode


@contextmanager
def running_peer_service(root: Path) -> Iterator[str]:
    """Its `nvrx-attrsvc`, deterministic part only; yields the URL."""
    directory = private_directory("peer")
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    key = directory / "key"
    key.write_text("none\n")  # it asks for one though no model is ever asked
    environment = _environment(
        LLM_API_KEY_FILE=str(key),
        NVRX_ATTRSVC_ENDPOINT=url,
        NVRX_ATTRSVC_ALLOWED_ROOT=str(root),
        NVRX_ATTRSVC_RESTART_AGENT_LOG_QUIET_SECONDS="1",
        NVRX_ATTRSVC_RESTART_AGENT_LOG_MAX_WAIT_SECONDS="3",
    )
    spelt = [f"{name}={value}" for name, value in environment.items()]
    kept = Guarded(directory, ("env", "-i", *spelt, sys.executable, "-m", _SERVICE))
    try:
        kept.wait_until(lambda: "Uvicorn running on" in kept.log, "the peer's service")
        yield url
    finally:
        kept.stop()


def _environment(**more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return {**kept, "PYTHONPATH": str(_PACKAGES), **more}
