"""Which detector finds more of one corpus of secrets, which spoils clean text, and how fast each
reads a log.

The peer is detect-secrets with all its plugins. *Named*: it says the line holds a secret.
*Removable*: what it reports covers the whole value, so that taking it out leaves nothing. Target
for our own rules: all removable, no clean line touched; the corpus is ours, so reaching it shows
that nothing was lost, not that nothing else exists.

The second table packs one log with the real command and `--whole-logs`, on one core. Target: 10 MB/s.
*Real frameworks*: the
corpus of the attribution tests. *Collectives*: every line names a machine; *many values*: every line another one. The last line packs
50 logs of 100 kB. Target: 5 s.
"""

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

from aorta.scrub.findings import Kind
from aorta.scrub.scrubber import Scrubber

CLEAN_LINES = (
    "step 12 loss 0.125 grad_norm=1e-4 [INFO] rank 3",
    "max_tokens=4096 num_key_value_heads=8 pad_token=<pad>",
    "SyntaxError: unexpected token: foo; the password is wrong",
    "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "commit 3b18e512dba79e4c8300dd08aeb37f8e728b8dad fixed the hang",
    "/usr/lib/x86_64-linux-gnu/libc.so.6 /opt/rocm-6.2.0/lib/librccl.so",
    "NCCL_DEBUG=INFO PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    "image sha256:4bcff63911fcb4448bd4fdacec207030997caf25e9bea4045fa6c8c44de311d1",
)
LOG_LINE = (
    "2026-11-15 05:35:08,123 [rank3] INFO step 1200 loss 2.3411 lr 1.0e-4 tokens/s 81234 "
    "/home/someone/proj/train.py:42 from 10.1.2.3\n"
)
LOG_LINES = 4000
FEW_LOGS = 50
TESTS = Path(__file__).resolve().parent.parent / "tests"
PACKED_MEGABYTES = 20


def main() -> None:
    sys.path.insert(0, str(TESTS))
    from support.planted import CORPUS

    corpus = [planted for planted in CORPUS if planted.kind is Kind.CREDENTIAL]
    print(f"{len(corpus)} secrets, {len(CLEAN_LINES)} clean lines, a log of {LOG_LINES} lines")
    print(
        f"{'detector':<16} {'named':>6} {'removable':>10} {'clean lines touched':>20} {'MB/s':>6}"
    )
    for name, reported in {"aorta": _aorta, "detect-secrets": _detect_secrets}.items():
        with _ready(name):
            found = [(planted.value, list(reported(planted.line))) for planted in corpus]
            named = sum(bool(values) for _, values in found)
            removable = sum(any(value in got for got in values) for value, values in found)
            touched = sum(bool(list(reported(line))) for line in CLEAN_LINES)
            speed = _megabytes_per_second(reported)
        print(f"{name:<16} {named:>6} {removable:>10} {touched:>20} {speed:>6.2f}")
    print(f"\n{'packing a log of':<16} {'MB/s':>6} {'peak MB a MB of log':>20}")
    for name, log in LOGS.items():
        speed, peak = _packing(log(random.Random(7)))
        print(f"{name:<16} {speed:>6.2f} {peak:>20.1f}")
    print(f"\npacking {FEW_LOGS} logs of 100 kB: {_packing_many():.1f} s")


def _packing_many() -> float:
    """Seconds of CPU of one real `aorta bundle`, the start of the interpreter included."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        (run / "logs").mkdir(parents=True)
        (run / "result.json").write_text('{"schema": "aorta.run/1"}')
        for number in range(FEW_LOGS):
            lines = islice(_plain_log(random.Random(number)), 1200)
            (run / "logs" / f"rank_{number}.log").write_text("".join(lines)[:100_000])
        return _bundled(run, Path(folder)).cpu


def _plain_log(rng: random.Random) -> Iterator[str]:
    """Steps with a few figures; every tenth line names a file and one of 254 machines."""
    for step in count():
        yield (
            f"2026-11-15 05:{rng.randrange(60):02}:{rng.randrange(60):02},{rng.randrange(1000):03} "
            f"[rank{rng.randrange(8)}] INFO step {step} loss {rng.random():.4f} tokens/s 81234\n"
        )
        if step % 10 == 0:
            yield f"/home/someone/proj/train.py:42 from 10.1.2.{rng.randrange(1, 255)}\n"


def _log_of_many_values(rng: random.Random) -> Iterator[str]:
    for step in count():
        yield (
            f"step {step}: 10.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(256)} is "
            "slow\n"
        )


def _log_of_collectives(rng: random.Random) -> Iterator[str]:
    while True:
        host, channel = rng.randrange(64), rng.randrange(32)
        yield (
            f"gpu-{host:03}:{100000 + host}:{200000 + rng.randrange(4000)} [{host % 8}] NCCL INFO "
            f"Channel {channel:02}/0 : "
            f"{rng.randrange(512)}[{host % 8}] -> {rng.randrange(512)}[{channel % 8}] via "
            "P2P/CUMEM/read\n"
        )


def _log_of_frameworks(rng: random.Random) -> Iterator[str]:
    """What real frameworks wrote before they failed, again and again, in another order."""
    files = sorted((TESTS / "attribution" / "corpus").rglob("rank_*"))
    while True:
        for file in rng.sample(files, len(files)):
            text = file.read_text(errors="replace").replace("\0", "")
            yield from text.splitlines(keepends=True)


LOGS = {
    "real frameworks": _log_of_frameworks,
    "plain lines": _plain_log,
    "collectives": _log_of_collectives,
    "many values": _log_of_many_values,
}


def _packing(lines: Iterator[str]) -> tuple[float, float]:
    """Megabytes a second of CPU, and the memory taken beside the interpreter, of one real `aorta
    bundle`.
    """
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        (run / "logs").mkdir(parents=True)
        (run / "result.json").write_text('{"schema": "aorta.run/1"}')
        small = _bundled(run, Path(folder))
        log = run / "logs" / "train.log"
        with log.open("w") as file:
            while file.tell() < PACKED_MEGABYTES * 1e6:
                file.writelines(islice(lines, 1000))
        large = _bundled(run, Path(folder))
        megabytes = log.stat().st_size / 1e6
    return megabytes / (large.cpu - small.cpu), (large.peak - small.peak) / megabytes


@dataclass(frozen=True)
class _Cost:
    cpu: float  # seconds
    peak: float  # megabytes


def _bundled(run: Path, output: Path) -> _Cost:
    command = [sys.executable, "-m", "aorta", "bundle", str(run), "--output", str(output)]
    command += ["--whole-logs"]
    process = subprocess.Popen(
        [*command, "--ticket", "T"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)
    return _Cost(used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3)


def _aorta(text: str) -> Iterator[str]:
    scrubber = Scrubber()
    scrubber.learn(text)
    return (span.value for span in scrubber.text(text).taken)


def _detect_secrets(text: str) -> Iterator[str]:
    """As it is used on files: its line-wise mode switches the entropy limit off and reports every
    word.
    """
    from detect_secrets.core.scan import scan_file

    with tempfile.NamedTemporaryFile("w", suffix=".log") as file:
        file.write(text)
        file.flush()
        for secret in scan_file(file.name):
            if secret.type != "Public IP (ipv4)":
                yield secret.secret_value or ""


@contextmanager
def _ready(name: str) -> Iterator[None]:
    if name != "detect-secrets":
        yield
        return
    from detect_secrets.settings import default_settings

    with default_settings():
        yield


def _megabytes_per_second(reported: Callable[[str], Iterable[str]]) -> float:
    log = LOG_LINE * LOG_LINES
    began = time.process_time()
    for _value in reported(log):
        continue
    return len(log) / 1e6 / (time.process_time() - began)


if __name__ == "__main__":
    main()
