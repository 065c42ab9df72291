"""Run every failing job for real and keep what each left behind, with the truth beside it.

    python -m benchmarks.faults.make_corpus tests/attribution/corpus [KIND ...]

Needs Linux and root (a small tmpfs, a memory cgroup, setuid), a C compiler, and the packages of the
extra `faults`. Each kind becomes one directory: the logs, how each rank ended and when, kernel
messages where the kernel had something to say, and `truth.json`. Paths of this machine are
replaced, nothing else is touched.
"""

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

from benchmarks.faults import fresh, last, newest
from benchmarks.faults.kinds import KINDS, LATER_KINDS, UNSEEN_KINDS, Kind
from benchmarks.faults.launching import ROOT, run


def main() -> None:
    corpus, wanted = Path(sys.argv[1]), set(sys.argv[2:])
    for half, kind in every_kind():
        if not wanted or wanted & {kind.name, half}:
            started = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="faults-") as scratch:
                make_case(kind, Path(scratch), corpus / kind.name, half)
            print(f"{kind.name:32} {time.monotonic() - started:5.1f} s", flush=True)


def every_kind() -> Iterator[tuple[str, Kind]]:
    """The first kinds alternate, so each half holds about as many of every sort; later ones were
    never tuned to.
    """
    for number, kind in enumerate(KINDS):
        yield ("tuning" if number % 2 == 0 else "held_back"), kind
    yield from (("later", kind) for kind in LATER_KINDS)
    yield from (("unseen", kind) for kind in UNSEEN_KINDS)
    yield from (("fresh", kind) for kind in fresh.KINDS)
    yield from (("newest", kind) for kind in newest.KINDS)
    yield from (("last", kind) for kind in last.KINDS)


def make_case(kind: Kind, work: Path, case: Path, half: str) -> None:
    scratch, logs = work / "scratch", work / "logs"
    scratch.mkdir()
    logs.mkdir()
    work.chmod(0o755)
    already = _kernel_lines()
    with ExitStack() as stack:
        port = stack.enter_context(_port(keep_open="port_in_use" in kind.name))
        if kind.name.startswith("disk_full"):
            stack.enter_context(_small_disk(scratch / "small"))
        failures = run(kind, scratch, logs, port)
    (logs / "failures.json").write_text(json.dumps(failures, indent=1) + "\n")
    told = [
        line
        for line in _kernel_lines()[len(already) :]
        if "oom" in line.lower() or "Out of memory" in line
    ]
    if told and "oom_killed" in kind.name:
        (logs / "kernel.log").write_text("\n".join(told) + "\n")
    _keep(kind, half, logs, work, case)


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
        socket.gethostname(): "node-1",
    }
    for file in sorted(path for path in logs.iterdir() if path.is_file()):
        text = file.read_bytes()
        for ours, theirs in here.items():
            text = text.replace(ours.encode(), theirs.encode())
        (case / file.name).write_bytes(text)
    truth = asdict(kind) | {"half": half}
    kept = {"name", "failure_class", "root_ranks", "decision", "user_error", "half", "origin"}
    (case / "truth.json").write_text(
        json.dumps({key: truth[key] for key in truth if key in kept}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
