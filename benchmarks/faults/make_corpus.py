"""Run every failing job of `job.py` for real and keep what each left behind, with the truth beside it.

    python -m benchmarks.faults.make_corpus tests/attribution/corpus [KIND ...]

Needs Linux and root (a small tmpfs, a memory cgroup, setuid). Each kind becomes one directory: the logs of both ranks, how
each rank ended and when, kernel messages where the kernel had something to say, and `truth.json`. Paths of
this machine are replaced, nothing else is touched.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
JOB = "benchmarks.faults.job"
MEMORY_CGROUP = Path("/sys/fs/cgroup/memory")
GIVE_UP_AFTER = 150.0
GRACE = 1.0
MEMORY_LIMIT = 700 << 20


@dataclass(frozen=True)
class Kind:
    """One way to fail, and what a perfect reader would say about it."""

    name: str
    failure_class: str
    root_ranks: tuple[int, ...]  # any of these is right; empty: nobody in particular
    decision: str
    user_error: bool = False
    arguments: tuple[str, ...] = ()
    fault: str | None = None  # where several kinds share one fault
    torchrun: bool = False  # one interleaved log with rank prefixes
    hang_timeout: float | None = None  # a launcher's hang detector, for what never ends by itself
    ranks: int = 2


BOTH = (0, 1)
KINDS: tuple[Kind, ...] = (
    Kind("import_error", "import_error", BOTH, "STOP", user_error=True),
    Kind("import_name", "import_error", BOTH, "STOP", user_error=True),
    Kind("syntax_error", "syntax_error", BOTH, "STOP", user_error=True),
    Kind("bad_flag", "bad_arguments", BOTH, "STOP", user_error=True, arguments=("--precison", "bf16")),
    Kind("bad_choice", "bad_arguments", BOTH, "STOP", user_error=True, arguments=("--precision", "fp64")),
    Kind("environment_variable", "bad_config", BOTH, "STOP", user_error=True),
    Kind("config_validation", "bad_config", BOTH, "STOP", user_error=True),
    Kind("config_syntax", "bad_config", BOTH, "STOP", user_error=True),
    Kind("no_cuda_build", "bad_config", BOTH, "STOP", user_error=True),
    Kind("shape_matmul", "shape_mismatch", BOTH, "STOP", user_error=True),
    Kind("shape_broadcast", "shape_mismatch", BOTH, "STOP", user_error=True),
    Kind("checkpoint_shape", "checkpoint_mismatch", BOTH, "STOP", user_error=True),
    Kind("checkpoint_keys", "checkpoint_mismatch", BOTH, "STOP", user_error=True),
    Kind("checkpoint_truncated", "checkpoint_corrupt", BOTH, "STOP"),
    Kind("checkpoint_garbage", "checkpoint_corrupt", BOTH, "STOP"),
    Kind("missing_file", "missing_file", BOTH, "STOP", user_error=True),
    Kind("missing_file_locale", "missing_file", BOTH, "STOP", user_error=True),
    Kind("missing_file_chained", "missing_file", BOTH, "STOP", user_error=True),
    Kind("missing_output_dir", "missing_file", (0,), "STOP", user_error=True),
    Kind("permission_denied", "permission_denied", BOTH, "STOP", user_error=True),
    Kind("read_only_output", "permission_denied", (0,), "STOP", user_error=True),
    Kind("disk_full_checkpoint", "disk_full", (0,), "STOP"),
    Kind("disk_full_write", "disk_full", (1,), "STOP"),
    Kind("host_oom_killed", "host_oom", (1,), "RESTART"),
    Kind("host_oom_allocation", "host_oom", (1,), "RESTART"),
    Kind("host_oom_python", "host_oom", (0,), "RESTART"),
    Kind("too_many_files", "user_exception", (1,), "RESTART"),
    Kind("port_in_use", "port_in_use", (0,), "RESTART"),
    Kind("late_peer", "rendezvous_error", (1,), "RESTART"),
    Kind("wrong_master_port", "rendezvous_error", (1,), "RESTART"),
    Kind("unknown_master", "rendezvous_error", (1,), "RESTART"),
    Kind("sigkill", "killed", (1,), "RESTART"),
    Kind("sigterm", "killed", (0,), "RESTART"),
    Kind("sigint_everywhere", "cancelled", BOTH, "STOP"),
    Kind("segfault", "segfault", (1,), "RESTART"),
    Kind("segfault_silent", "segfault", (0,), "RESTART"),
    Kind("bus_error", "segfault", (1,), "RESTART"),
    Kind("abort", "abort", (1,), "RESTART"),
    Kind("heap_corruption", "abort", (0,), "RESTART"),
    Kind("quiet_exit", "unknown", (1,), "UNKNOWN"),
    Kind("hang_in_collective", "collective_timeout", (1,), "RESTART"),
    Kind("slow_rank", "collective_timeout", (0,), "RESTART"),
    Kind("deadlock", "hang", (), "RESTART", hang_timeout=15.0),
    Kind("peer_leaves", "network_loss", (1,), "RESTART"),
    Kind("collective_sizes", "shape_mismatch", BOTH, "STOP"),
    Kind("nan_check", "nan", (1,), "RESTART"),
    Kind("nan_anomaly", "nan", (0,), "RESTART"),
    Kind("assertion", "assertion", (1,), "RESTART"),
    Kind("assertion_rich", "assertion", (0,), "RESTART"),
    Kind("value_error", "user_exception", (1,), "RESTART"),
    Kind("key_error", "user_exception", (0,), "RESTART"),
    Kind("index_error_progress_bar", "user_exception", (1,), "RESTART"),
    Kind("recursion", "user_exception", (0,), "RESTART"),
    Kind("unpicklable", "user_exception", BOTH, "RESTART"),
    Kind("loader_exception", "data_error", (1,), "RESTART"),
    Kind("loader_killed", "killed", (0,), "RESTART"),
    Kind("bad_encoding", "data_error", (1,), "RESTART"),
    Kind("bad_json_record", "data_error", (0,), "RESTART"),
    Kind("harmless_errors_then_kill", "killed", (1,), "RESTART"),
    Kind("long_line_then_value_error", "user_exception", (0,), "RESTART"),
    Kind("thread_error_then_type_error", "user_exception", (1,), "RESTART"),
    Kind("import_error_interleaved", "import_error", BOTH, "STOP", True, fault="import_error", torchrun=True),
    Kind("shape_matmul_interleaved", "shape_mismatch", BOTH, "STOP", True, fault="shape_matmul", torchrun=True),
    Kind("sigkill_interleaved", "killed", (1,), "RESTART", fault="sigkill", torchrun=True),
    Kind("value_error_interleaved", "user_exception", (1,), "RESTART", fault="value_error", torchrun=True),
)  # fmt: skip

LATER_KINDS: tuple[Kind, ...] = (
    Kind("bad_type", "bad_arguments", BOTH, "STOP", user_error=True, arguments=("--steps", "ten")),
    Kind("missing_library", "import_error", BOTH, "STOP", user_error=True),
    Kind("wrong_backend", "bad_config", BOTH, "STOP", user_error=True),
    Kind("nccl_without_gpu", "bad_config", BOTH, "STOP", user_error=True),
    Kind("logged_and_raised", "missing_file", BOTH, "STOP", user_error=True),
    Kind("forbidden_directory", "permission_denied", BOTH, "STOP", user_error=True),
    Kind("attribute_error", "user_exception", BOTH, "RESTART"),
    Kind("disk_full_numpy", "disk_full", (0,), "STOP"),
    Kind("object_store_refused", "network_loss", (1,), "RESTART"),
    Kind("object_store_silent", "network_loss", (0,), "RESTART"),
    Kind("loader_out_of_memory", "host_oom", (1,), "RESTART"),
    Kind("sigquit", "killed", (1,), "RESTART"),
    Kind("store_host_killed", "killed", (0,), "RESTART"),
    Kind("c_assertion", "abort", (1,), "RESTART"),
    Kind("generated_code", "syntax_error", (0,), "STOP"),
    Kind("exception_group", "user_exception", (1,), "RESTART"),
    Kind("nan_in_finally", "nan", (0,), "RESTART"),
    Kind("index_in_embedding", "user_exception", (1,), "RESTART"),
    Kind("skipped_barrier", "collective_timeout", (), "RESTART"),
    Kind("noise_then_assertion", "assertion", (0,), "RESTART"),
    Kind("optional_import_then_kill", "killed", (1,), "RESTART"),
)  # fmt: skip

UNSEEN_KINDS: tuple[Kind, ...] = (
    Kind("command_line_library", "bad_arguments", BOTH, "STOP", user_error=True),
    Kind("relative_import", "import_error", BOTH, "STOP", user_error=True),
    Kind("misspelled_name", "user_exception", BOTH, "RESTART"),
    Kind("optimizer_state", "checkpoint_mismatch", BOTH, "STOP", user_error=True),
    Kind("target_size", "shape_mismatch", BOTH, "STOP", user_error=True),
    Kind("channels", "shape_mismatch", BOTH, "STOP", user_error=True),
    Kind("directory_exists", "user_exception", BOTH, "RESTART"),
    Kind("message_and_exit", "unknown", BOTH, "UNKNOWN"),
    Kind("group_twice", "user_exception", BOTH, "RESTART"),
    Kind("cached_dataset_truncated", "data_error", (0,), "RESTART"),
    Kind("shard_archive_truncated", "data_error", (1,), "RESTART"),
    Kind("shard_not_gzip", "data_error", (0,), "RESTART"),
    Kind("input_output_error", "user_exception", (1,), "RESTART"),
    Kind("file_name_too_long", "user_exception", (0,), "RESTART"),
    Kind("helper_command_fails", "user_exception", (1,), "RESTART"),
    Kind("array_too_large", "host_oom", (0,), "RESTART"),
    Kind("sigalrm", "killed", (1,), "RESTART"),
    Kind("monitored_barrier", "collective_timeout", (1,), "RESTART"),
    Kind("key_that_nobody_sets", "rendezvous_error", (), "RESTART"),
    Kind("wrong_type", "user_exception", (0,), "RESTART"),
)  # fmt: skip


def main() -> None:
    corpus, wanted = Path(sys.argv[1]), set(sys.argv[2:])
    for kind in (*KINDS, *LATER_KINDS, *UNSEEN_KINDS):
        if not wanted or kind.name in wanted:
            started = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="faults-") as scratch:
                make_case(kind, Path(scratch), corpus / kind.name, half_of(kind))
            print(f"{kind.name:32} {time.monotonic() - started:5.1f} s", flush=True)


def half_of(kind: Kind) -> str:
    """Kinds alternate, so each half holds about as many of every sort; later ones were never tuned to."""
    if kind in LATER_KINDS or kind in UNSEEN_KINDS:
        return "later" if kind in LATER_KINDS else "unseen"
    return "tuning" if KINDS.index(kind) % 2 == 0 else "held_back"


def make_case(kind: Kind, work: Path, case: Path, half: str, job: str = JOB) -> None:
    scratch, logs = work / "scratch", work / "logs"
    scratch.mkdir()
    logs.mkdir()
    work.chmod(0o755)
    already = _kernel_lines()
    with ExitStack() as stack:
        port = stack.enter_context(_port(keep_open=kind.name == "port_in_use"))
        if kind.name.startswith("disk_full"):
            stack.enter_context(_small_disk(scratch / "small"))
        run = _run_torchrun if kind.torchrun else _run_ranks
        failures = run(kind, [sys.executable, "-m", job, *_arguments(kind, scratch)], logs, port)
    (logs / "failures.json").write_text(json.dumps(failures, indent=1) + "\n")
    told = [
        line
        for line in _kernel_lines()[len(already) :]
        if "oom" in line.lower() or "Out of memory" in line
    ]
    if told:
        (logs / "kernel.log").write_text("\n".join(told) + "\n")
    _keep(kind, half, logs, work, case)


def _arguments(kind: Kind, scratch: Path) -> list[str]:
    return ["--fault", kind.fault or kind.name, "--scratch", str(scratch), *kind.arguments]


def _run_ranks(kind: Kind, argv: list[str], logs: Path, port: int) -> list[dict[str, object]]:
    """Every rank, a file each for their output; survivors are stopped as a launcher would stop them."""
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
    return [
        _failure(rank, process.returncode, ends[rank], hung)
        for rank, process in enumerate(processes)
    ]


def _start(
    rank: int, kind: Kind, argv: list[str], logs: Path, port: int
) -> subprocess.Popen[bytes]:
    with (
        (logs / f"rank_{rank}.out").open("wb") as out,
        (logs / f"rank_{rank}.err").open("wb") as err,
    ):
        process = subprocess.Popen(argv, stdout=out, stderr=err, env=_environment(rank, kind, port))
    if kind.name == "host_oom_killed" and rank == 1:
        group = MEMORY_CGROUP / "aorta-faults"
        group.mkdir(exist_ok=True)
        (group / "memory.limit_in_bytes").write_text(str(MEMORY_LIMIT))
        (group / "cgroup.procs").write_text(str(process.pid))
    return process


def _environment(rank: int, kind: Kind, port: int) -> dict[str, str]:
    ours = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(kind.ranks),
        "OMP_NUM_THREADS": "1",
    }
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return os.environ | ours | meeting | {"LANGUAGE": "de", "PYTHONPATH": str(ROOT)}


def _run_torchrun(kind: Kind, argv: list[str], logs: Path, port: int) -> list[dict[str, object]]:
    command = [
        argv[0],
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=2",
        "--tee=3",
        f"--master-port={port}",
    ]
    with (logs / "job.log").open("wb") as log:
        subprocess.run(
            [*command, *argv[1:]],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=120,
            check=False,
        )
    return []  # torchrun's own summary in the log is all there is


def _signal_all(processes: list[subprocess.Popen[bytes]], number: signal.Signals) -> None:
    for process in processes:
        if process.poll() is None:
            process.send_signal(number)


def _failure(rank: int, code: int, ended: float, hung: bool) -> dict[str, object]:
    status = (
        {"exit_code": None, "signal": -code} if code < 0 else {"exit_code": code, "signal": None}
    )
    return {"rank": rank, **status, "time": round(ended, 3), **({"hung": True} if hung else {})}


@contextmanager
def _port(*, keep_open: bool) -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        if keep_open:
            listener.listen()
        else:
            listener.close()
        yield port


@contextmanager
def _small_disk(path: Path) -> Iterator[None]:
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)


def _kernel_lines() -> list[str]:
    return subprocess.run(
        ["dmesg"], capture_output=True, text=True, check=False
    ).stdout.splitlines()


def _keep(kind: Kind, half: str, logs: Path, work: Path, case: Path) -> None:
    if case.exists():
        shutil.rmtree(case)
    case.mkdir(parents=True)
    here = {
        str(work): "/srv",
        str(ROOT): "/srv/job",
        sys.prefix: "/opt/venv",
        sys.base_prefix: "/usr/local",
    }
    for file in sorted(logs.iterdir()):
        text = file.read_bytes()
        for ours, theirs in here.items():
            text = text.replace(ours.encode(), theirs.encode())
        (case / file.name).write_bytes(text)
    truth = asdict(kind) | {"half": half, "origin": "injected"}
    kept = {"name", "failure_class", "root_ranks", "decision", "user_error", "half", "origin"}
    (case / "truth.json").write_text(
        json.dumps({key: truth[key] for key in truth if key in kept}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
