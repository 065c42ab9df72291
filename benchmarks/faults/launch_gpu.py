"""CUDA out-of-memory and a device assert under `aorta launch`: are they attributed and decided
right?

    PYTHONPATH=src python -m benchmarks.faults.launch_gpu REPORT.json

From the repository root on a machine with one CUDA device and torch, click, pydantic, PyYAML and
rich; under three minutes. Two ranks share the device over gloo. Exits with 1 where any case is not
as it should be; the report says which.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
JOB = Path(__file__).with_name("gpu_job.py")
RESTARTS = 3


@dataclass(frozen=True)
class Case:
    fault: str
    failure_class: str
    actions: tuple[str, ...]  # of every cycle that failed, in order
    exit_code: int = 93


CASES = (
    Case("gpu_oom_startup", "device_oom", ("STOP",)),
    Case("gpu_oom_late", "device_oom", ("RESTART", "STOP")),
    Case("gpu_device_assert", "device_assert", ("RESTART", "STOP")),
    Case("none", "", (), exit_code=0),
)


def main() -> None:
    report = [_run(case) for case in CASES]
    Path(sys.argv[1]).write_text(json.dumps({"cases": report}, indent=2) + "\n")
    for row in report:
        print(f"{row['fault']:20} {'right' if row['right'] else 'WRONG'}  {row['seen']}")
    sys.exit(0 if all(row["right"] for row in report) else 1)


def _run(case: Case) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        logs = Path(scratch) / "logs"
        began = time.monotonic()
        ended = subprocess.run(
            [
                *(sys.executable, "-m", "aorta", "launch", "--nproc-per-node", "2"),
                *("--max-restarts", str(RESTARTS), "--log-dir", str(logs), str(JOB)),
                *("--fault", case.fault, "--scratch", scratch),
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            check=False,
        )
        infos = [json.loads(path.read_text()) for path in sorted(logs.glob("cycle_*/*_info.json"))]
        failed = [info for info in infos if info["decision"] is not None]
        seen = {
            "exit_code": ended.returncode,
            "classes": sorted({info["finding"]["class"] for info in failed if info["finding"]}),
            "actions": [info["decision"]["action"] for info in failed],
        }
        wanted = {
            "exit_code": case.exit_code,
            "classes": [case.failure_class] if case.failure_class else [],
            "actions": list(case.actions),
        }
        return {
            "fault": case.fault,
            "right": seen == wanted,
            "seen": seen,
            "wanted": wanted,
            "findings": [info["finding"] for info in failed],
            "seconds": round(time.monotonic() - began, 1),
            "last_words": ended.stderr.splitlines()[-3:],
        }


if __name__ == "__main__":
    main()
