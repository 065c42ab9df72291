"""Failures that need a CUDA device: out of memory, device assert, illegal access, NCCL time-out
with its dump.

    python -m benchmarks.faults.gpu_faults OUT_DIRECTORY [KIND ...]

From the repository root, with nothing installed but torch; under three minutes on one device. Two
ranks share the device over gloo, because NCCL refuses that (which is one of the kinds); the NCCL
time-out is one rank whose stream is kept busy past it. Each kind becomes one directory of the same
form as those of `make_corpus.py`.
"""

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.faults.kinds import Kind
from benchmarks.faults.make_corpus import make_case

JOB = "benchmarks.faults.gpu_job"
KINDS = (
    Kind("gpu_oom_startup", "device_oom", (0, 1), "STOP", user_error=True),
    Kind("gpu_oom_late", "device_oom", (1,), "RESTART"),
    Kind("gpu_device_assert", "device_assert", (1,), "RESTART"),
    Kind("gpu_illegal_access", "illegal_access", (0,), "RESTART"),
    Kind("gpu_nan", "nan", (1,), "RESTART"),
    Kind("gpu_invalid_device", "bad_config", (0, 1), "STOP", user_error=True),
    Kind("gpu_nccl_duplicate_device", "bad_config", (0, 1), "STOP", user_error=True),
    Kind("gpu_nccl_timeout", "collective_timeout", (), "RESTART", ranks=1),
)
# written when the rules were done, and measured before anything was learned from them
LATER_KINDS = (
    Kind("gpu_fragmented", "device_oom", (1,), "RESTART"),
    Kind("gpu_misaligned", "illegal_access", (0,), "RESTART"),
    Kind("gpu_illegal_and_late", "illegal_access", (1,), "RESTART"),
    Kind("gpu_scatter_outside", "device_assert", (0,), "RESTART"),
    Kind("gpu_label_outside", "device_assert", (1,), "RESTART"),
    Kind("gpu_no_room_for_cublas", "device_oom", (0,), "STOP", user_error=True, ranks=1),
    Kind("gpu_another_architecture", "bad_config", (0, 1), "STOP", user_error=True),
    Kind("gpu_two_devices", "user_exception", (0, 1), "RESTART"),
)


def main() -> None:
    corpus = Path(sys.argv[1])
    for kind in (*KINDS, *LATER_KINDS):
        if len(sys.argv) > 2 and kind.name not in sys.argv[2:]:
            continue
        half = "held_back" if kind in KINDS else "gpu"
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="faults-") as scratch:
            make_case(replace(kind, job=JOB), Path(scratch), corpus / kind.name, half)
            _keep_dumps(Path(scratch) / "scratch", corpus / kind.name)
        print(f"{kind.name:32} {time.monotonic() - started:5.1f} s", flush=True)


def _keep_dumps(scratch: Path, case: Path) -> None:
    """Flight recorder dumps as the process group itself wrote them."""
    for dump in sorted(scratch.glob("nccl_trace_rank_*")):
        (case / "flight_recorder").mkdir(exist_ok=True)
        (case / "flight_recorder" / dump.name).write_bytes(dump.read_bytes())


if __name__ == "__main__":
    main()
