"""The same failure on a real GPU: a device assertion by one bad row, and memory that runs out in
ever other words.

Run on a machine with an NVIDIA GPU and torch: `PYTHONPATH=src python3 -m benchmarks identity_gpu`,
or one story alone: `python3 -m benchmarks.identity_gpu out_of_memory`. Where a trial takes 6 s, the
first story takes 3 minutes and the second 8. What it prints is kept in `results/identity_h200.txt`.
Elsewhere it says so, and runs nothing.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_RUNS, _ROWS = 6, 32
_NEEDED = ("torch", "click", "pydantic", "yaml", "rich", "packaging")
_SOURCE = Path(__file__).resolve().parent.parent / "src"

OUT_OF_MEMORY = '''\
"""A training step that asks for more memory than it may have; how much is taken before it varies."""
import os
import random

import torch

BATCH, LAYERS = int(os.environ.get("BATCH", "16")), int(os.environ.get("LAYERS", "12"))
torch.cuda.set_per_process_memory_fraction(0.02)
taken = [torch.empty(random.randint(1, 4) << 20, dtype=torch.uint8, device="cuda") for _ in range(3)]


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(512, 2048), torch.nn.Linear(2048, 512)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


model = torch.nn.Sequential(*[Block() for _ in range(LAYERS)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(2):
    loss = model(torch.randn(BATCH, 4096, 512, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("trained")
'''

BAD_ROW = '''\
"""An embedding that one row indexes beyond its end; the device says so at a later call."""
import os
import random

import torch

rows = [[int(word) for word in line.split()] for line in open(os.environ.get("ROWS", "rows.txt"))]
table = torch.nn.Embedding(1000, 64).cuda()


def report(loss):
    print("loss", loss.item())


def wait():
    torch.cuda.synchronize()


def step(batch):
    loss = table(torch.tensor(batch, device="cuda")).square().mean()
    if random.random() < 0.5:
        report(loss)
    wait()


for row in rows:
    step(row)
print("trained")
'''


def aorta(folder: Path, *words: str) -> tuple[dict[str, Any], float, int]:
    """The JSON of one command, its seconds and its exit code; what it said where it has none."""
    path = os.pathsep.join(filter(None, [str(_SOURCE), os.environ.get("PYTHONPATH", "")]))
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "aorta", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - began
    try:
        return json.loads(done.stdout), seconds, done.returncode
    except ValueError:
        print(done.stderr[-3000:])
        return {}, seconds, done.returncode


def say(right: bool, words: str) -> None:
    print(f"{'right' if right else 'WRONG'}  {words}", flush=True)


def counted(folder: Path, wanted: str) -> None:
    """Some runs of the program as it is: every one is the same failure."""
    how = ("run", "--trials", str(_RUNS), "--jobs", "4", "--json", "-q")
    found, seconds, _ = aorta(folder, *how, "--", sys.executable, "train.py")
    rate, failure = found.get("rate") or {}, found.get("failure") or {}
    same = rate.get("reproduced")
    say(same == _RUNS, f"run: {same} of {_RUNS} the same, {seconds:.0f} s")
    say(failure.get("class") == wanted, f"class {failure.get('class')}: {found.get('signature')}")


def shrunk(folder: Path, axes: list[dict[str, Any]]) -> dict[str, Any]:
    spec = {
        "workload": {"command": f"{sys.executable} train.py"},
        "oracle": {"kind": "exit_code"},
        "axes": axes,
    }
    (folder / "aorta.yaml").write_text(json.dumps(spec))
    found, seconds, code = aorta(
        folder, "reduce", "--spec", "aorta.yaml", "--output", "out", "--jobs", "4", "--json", "-q"
    )
    sizes = {axis["name"]: (axis["initial"], axis["final"]) for axis in found.get("axes", ())}
    say(code == 0, f"reduce: exit {code}, {found.get('trials')} trials in {seconds:.0f} s: {sizes}")
    say(found.get("status") == "reduced", f"status {found.get('status')}: {found.get('why')}")
    return found


def fails(folder: Path, **variables: str) -> bool:
    return bool(
        subprocess.run(
            [sys.executable, "train.py"],
            cwd=folder,
            env={**os.environ, **variables},
            capture_output=True,
            check=False,
        ).returncode
    )


def solved(folder: Path, budget: str) -> None:
    """The same program, unattended and within a budget."""
    how = ("solve", "--budget", budget, "--jobs", "4", "--json", "-q")
    found, seconds, code = aorta(folder, *how, "--", sys.executable, "train.py")
    failure: dict[str, Any] = found.get("failure") or {}
    rate = failure.get("rate") or {}
    print(
        f"solve: exit {code}, {found.get('status')}, {found.get('trials')} trials, {seconds:.0f} s"
    )
    reproducer = found.get("reproducer") or {}
    print(f"solve: cheaper {reproducer.get('cheaper')}, axes {reproducer.get('axes')}")
    say(bool(rate) and rate["reproduced"] == rate["of"], f"solve: failed {rate}")


def bad_row(folder: Path) -> None:
    print(f"-- a device assertion by one bad row of {_ROWS}")
    (folder / "train.py").write_text(BAD_ROW)
    rows = [" ".join(str((7 * row + word) % 1000) for word in range(8)) for row in range(_ROWS)]
    rows[21] = "5 6 7 1000 8 9 10 11"
    (folder / "rows.txt").write_text("\n".join(rows) + "\n")
    counted(folder, "device_assert")
    found = shrunk(folder, [{"name": "ROWS", "kind": "file_subset", "initial": "rows.txt"}])
    kept = [axis.get("final_items") for axis in found.get("axes", ())]
    say(kept == [[rows[21]]], f"kept {kept}")
    solved(folder, "2m")


def out_of_memory(folder: Path) -> None:
    print("-- out of memory, batch and layers to shrink")
    (folder / "train.py").write_text(OUT_OF_MEMORY)
    counted(folder, "device_oom")
    number = {"kind": "env", "type": "int", "floor": 1, "tolerance": 0.2}
    sizes = {"BATCH": 16, "LAYERS": 12}
    axes = [{"name": name, "initial": most, **number} for name, most in sizes.items()]
    found = shrunk(folder, axes)
    final = {axis["name"]: int(axis["final"]) for axis in found.get("axes", ())}
    for name, size in final.items():
        less = {**final, name: int(size / 1.3)}
        if less[name] >= 1:
            clean = not fails(folder, **{key: str(value) for key, value in less.items()})
            say(clean, f"{less[name]} instead of {size} {name} is clean")
    solved(folder, "6m")


STORIES = {"bad_row": bad_row, "out_of_memory": out_of_memory}


def main(*wanted: str) -> None:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(f"{', '.join(missing)} cannot be imported here: nothing was run")
        return
    import torch  # only where it is, and only for this question

    if not torch.cuda.is_available():
        print("there is no GPU here: nothing was run")
        return
    print(f"torch {torch.__version__} on {torch.cuda.get_device_name()}")
    for name in wanted or STORIES:
        with tempfile.TemporaryDirectory(prefix="aorta-identity-gpu-") as scratch:
            STORIES[name](Path(scratch))


if __name__ == "__main__":
    main(*sys.argv[1:])
