"""`aorta solve` on a real GPU: an iteration that diverges in TF32, cured by `tf32_off`, with
`diverge` naming the product.

Run on a machine with an NVIDIA GPU of the Ampere generation or newer: `PYTHONPATH=src python -m
benchmarks solve_gpu`. What it prints is kept in `results/solve_h200.txt`. Elsewhere it says so, and
runs nothing.
"""

import json
import shutil
import tempfile
import time
from pathlib import Path

from benchmarks.solve import solve

NEWTON = '''\
"""Newton's iteration for the inverse of a matrix of condition 1e5: too much for the 10 bits of TF32."""
import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--size", type=int)
parser.add_argument("--steps", type=int)
given = parser.parse_args()
torch.backends.cuda.matmul.allow_tf32 = True
torch.manual_seed(0)
size = given.size
basis, _ = torch.linalg.qr(torch.randn(size, size, dtype=torch.float64))
spectrum = torch.logspace(0, -5, size, dtype=torch.float64)
matrix = ((basis * spectrum) @ basis.T).float().cuda()
inverse = matrix.T / (matrix.abs().sum(0).max() * matrix.abs().sum(1).max())
identity = torch.eye(size, device="cuda")
for step in range(1, given.steps + 1):
    product = torch.mm(matrix, inverse)
    inverse = torch.mm(inverse, 2 * identity - product)
    if not torch.isfinite(inverse).all():
        raise FloatingPointError(f"loss is nan at step {step}")
print("converged to", float((torch.mm(matrix, inverse) - identity).norm()))
'''


def main() -> None:
    if shutil.which("nvidia-smi") is None:
        print("there is no NVIDIA GPU here: nothing was run")
        return
    with tempfile.TemporaryDirectory(prefix="aorta-solve-gpu-") as scratch:
        place = Path(scratch)
        (place / "train.py").write_text(NEWTON)
        began = time.monotonic()
        training = ("python", "train.py", "--size", "512", "--steps", "400")
        done = solve("--timeout", "120s", "--", *training, cwd=place)
        print(f"exit {done.returncode} after {time.monotonic() - began:.0f} s")
        if not done.stdout:
            print(done.stderr[-4000:])
            return
        document = json.loads(done.stdout)
        _report(document)
        print((Path(document["run_dir"]) / "summary.md").read_text())


def _report(document: dict[str, object]) -> None:
    text = json.dumps(document)
    cure = document["cure"] if isinstance(document["cure"], dict) else {}
    divergence = document["divergence"] if isinstance(document["divergence"], dict) else {}
    first = divergence.get("first") or {}
    failure = document["failure"] if isinstance(document["failure"], dict) else {}
    parts = {
        "class is nan": failure.get("class") == "nan",
        "cured by tf32_off": cure.get("mitigations") == ["tf32_off"],
        "on the original": cure.get("verified_on") == "original",
        "diverge names the product": "mm" in str(first.get("op", "")),
        "ships and fails elsewhere": '"elsewhere": {"reproduced": 1' in text,
    }
    for name, right in parts.items():
        print(f"{'right' if right else 'WRONG'}  {name}")
    print(f"{document['trials']} trials, {document['shared_trials']} shared")
