"""Starts the ranks of a failing job in the ways people start them, and tells how each rank
ended.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.faults.kinds import Kind, Launcher

ROOT = Path(__file__).resolve().parents[2]
MEMORY_CGROUP = Path("/sys/fs/cgroup/memory")
MEMORY_LIMIT = 700 << 20
GIVE_UP_AFTER = 150.0
GRACE = 1.0

Failures = list[dict[str, object]]


def run(kind: Kind, scratch: Path, logs: Path, port: int) -> Failures:
    """Run the job to its end, with what it writes under `logs`; a list of how each rank ended,
    where that is known.
    """
    arguments = ["--fault", kind.fault or kind.name, "--scratch", str(scratch), *kind.arguments]
    job = ["-m", kind.job, *arguments]
    if kind.launcher in {Launcher.RANKS, Launcher.SHELL}:
        return _run_ranks(kind, [*kind.wrapper, sys.executable, *job], logs, port)
    if kind.launcher is Launcher.AORTA:
        return _run_aorta(kind, job, logs)
    return _run_torchrun(kind, job, logs, port)


def _run_ranks(kind: Kind, argv: list[str], logs: Path, port: int) -> Failures:
    """Every rank by itself; survivors are stopped as a launcher would stop them."""
    processes = [_start(rank, kind, argv, logs, port) for rank in range(kind.ranks)]
    started, stop_at, hung = time.monotonic(), None, False
    ends: dict[int, float] = {}
    while len(ends) < len(processes):
        now = time.monotonic() - started
        for rank, process in enumerate(processes):
            if rank not in ends and process.poll() is not None:
                ends[rank] = now
                if process.returncode != 0 and stop_at is None:
                    stop_at = now + GRACE
        if stop_at is None and now > (kind.hang_timeout or GIVE_UP_AFTER):
            hung, stop_at = True, now + GRACE
            _signal_all(processes, signal.SIGUSR1)
        if stop_at is not None and now > stop_at:
            _signal_all(processes, signal.SIGTERM if now < stop_at + 3 else signal.SIGKILL)
        time.sleep(0.02)
    if kind.launcher is Launcher.SHELL:
        return []
    return [
        _failure(rank, process.returncode, ends[rank], hung)
        for rank, process in enumerate(processes)
    ]


def _start(
    rank: int, kind: Kind, argv: list[str], logs: Path, port: int
) -> subprocess.Popen[bytes]:
    shared = kind.launcher is Launcher.SHELL
    out, err = (f"rank_{rank}.out", f"rank_{rank}.err") if not shared else ("job.log", "job.log")
    with (logs / out).open("ab") as stdout, (logs / err).open("ab") as stderr:
        process = subprocess.Popen(
            argv, stdout=stdout, stderr=stderr, env=_rank_environment(rank, kind, port)
        )
    if "oom_killed" in kind.name and rank == 1:
        group = MEMORY_CGROUP / "aorta-faults"
        group.mkdir(exist_ok=True)
        (group / "memory.limit_in_bytes").write_text(str(MEMORY_LIMIT))
        (group / "cgroup.procs").write_text(str(process.pid))
    return process


def _rank_environment(rank: int, kind: Kind, port: int) -> dict[str, str]:
    ours = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(kind.world_size or kind.ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    ours = {name: value for name, value in ours.items() if name not in kind.missing_variables}
    return _environment(kind) | ours


def _environment(kind: Kind) -> dict[str, str]:
    common = {"OMP_NUM_THREADS": "1", "LANGUAGE": "de", "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    if kind.broken_io is None:
        return os.environ | common
    return os.environ | common | {"LD_PRELOAD": str(_shim()), "FAILING_IO": kind.broken_io}


def _shim() -> Path:
    """The library that makes system calls fail, built beside other throw-away things."""
    library = Path("/tmp/aorta-failing-io.so")
    source = Path(__file__).with_name("failing_io.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


def _run_torchrun(kind: Kind, job: list[str], logs: Path, port: int) -> Failures:
    quiet = kind.launcher is Launcher.TORCHRUN_SUMMARY
    output = [f"--log-dir={logs / 'ranks'}", "--redirects=3"] if quiet else ["--tee=3"]
    command = [
        *(sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={kind.ranks}"),
        *output,
        f"--master-port={port}",
        *job,
    ]
    with (logs / "job.log").open("wb") as log:
        process = subprocess.Popen(
            command, env=_environment(kind), stdout=log, stderr=subprocess.STDOUT
        )
        try:
            process.wait(timeout=kind.hang_timeout or 120)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # a person at the terminal
            process.wait(timeout=60)
    shutil.rmtree(logs / "ranks", ignore_errors=True)
    return []  # torchrun's own summary in the log is all there is


def _run_aorta(kind: Kind, job: list[str], logs: Path) -> Failures:
    command = [
        *(sys.executable, "-m", "aorta", "launch", f"--nproc-per-node={kind.ranks}"),
        *("--max-restarts", "0", "--log-dir", str(logs / "launch")),
        *(("--ft-hang-timeout", str(kind.hang_timeout)) if kind.hang_timeout else ()),
        *job,
    ]
    subprocess.run(command, env=_environment(kind), capture_output=True, timeout=180, check=False)
    cycle = logs / "launch" / "cycle_0"
    for file in [*cycle.glob("rank_*.out"), *cycle.glob("rank_*.err")]:
        shutil.copy(file, logs / file.name)
    ranks: Failures = json.loads((cycle / "cycle_info.json").read_text())["ranks"]
    shutil.rmtree(logs / "launch")
    return ranks


def _signal_all(processes: list[subprocess.Popen[bytes]], number: signal.Signals) -> None:
    for process in processes:
        if process.poll() is None:
            process.send_signal(number)


def _failure(rank: int, code: int, ended: float, hung: bool) -> dict[str, object]:
    status = (
        {"exit_code": None, "signal": -code} if code < 0 else {"exit_code": code, "signal": None}
    )
    return {"rank": rank, **status, "time": round(ended, 3), **({"hung": True} if hung else {})}
