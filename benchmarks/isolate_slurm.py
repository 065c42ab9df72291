"""`aorta isolate` on a real Slurm of sixteen nodes on this machine: faults planted by node, by pair
and by rank. `ISOLATE_NODES` sets the number of nodes.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_NODES = int(os.environ.get("ISOLATE_NODES", "16"))
_JOBS = {
    "node": """[ "$SLURMD_NODENAME" != n7 ] || { echo "Xid 79: fell off the bus" >&2; exit 7; }""",
    "link": """case ",$AORTA_NODES," in *,n3,*) case ",$AORTA_NODES," in *,n12,*)
echo "NCCL timeout between n3 and n12" >&2; exit 1;; esac;; esac""",
    "rank": """[ "$SLURM_PROCID" != 5 ] || { echo "[rank5]: ValueError: shard 5 is empty" >&2; exit 1; }
sleep 2""",
}
_GUILTY = {"node": "n7", "link": "n3 and n12", "rank": "rank 5"}


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from support.services.slurm import start_slurm

    cluster = start_slurm(names=[f"n{number}" for number in range(1, _NODES + 1)])
    try:
        for kind in _JOBS:
            print(_isolated(kind, cluster.environ), flush=True)
    finally:
        cluster.stop()


def _isolated(kind: str, environ: dict[str, str]) -> str:
    whole = ("--world-size", str(_NODES)) if kind == "rank" else ()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "aorta", "isolate", "--nodes", f"n[1-{_NODES}]", *whole),
                *("--executor", "slurm", "--json", "-q", "--", "bash", "-c", _JOBS[kind]),
            ],
            env={**os.environ, **environ},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    result = json.loads(done.stdout)
    named = [(one["kind"], one["name"]) for one in result.get("guilty", [])]
    right = "right" if named == [(kind, _GUILTY[kind])] else f"wrong: {named}"
    spent = time.perf_counter() - began
    return f"{_NODES} slurmd, planted by {kind}: {right}, {result['runs']} runs, {spent:.0f} s"


if __name__ == "__main__":
    main()
