"""Real failures of other frameworks: JAX with its coordination service, Ray, HF Trainer, Lightning,
srun -K, a container's memory limit.

    python -m benchmarks.faults.frameworks tests/attribution/corpus FRAMEWORK PYTHON [NAME ...]

PYTHON is an interpreter that has the framework. The truth stands beside each program and was
written before any rule saw its log. `slurm` needs the commands of a running Slurm, `docker` a
running engine.
"""

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.faults.field import RESTART, STOP

_LIMIT = 240.0


@dataclass(frozen=True)
class Failing:
    """A program, run by so many ranks, and what a perfect reader would say about its end."""

    framework: str
    name: str
    program: str
    failure_class: str
    decision: str
    root_ranks: tuple[int, ...] = ()
    ranks: int = 2
    options: tuple[str, ...] = ()  # of srun

    @property
    def user_error(self) -> bool:
        return self.decision == STOP and self.failure_class != "time_limit"


_JAX = """
import os, signal, sys, time
rank, port = int(os.environ["RANK"]), os.environ["PORT"]
import jax, jax.numpy as jnp
jax.config.update("jax_platforms", "cpu")
def join(processes=2, **more):
    jax.distributed.initialize(f"127.0.0.1:{port}", processes, rank, heartbeat_timeout_seconds=10, **more)
@jax.jit
def loss_of(w, x):
    return jnp.mean((x @ w) ** 2)
def train(steps, at=None, fault=None, wait=0.0):
    w, x = jnp.ones((8, 4)), jnp.ones((16, 8))
    for step in range(1, steps + 1):
        loss = loss_of(w, x)
        w = w - 0.01 * jax.grad(loss_of)(w, x)
        print(f"step {step} loss {float(loss):.4f}", flush=True)
        time.sleep(wait)
        if step == at:
            fault()
"""
_RAY = """
import os, signal, sys, time, ctypes
import ray
ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100_000_000)
"""
_HF = """
import json, os, signal, sys, torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
class Data(torch.utils.data.Dataset):
    def __init__(self, bad=None, labels=1): self.bad, self.labels = bad, labels
    def __len__(self): return 64
    def __getitem__(self, i):
        if self.bad is not None and i in self.bad: json.loads('{"text": "cut o')
        return {"input_ids": torch.ones(8, dtype=torch.long), "labels": torch.ones(self.labels, dtype=torch.long).squeeze()}
def model(): return BertForSequenceClassification(BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16))
def arguments(**more):
    return TrainingArguments("out", use_cpu=True, max_steps=20, logging_steps=1, report_to=[], per_device_train_batch_size=4, save_strategy="no", **more)
"""
_LIGHTNING = """
import os, signal, sys, torch, lightning
class Model(lightning.LightningModule):
    def __init__(self, width=8):
        super().__init__(); self.save_hyperparameters(); self.layer = torch.nn.Linear(8, width)
    def training_step(self, batch, index): return self.layer(batch).pow(2).mean()
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), 0.1)
def loader(count=64): return torch.utils.data.DataLoader(torch.ones(count, 8), batch_size=4)
def trainer(**more): return lightning.Trainer(accelerator="cpu", max_epochs=2, logger=False, enable_checkpointing=False, **more)
"""
_SLURM = """
import os, sys, time, ctypes, signal
rank = int(os.environ["SLURM_PROCID"])
for step in range(1, 6):
    print(f"rank {rank} step {step} loss {1 / step:.3f}", flush=True); time.sleep(0.1)
"""

FAILING = (
    Failing("jax", "jax_module_missing", _JAX + "join(); import flax_that_is_not_there", "import_error", STOP),
    Failing("jax", "jax_task_killed", _JAX + "join(); train(60, 3 if rank else None, lambda: "
                                             "os.kill(os.getpid(), 9), wait=0.5)", "killed", RESTART, (1,)),
    Failing("jax", "jax_leader_killed", _JAX + "join(); train(60, None if rank else 3, lambda: "
                                               "os.kill(os.getpid(), 9), wait=0.5)", "killed", RESTART, (0,)),
    Failing("jax", "jax_shapes", _JAX + "join(); loss_of(jnp.ones((7, 4)), jnp.ones((16, 8)))", "shape_mismatch", STOP),
    Failing("jax", "jax_one_is_missing", _JAX + "join(3, initialization_timeout=15); train(3)", "rendezvous_error", RESTART),
    Failing("jax", "jax_exception_on_one", _JAX + "def fault(): raise ValueError('bad batch: "
                                                  "label 12 of 10 classes')\njoin(); train(60, 3 "
                                                  "if rank else None, fault, wait=0.5)", "user_exception", RESTART, (1,)),
    Failing("jax", "jax_nan", _JAX + "jax.config.update('jax_debug_nans', True)\njoin(); "
                                     "train(4); jnp.log(-jnp.ones(3))", "nan", RESTART),
    Failing("jax", "jax_checkpoint_missing", _JAX + "join(); import numpy; "
                                                    "numpy.load('/data/checkpoints/step_4000.npz')", "missing_file", STOP),
    Failing("jax", "jax_flag_unknown", _JAX + "join(); jax.config.update('jax_enable_x46', True)", "bad_config", STOP),
    Failing("jax", "jax_segfault_on_one", _JAX + "import ctypes\njoin(); train(60, 4 if rank else "
                                                 "None, lambda: ctypes.string_at(0), wait=0.5)", "segfault", RESTART, (1,)),
    Failing("ray", "ray_task_exception", _RAY + "@ray.remote\ndef work(i):\n    if i == 3: raise "
                                                "ValueError('label 12 of 10 classes')\n    return "
                                                "i\nprint(ray.get([work.remote(i) for i in "
                                                "range(5)]))", "user_exception", RESTART, ranks=1),
    Failing("ray", "ray_task_import", _RAY + "@ray.remote\ndef work():\n    import "
                                             "flash_attn_that_is_not_there\nray.get(work.remote())", "import_error", STOP, ranks=1),
    Failing("ray", "ray_actor_killed", _RAY + "@ray.remote\nclass Worker:\n    def step(self, "
                                              "n):\n        print(f'step {n} loss {1 / n:.3f}', "
                                              "flush=True)\n        if n == 4: "
                                              "os.kill(os.getpid(), 9)\nw = Worker.remote()\nfor "
                                              "n in range(1, 9): ray.get(w.step.remote(n))", "killed", RESTART, ranks=1),
    Failing("ray", "ray_task_segfault", _RAY + "@ray.remote(max_retries=0)\ndef work():\n    "
                                               "ctypes.string_at(0)\nray.get(work.remote())", "segfault", RESTART, ranks=1),
    Failing("ray", "ray_memory_monitor", "import os\nos.environ['RAY_memory_usage_threshold'] = "
                                         "'0.02'\nos.environ['RAY_memory_monitor_refresh_ms'] = "
                                         "'200'" + _RAY + "@ray.remote(max_retries=0)\ndef "
                                                          "work():\n    held = "
                                                          "bytearray(300_000_000); "
                                                          "time.sleep(60)\nray.get(work.remote())", "host_oom", RESTART, ranks=1),
    Failing("ray", "ray_checkpoint_missing", _RAY + "@ray.remote\ndef work():\n    return "
                                                    "open('/data/ckpt/latest.pt', "
                                                    "'rb').read()\nray.get(work.remote())", "missing_file", STOP, ranks=1),
    Failing("ray", "ray_actor_exit", _RAY + "@ray.remote\nclass Worker:\n    def step(self): "
                                            "sys.exit(3)\nw = Worker.remote()\nray.get(w.step.remote())", "unknown", "UNKNOWN", ranks=1),
    Failing("hf", "hf_shapes", _HF + "Trainer(model(), arguments(), "
                                     "train_dataset=Data(labels=3)).train()", "shape_mismatch", STOP, ranks=1),
    Failing("hf", "hf_resume_from_nothing", _HF + "Trainer(model(), arguments(), "
                                                  "train_dataset=Data()).train(resume_from_checkpoint='/data/ckpt/checkpoint-4000')", "missing_file", STOP, ranks=1),
    Failing("hf", "hf_fp16_on_cpu", _HF + "arguments(fp16=True, bf16=True)", "bad_config", STOP, ranks=1),
    Failing("hf", "hf_bad_record", _HF + "Trainer(model(), arguments(), "
                                         "train_dataset=Data(bad=range(40, 64))).train()", "data_error", RESTART, ranks=1),
    Failing("hf", "hf_killed", _HF + "from transformers import TrainerCallback\nclass "
                                     "Kill(TrainerCallback):\n    def on_step_end(self, a, state, "
                                     "c, **k):\n        if state.global_step == 8: "
                                     "os.kill(os.getpid(), 9)\nTrainer(model(), arguments(), "
                                     "train_dataset=Data(), callbacks=[Kill()]).train()", "killed", RESTART, ranks=1),
    Failing("hf", "hf_argument_unknown", _HF + "arguments(evaluation_strategi='steps')", "bad_config", STOP, ranks=1),
    Failing("hf", "hf_no_eval_dataset", _HF + "Trainer(model(), arguments(eval_strategy='steps', "
                                              "eval_steps=2), train_dataset=Data()).train()", "bad_config", STOP, ranks=1),
    Failing("lightning", "lightning_bad_accelerator", _LIGHTNING + "lightning.Trainer(accelerator='gpu', devices=2)", "bad_config", STOP, ranks=1),
    Failing("lightning", "lightning_width", _LIGHTNING + "t = trainer(); m = Model(4); "
                                                         "t.strategy.connect(m); t.fit(m, "
                                                         "loader(8)); t.save_checkpoint('w.ckpt'); Model.load_from_checkpoint('w.ckpt', width=9)", "checkpoint_mismatch", STOP, ranks=1),
    Failing("lightning", "lightning_checkpoint_missing", _LIGHTNING + "trainer().fit(Model(), "
                                                                      "loader(), ckpt_path='/data/ckpt/last.ckpt')", "missing_file", STOP, ranks=1),
    Failing("lightning", "lightning_no_optimizer", _LIGHTNING + "del Model.training_step\ntrainer().fit(Model(), loader())", "bad_config", STOP, ranks=1),
    Failing("lightning", "lightning_exception", _LIGHTNING + "def step(self, batch, index):\n    "
                                                             "if index == 9: raise "
                                                             "RuntimeError('reward is not finite "
                                                             "for sample 36')\n    return "
                                                             "self.layer(batch).mean()\nModel.training_step = step\ntrainer().fit(Model(), loader())", "user_exception", RESTART, ranks=1),
    Failing("slurm", "srun_k_segfault", _SLURM + "\nif rank == 1: ctypes.string_at(0)\ntime.sleep(120)", "segfault", RESTART, (1,), 4, ("-K",)),
    Failing("slurm", "srun_k_exception", _SLURM + "\nif rank == 2: raise ValueError('label 12 of "
                                                  "10 classes')\ntime.sleep(120)", "user_exception", RESTART, (2,), 4, ("-K",)),
    Failing("slurm", "srun_k_killed", _SLURM + "\nif rank == 3: os.kill(os.getpid(), "
                                               "9)\ntime.sleep(120)", "killed", RESTART, (3,), 4, ("-K",)),
    Failing("slurm", "srun_module_missing", _SLURM.replace("for step in range(1, 6)", "import apex_that_is_not_there\nfor step in range(1, 6)"), "import_error", STOP, (), 4, ("-K",)),
    Failing("slurm", "srun_time_limit", _SLURM + "\ntime.sleep(600)", "time_limit", STOP, (), 2, ("-t", "0:05")),
    Failing("slurm", "srun_exit_one", _SLURM + "\nif rank == 1: sys.exit(7)\ntime.sleep(120)", "unknown", "UNKNOWN", (1,), 4, ("-K",)),
    Failing("docker", "docker_memory_limit", "import time\nheld = []\nfor step in range(1, "
                                             "400):\n    held.append(bytearray(4_000_000)); "
                                             "print(f'step {step} loss {1 / step:.4f}', "
                                             "flush=True)", "host_oom", RESTART, ranks=1),
)  # fmt: skip


def main() -> None:
    corpus, framework, python, *wanted = sys.argv[1:]
    for failing in FAILING:
        if failing.framework == framework and (not wanted or failing.name in wanted):
            began = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="faults-") as scratch:
                make(failing, python, Path(scratch), Path(corpus) / failing.name)
            print(f"{failing.name:32} {time.monotonic() - began:5.1f} s", flush=True)


def make(failing: Failing, python: str, work: Path, case: Path) -> None:
    program, logs = work / "train.py", work / "logs"
    logs.mkdir()
    program.write_text(textwrap.dedent(failing.program))
    how = {"slurm": _by_srun, "docker": _in_a_container}.get(failing.framework, _by_hand)
    ends = how(failing, python, program, logs)
    (logs / "failures.json").write_text(json.dumps(ends, indent=1) + "\n")
    truth = {
        "name": failing.name,
        "failure_class": failing.failure_class,
        "root_ranks": list(failing.root_ranks),
        "decision": failing.decision,
        "user_error": failing.user_error,
        "half": "frameworks",
        "origin": f"real: {failing.framework}",
    }
    (logs / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    venv = {str(Path(python).parents[1]): "/opt/venv"} if Path(python).is_absolute() else {}
    _keep(logs, case, {str(work): "/srv", **venv})


def _by_hand(failing: Failing, python: str, program: Path, logs: Path) -> list[dict[str, object]]:
    """Plain processes, all ended soon after one of them has failed, as a launcher would."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    began = time.monotonic()
    running: dict[int, subprocess.Popen[bytes]] = {}
    for rank in range(failing.ranks):
        out, err = (logs / f"rank_{rank}.{kind}" for kind in ("out", "err"))
        running[rank] = subprocess.Popen(
            [python, str(program)],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(failing.ranks), "PORT": port},
            cwd=program.parent,
            stdout=out.open("wb"),
            stderr=err.open("wb"),
        )
    ends: dict[int, dict[str, object]] = {}
    while len(ends) < failing.ranks and time.monotonic() - began < _LIMIT:
        for rank, process in running.items():
            code = process.poll()
            if code is not None and rank not in ends:
                ends[rank] = _end(rank, code, time.monotonic() - began)
        time.sleep(0.02)
    for process in running.values():
        process.kill()
        process.wait()
    return [ends[rank] for rank in sorted(ends) if ends[rank]["exit_code"] != 0]


def _end(rank: int, code: int, moment: float) -> dict[str, object]:
    how: dict[str, object] = {"exit_code": code, "signal": None}
    if code < 0:
        how = {"exit_code": None, "signal": -code}
    return {"rank": rank, **how, "time": round(moment, 3)}


def _by_srun(failing: Failing, python: str, program: Path, logs: Path) -> list[dict[str, object]]:
    """One log of all tasks, as srun writes it; how each rank ended is known from its words
    alone.
    """
    command = ["srun", "-n", str(failing.ranks), "-N", "2", *failing.options, "-l", python, "-u"]
    with (logs / "job.log").open("wb") as log:
        subprocess.run(
            [*command, str(program)], stdout=log, stderr=log, check=False, timeout=_LIMIT
        )
    return []


def _in_a_container(
    failing: Failing, python: str, program: Path, logs: Path
) -> list[dict[str, object]]:
    """`python` is an image that has one. What the engine says about the end is part of the log, as
    scripts print it.
    """
    docker = shlex.split(os.environ.get("DOCKER", "docker"))
    command = [*docker, "run", "--name", failing.name, "--memory", "64m", "--memory-swap", "64m"]
    command += ["-v", f"{program.parent}:/srv:ro", python, "python3", "-u", "/srv/train.py"]
    with (logs / "rank_0.out").open("wb") as out, (logs / "rank_0.err").open("wb") as err:
        code = subprocess.run(
            command, stdout=out, stderr=err, check=False, timeout=_LIMIT
        ).returncode
        state = "{{.State.Status}} ExitCode={{.State.ExitCode}} OOMKilled={{.State.OOMKilled}}"
        subprocess.run(
            [*docker, "inspect", "-f", state, failing.name], stdout=err, stderr=err, check=False
        )
    subprocess.run([*docker, "rm", "-f", failing.name], capture_output=True, check=False)
    return [_end(0, code, 0.0)]


def _keep(logs: Path, case: Path, places: dict[str, str]) -> None:
    if case.exists():
        shutil.rmtree(case)
    case.mkdir(parents=True)
    places = {
        **places,
        sys.prefix: "/opt/venv",
        sys.base_prefix: "/usr/local",
        socket.gethostname(): "node-1",
    }
    for file in sorted(path for path in logs.iterdir() if path.is_file()):
        text = file.read_bytes()
        for ours, theirs in places.items():
            text = text.replace(ours.encode(), theirs.encode())
        (case / file.name).write_bytes(text)


if __name__ == "__main__":
    main()
