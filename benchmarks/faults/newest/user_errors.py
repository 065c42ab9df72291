"""A user's mistakes once more, in words that no rule had seen when this was written."""

import dataclasses
import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from benchmarks.faults.injected import BEFORE_GROUP, BEFORE_STEPS, Job, fault


@fault(BEFORE_STEPS, "spawned_import")
def _spawned_import(_job: Job) -> None:
    importlib.import_module("megatron_core_of_tomorrow")


@fault(BEFORE_GROUP, "absl_flag")
def _absl_flag(_job: Job) -> None:
    app = importlib.import_module("absl.app")
    app.run(print, argv=["train", "--num_layerz=4"])


@fault(BEFORE_GROUP, "click_choice")
def _click_choice(_job: Job) -> None:
    @click.command()
    @click.option("--precision", type=click.Choice(["fp32", "bf16"]))
    def train(precision: str) -> None:
        print(precision)

    train.main(["--precision", "fp64"])


@dataclasses.dataclass
class TrainConfig:
    lr: float
    steps: int = 10


@fault(BEFORE_GROUP, "dataclass_config")
def _dataclass_config(_job: Job) -> None:
    loaded: dict[str, Any] = {"lr": 0.1, "warmup_stepz": 100}
    print(TrainConfig(**loaded))


@fault(BEFORE_GROUP, "number_in_environment")
def _number_in_environment(_job: Job) -> None:
    os.environ["NUM_WORKERS"] = "auto"
    workers = int(os.environ["NUM_WORKERS"])
    print(workers)


@fault(BEFORE_STEPS, "dataset_not_found")
def _dataset_not_found(_job: Job) -> None:
    shards = sorted(Path("/data/fineweb").glob("*.parquet"))
    if not shards:
        raise FileNotFoundError(
            "no *.parquet shards under /data/fineweb (did the copy job finish?)"
        )


@fault(BEFORE_STEPS, "image_without_batch")
def _image_without_batch(_job: Job) -> None:
    nn.Conv2d(3, 8, 3)(torch.zeros(8, 8))


@fault(BEFORE_STEPS, "cat_of_different_ranks")
def _cat_of_different_ranks(_job: Job) -> None:
    torch.cat([torch.zeros(2, 3), torch.zeros(2, 3, 4)])


@fault(BEFORE_STEPS, "numpy_reshape")
def _numpy_reshape(_job: Job) -> None:
    np.arange(10).reshape(3, 4)


@fault(BEFORE_STEPS, "sharded_checkpoint_key")
def _sharded_checkpoint_key(job: Job) -> None:
    folder = job.scratch / "dcp"
    save({"model": {"weight": torch.zeros(4)}}, checkpoint_id=folder)
    load({"model": {"weight": torch.zeros(4), "bias": torch.zeros(4)}}, checkpoint_id=folder)


@fault(BEFORE_STEPS, "safetensors_garbage")
def _safetensors_garbage(job: Job) -> None:
    weights = job.scratch / f"model-{job.rank}.safetensors"
    weights.write_bytes(b"\xff" * 4096)
    load_file = importlib.import_module("safetensors.torch").load_file
    job.model.load_state_dict(load_file(weights))


@fault(BEFORE_STEPS, "output_nowhere", rank=0)
def _output_nowhere(_job: Job) -> None:
    Path("/proc/experiments").mkdir()


@fault(BEFORE_GROUP, "broken_entry_script")
def _broken_entry_script(job: Job) -> None:
    script = job.scratch / "train.py"
    script.write_text("import sys\nprint('starting', file=sys.stderr\nmodel = None\n")
    sys.exit(subprocess.run([sys.executable, script], check=False).returncode)


@fault(BEFORE_STEPS, "caught_by_logger")
def _caught_by_logger(_job: Job) -> None:
    logger = importlib.import_module("loguru").logger
    try:
        Path("/srv/experiments/base.yaml").read_text()
    except OSError:
        logger.exception("cannot start the experiment")
        sys.exit(1)


@fault(BEFORE_STEPS, "unknown_optimizer")
def _unknown_optimizer(_job: Job) -> None:
    print(getattr(torch.optim, "AdamWW"))  # noqa: B009  # the name comes from a configuration


@fault(BEFORE_GROUP, "entry_module_not_there")
def _entry_module_not_there(_job: Job) -> None:
    sys.exit(subprocess.run([sys.executable, "-m", "llm_trainer.cli"], check=False).returncode)
