"""Failing programs as people have them, with real libraries, each with a truth that was written
first: `aorta solve` must name its class, reduce it to the truth, and ship what runs elsewhere.

The libraries come from the Python that STORIES_PYTHON names, by default the one that runs this; a
story whose library is missing is not run, and the table says so. `python -m benchmarks stories`
runs all of them, STORIES=csv_sklearn,race some; STORIES_BUDGET is the budget of each, 10m unless
said. `load` is the machine's load average over the last five minutes of a story: on a busy machine
seconds say little.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Make = Callable[[Path], tuple[str, ...]]


@dataclass(frozen=True)
class Story:
    name: str
    needs: tuple[str, ...]  # modules of Python
    make: Make
    kinds: frozenset[str]  # classes that are right
    axes: Mapping[str, float] = field(
        default_factory=dict
    )  # what must be left, numbers within 10 %
    options: tuple[str, ...] = ()


def _csv_sklearn(place: Path) -> tuple[str, ...]:
    """One row of 3,000 holds a word where a number belongs."""
    rows = [f"{n},{n * 0.5},{n % 2}" for n in range(3000)]
    rows[1733] = "1733,n/a?,1"
    (place / "table.csv").write_text("id,x,label\n" + "\n".join(rows) + "\n")
    (place / "fit.py").write_text(
        "import csv, sys\n"
        "from sklearn.linear_model import LogisticRegression\n"
        "rows = list(csv.DictReader(open(sys.argv[1])))\n"
        "x = [[float(row['x'])] for row in rows]\n"
        "y = [int(row['label']) for row in rows]\n"
        "if len(set(y)) > 1:\n"
        "    LogisticRegression().fit(x, y)\n"
    )
    return (_python(), "fit.py", "table.csv")


def _jsonl_unicode(place: Path) -> tuple[str, ...]:
    """One record of 2,000 cannot be encoded, below a wrapper that prints an error of its own."""
    records = [json.dumps({"id": n, "text": f"ticket {n}"}) for n in range(2000)]
    records[1204] = json.dumps({"id": 1204, "text": "caf\u00e9 \u20ac"})
    (place / "tickets.jsonl").write_text("\n".join(records) + "\n")
    (place / "export.py").write_text(
        "import json, sys\n"
        "for line in open(sys.argv[1]):\n"
        "    json.loads(line)['text'].encode('ascii')\n"
    )
    (place / "pipeline.py").write_text(
        "import subprocess, sys\n"
        "subprocess.run([sys.executable, 'export.py', sys.argv[1]], check=True)\n"
    )
    return (_python(), "pipeline.py", "tickets.jsonl")


def _torch_nan(place: Path) -> tuple[str, ...]:
    """A loss that is not finite from step 60 on, in a model of at least two layers; a YAML file
    holds both, and a period that is no size.
    """
    (place / "config.yaml").write_text("layers: 12\nsteps: 900\neval_every: 500\nlr: 0.1\n")
    (place / "train.py").write_text(
        "import torch, yaml\n"
        "given = yaml.safe_load(open('config.yaml'))\n"
        "net = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(given['layers'])])\n"
        "for step in range(given['steps']):\n"
        "    loss = net(torch.ones(2, 4)).sum()\n"
        "    if step == 59 and given['layers'] >= 2:\n"
        "        loss = loss * float('nan')\n"
        "    if not torch.isfinite(loss):\n"
        "        raise FloatingPointError(f'loss is {loss.item()} at step {step}')\n"
    )
    return (_python(), "train.py")


def _shell_pipeline(place: Path) -> tuple[str, ...]:
    """A sort that is fed a line which its reader does not take."""
    lines = [f"{n} ok" for n in range(1500)]
    lines[912] = "912 BROKEN"
    (place / "lines.txt").write_text("\n".join(lines) + "\n")
    (place / "run.sh").write_text(
        "set -euo pipefail\n"
        'sort -n "$1" | awk \'/BROKEN/ { print "unreadable record " $1 > "/dev/stderr"; exit 4 }\'\n'
    )
    return ("bash", "run.sh", "lines.txt")


def _race(place: Path) -> tuple[str, ...]:
    """Two threads that add to one total; one thread cures it."""
    (place / "total.py").write_text(
        "import os, random, sys\n"
        "rounds = int(os.environ.get('ROUNDS', '400'))\n"
        "threads = int(os.environ.get('OMP_NUM_THREADS', '2'))\n"
        "lost = sum(random.random() < 0.02 for _ in range(rounds)) if threads > 1 else 0\n"
        "if rounds >= 30 and lost:\n"
        "    raise AssertionError(f'reduced {rounds - lost}, expected {rounds}')\n"
    )
    return (_python(), "total.py")


def _memory(place: Path) -> tuple[str, ...]:
    """A batch that does not fit into the limit."""
    (place / "load.py").write_text(
        "import argparse, resource\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--batch', type=int, default=4)\n"
        "given = parser.parse_args()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (600 << 20, 600 << 20))\n"
        "data = [bytearray(8 << 20) for _ in range(given.batch)]\n"
    )
    return (_python(), "load.py", "--batch", "4000")


def _numpy_rows(place: Path) -> tuple[str, ...]:
    """One row of an array is not finite."""
    code = "import numpy as n; a = n.ones((800, 4)); a[311] = n.inf; n.save('data.npy', a)"
    subprocess.run((_python(), "-c", code), cwd=place, check=True)
    (place / "check.py").write_text(
        "import numpy, sys\n"
        "data = numpy.load(sys.argv[1])\n"
        "if not numpy.isfinite(data).all():\n"
        "    raise ValueError('input contains infinity')\n"
    )
    return (_python(), "check.py", "data.npy")


def _torchrun(place: Path) -> tuple[str, ...]:
    """Rank 1 of two dies at step 20."""
    (place / "ddp.py").write_text(
        "import argparse, os, torch.distributed as dist\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--steps', type=int, default=100)\n"
        "given = parser.parse_args()\n"
        "dist.init_process_group('gloo')\n"
        "for step in range(given.steps):\n"
        "    if step == 19 and dist.get_rank() == 1:\n"
        "        raise RuntimeError('shard of rank 1 is empty')\n"
    )
    return (_python(), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
            "ddp.py", "--steps", "300")  # fmt: skip


def _trainer(place: Path) -> tuple[str, ...]:
    """A label of one record of 600 is outside of the classes (Hugging Face Trainer)."""
    records = [json.dumps({"x": n % 7, "label": n % 2}) for n in range(600)]
    records[402] = json.dumps({"x": 3, "label": 9})
    (place / "data.jsonl").write_text("\n".join(records) + "\n")
    (place / "train.py").write_text(
        "import json, sys, torch\n"
        "from transformers import BertConfig, BertForSequenceClassification\n"
        "from transformers import Trainer, TrainingArguments\n"
        "rows = [json.loads(line) for line in open(sys.argv[1])]\n"
        "config = BertConfig(vocab_size=16, hidden_size=8, num_hidden_layers=1,\n"
        "                    num_attention_heads=1, intermediate_size=8)\n"
        "data = [{'input_ids': torch.tensor([row['x']] * 4), 'labels': row['label']}\n"
        "        for row in rows]\n"
        "given = TrainingArguments('out', num_train_epochs=1, report_to=[], use_cpu=True,\n"
        "                          per_device_train_batch_size=32)\n"
        "Trainer(BertForSequenceClassification(config), given, train_dataset=data).train()\n"
    )
    return (_python(), "train.py", "data.jsonl")


def _jax_shapes(place: Path) -> tuple[str, ...]:
    """Widths that do not fit each other beyond 64."""
    (place / "net.py").write_text(
        "import argparse, jax.numpy as jnp\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--width', type=int, default=8)\n"
        "width = parser.parse_args().width\n"
        "jnp.dot(jnp.ones((4, min(width, 64))), jnp.ones((width, 4)))\n"
    )
    return (_python(), "net.py", "--width", "900")


def _accelerate_launch(place: Path) -> tuple[str, ...]:
    """A label of one record of 500 is outside of the classes; the launcher prints an error of its
    own, with the whole command in it.
    """
    records = [json.dumps({"x": [n % 5, n % 3], "label": n % 4}) for n in range(500)]
    records[317] = json.dumps({"x": [2, 2], "label": 11})
    (place / "rows.jsonl").write_text("\n".join(records) + "\n")
    (place / "train.py").write_text(
        "import argparse, json, torch\n"
        "from accelerate import Accelerator\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--data')\n"
        "parser.add_argument('--epochs', type=int, default=1)\n"
        "given = parser.parse_args()\n"
        "rows = [json.loads(line) for line in open(given.data)]\n"
        "x = torch.tensor([row['x'] for row in rows], dtype=torch.float32)\n"
        "y = torch.tensor([row['label'] for row in rows])\n"
        "net = torch.nn.Linear(2, 4)\n"
        "accelerator = Accelerator()\n"
        "net, sgd, batches = accelerator.prepare(\n"
        "    net, torch.optim.SGD(net.parameters(), lr=0.1),\n"
        "    torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=16))\n"
        "for epoch in range(given.epochs):\n"
        "    for x, y in batches:\n"
        "        accelerator.backward(torch.nn.functional.cross_entropy(net(x), y))\n"
        "        sgd.step()\n"
        "        sgd.zero_grad()\n"
    )
    return ("accelerate", "launch", "--cpu", "--num_processes", "1", "train.py",
            "--data", "rows.jsonl", "--epochs", "6")  # fmt: skip


def _lightning_memory(place: Path) -> tuple[str, ...]:
    """A batch whose activations do not fit below `ulimit -v`: 2 GiB more than a batch of one needs,
    and a row takes three of 1 MiB (of two layers, and a gradient). `--log-every` is no size.
    """
    (place / "train.py").write_text(
        "import argparse, torch\n"
        "from lightning import LightningModule, Trainer\n"
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "class Net(LightningModule):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.net = torch.nn.Sequential(torch.nn.Linear(2, 1 << 18), torch.nn.ReLU())\n"
        "    def training_step(self, batch, number):\n"
        "        return self.net(batch[0]).mean()\n"
        "    def configure_optimizers(self):\n"
        "        return torch.optim.SGD(self.parameters(), lr=0.1)\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--batch-size', type=int, default=1)\n"
        "parser.add_argument('--epochs', type=int, default=1)\n"
        "parser.add_argument('--log-every', type=int, default=50)\n"
        "given = parser.parse_args()\n"
        "rows = TensorDataset(torch.ones(4096, 2))\n"
        "trainer = Trainer(accelerator='cpu', max_epochs=given.epochs, limit_train_batches=1,\n"
        "                  log_every_n_steps=given.log_every, logger=False,\n"
        "                  enable_checkpointing=False, enable_progress_bar=False)\n"
        "trainer.fit(Net(), DataLoader(rows, batch_size=given.batch_size))\n"
    )
    peak = "import runpy; runpy.run_path('train.py'); print(open('/proc/self/status').read())"
    told = subprocess.run(
        (_python(), "-c", peak), cwd=place, check=True, capture_output=True, text=True
    ).stdout
    needs = int(next(line for line in told.splitlines() if line.startswith("VmPeak")).split()[1])
    (place / "job.sh").write_text(
        f'ulimit -v {needs + (2 << 20)}\nexec {_python()} train.py "$@"\n'
    )
    return ("bash", "job.sh", "--batch-size", "4096", "--epochs", "5", "--log-every", "50")


STORIES = (
    Story("csv_sklearn", ("sklearn",), _csv_sklearn, frozenset({"data_error", "user_exception"}),
          {"TABLE_FILE": 1}),
    Story("jsonl_wrapped", (), _jsonl_unicode, frozenset({"data_error", "user_exception"}),
          {"TICKETS_FILE": 1}),
    Story("torch_yaml", ("torch", "yaml"), _torch_nan, frozenset({"nan"}),
          {"CONFIG_LAYERS": 2, "CONFIG_STEPS": 60}),
    Story("shell_pipeline", (), _shell_pipeline,
          frozenset({"data_error", "user_exception", "unknown"}), {"LINES_FILE": 1}),
    Story("race", (), _race, frozenset({"assertion", "user_exception"}),
          {"ROUNDS": 30}),
    Story("memory_limit", (), _memory, frozenset({"host_oom"}), {"BATCH": 73}),
    Story("numpy_rows", ("numpy",), _numpy_rows, frozenset({"data_error", "nan", "user_exception"}),
          {"DATA_FILE": 1}, ("--allow-binary",)),
    Story("torchrun_pair", ("torch",), _torchrun, frozenset({"data_error", "user_exception"}),
          {"ranks": 2, "STEPS": 20}),
    Story("hf_trainer", ("transformers", "accelerate"), _trainer,
          frozenset({"data_error", "user_exception", "device_assert", "bad_config"}),
          {"DATA_FILE": 1}),
    Story("jax_shapes", ("jax",), _jax_shapes,
          frozenset({"shape_mismatch", "user_exception"}), {"WIDTH": 65}),
    Story("accelerate_run", ("accelerate", "torch"), _accelerate_launch,
          frozenset({"data_error", "user_exception"}), {"DATA": 1, "EPOCHS": 1}),
    Story("lightning_limit", ("lightning",), _lightning_memory, frozenset({"host_oom"}),
          {"BATCH_SIZE": 683, "EPOCHS": 1}),
)  # fmt: skip


def _python() -> str:
    return os.environ.get("STORIES_PYTHON", sys.executable)


def main() -> None:
    wanted = [name for name in os.environ.get("STORIES", "").split(",") if name]
    print(f"{'story':<16}{'class':<18}{'trials':>7}{'seconds':>9}{'load':>6}  what was wrong")
    for story in STORIES:
        if not wanted or story.name in wanted:
            print(_line(story), flush=True)


def _line(story: Story) -> str:
    missing = [module for module in story.needs if not _has(module)]
    if missing:
        return f"{story.name:<16}not run: no {', '.join(missing)}"
    with tempfile.TemporaryDirectory(prefix="aorta-story-") as scratch:
        place = Path(scratch)
        command = story.make(place)
        budget = os.environ.get("STORIES_BUDGET", "10m")
        began = time.monotonic()
        done = subprocess.run(
            (sys.executable, "-m", "aorta", "solve", "--json", "-q", "--budget", budget,
             *story.options, "--", *command),
            cwd=place, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
            env=os.environ | {"PATH": f"{Path(_python()).parent}:{os.environ['PATH']}"},
        )  # fmt: skip
        spent = time.monotonic() - began
        try:
            document = json.loads(done.stdout)
        except ValueError:
            return f"{story.name:<16}no answer: exit {done.returncode}: {done.stderr[-200:]}"
    wrong = "; ".join(_wrong(story, document)) or "nothing"
    kind = str((document["failure"] or {}).get("class"))
    return (
        f"{story.name:<16}{kind:<18}{document['trials']:>7}{spent:>9.0f}{os.getloadavg()[1]:>6.0f}"
        f"  {wrong}"
    )


def _has(module: str) -> bool:
    find = f"import importlib.util as u, sys; sys.exit(not u.find_spec({module!r}))"
    return subprocess.run((_python(), "-c", find), check=False).returncode == 0


def _wrong(story: Story, document: Mapping[str, Any]) -> list[str]:
    found = []
    kind = (document["failure"] or {}).get("class")
    if kind not in story.kinds:
        found.append(f"class {kind}")
    reproducer = document["reproducer"] or {}
    left = {axis["name"]: axis["final"] for axis in reproducer.get("axes", [])}
    for name, right in story.axes.items():
        got = left.get(name)
        exact = name.endswith(("_FILE", "_DIR", "ranks"))
        fits = got == right if exact else got is not None and right * 0.9 <= got <= right * 1.1
        if not fits:
            found.append(f"{name} {got}, and not {right:g}")
    elsewhere = reproducer.get("elsewhere") or {}
    if not elsewhere.get("reproduced"):
        found.append("does not run elsewhere")
    return found


if __name__ == "__main__":
    main()
