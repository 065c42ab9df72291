"""What a user can get wrong, in the words of the libraries that training scripts are made of."""

import argparse
import importlib
import json
import logging
import os
import subprocess
import sys
import traceback
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from rich.console import Console
from torch import nn

from benchmarks.faults.injected import AT_STEP, BEFORE_GROUP, BEFORE_STEPS, Job, fault


@fault(BEFORE_GROUP, "model_config_key")
def _model_config_key(job: Job) -> None:
    path = job.scratch / f"config_{job.rank}.json"
    path.write_text('{"architectures": ["Llama"], "num_attention_heads": 8}')
    config = json.loads(path.read_text())
    hidden = config["hidden_size"]
    print(hidden // config["num_attention_heads"])


@fault(BEFORE_GROUP, "config_json_comma")
def _config_json_comma(job: Job) -> None:
    path = job.scratch / f"ds_config_{job.rank}.json"
    path.write_text('{"zero_optimization": {"stage": 2},\n "bf16": {"enabled": true},\n}')
    with path.open() as file:
        config = json.load(file)
    print(config)


@fault(BEFORE_GROUP, "config_yaml_tab")
def _config_yaml_tab(job: Job) -> None:
    import yaml

    yaml.safe_load("trainer:\n\tdevices: 8\n")
    print(job.rank)


@fault(BEFORE_GROUP, "typer_option")
def _typer_option(_job: Job) -> None:
    typer = importlib.import_module("typer")
    app = typer.Typer()

    @app.command()  # type: ignore[untyped-decorator]  # imported by name, so that no checker needs it
    def train(learning_rate: float = 0.1) -> None:
        print(learning_rate)

    app(["--learning-rte", "0.1"])


@fault(BEFORE_GROUP, "parser_own_error")
def _parser_own_error(_job: Job) -> None:
    parser = argparse.ArgumentParser(prog="pretrain.py")
    parser.add_argument("--global-batch-size", type=int)
    arguments = parser.parse_args(["--global-batch-size", "30"])
    if arguments.global_batch_size % 8:
        parser.error("--global-batch-size (30) has to be a multiple of 8 data-parallel ranks")


@fault(BEFORE_GROUP, "parser_subcommand")
def _parser_subcommand(_job: Job) -> None:
    parser = argparse.ArgumentParser(prog="lit")
    commands = parser.add_subparsers(required=True)
    commands.add_parser("fit").add_argument("--devices", type=int)
    parser.parse_args(["fit", "--devices", "two"])


@fault(BEFORE_GROUP, "hydra_override")
def _hydra_override(job: Job) -> None:
    (job.scratch / "conf").mkdir(exist_ok=True)
    (job.scratch / "conf" / "config.yaml").write_text("trainer:\n  max_steps: 100\n")
    script = job.scratch / f"run_{job.rank}.py"
    script.write_text(
        "import hydra\n"
        f"@hydra.main(version_base=None, config_path={str(job.scratch / 'conf')!r}, "
        "config_name='config')\n"
        "def main(cfg):\n    print(cfg)\nmain()\n"
    )
    sys.exit(
        subprocess.run([sys.executable, script, "trainer.max_stepz=5"], check=False).returncode
    )


@fault(BEFORE_GROUP, "hydra_mandatory")
def _hydra_mandatory(_job: Job) -> None:
    omegaconf = importlib.import_module("omegaconf")
    config = omegaconf.OmegaConf.create({"data": {"path": "???"}})
    print(Path(config.data.path) / "train")


@fault(BEFORE_GROUP, "source_dedent")
def _source_dedent(job: Job) -> None:
    module = job.scratch / f"modeling_{job.rank}.py"
    module.write_text(
        "class Block:\n    def forward(self, x):\n            y = x\n        return y\n"
    )
    sys.path.insert(0, str(job.scratch))
    importlib.import_module(module.stem)


@fault(BEFORE_GROUP, "circular_import")
def _circular_import(job: Job) -> None:
    folder = job.scratch / f"project_{job.rank}"
    folder.mkdir()
    (folder / "engine.py").write_text("from callbacks import Logger\nclass Trainer: pass\n")
    (folder / "callbacks.py").write_text("from engine import Trainer\nclass Logger: pass\n")
    sys.path.insert(0, str(folder))
    importlib.import_module("engine")


@fault(BEFORE_GROUP, "no_master_address")
def _no_master_address(_job: Job) -> None:
    dist.init_process_group("gloo", init_method="env://")


@fault(BEFORE_GROUP, "cuda_on_cpu_build")
def _cuda_on_cpu_build(job: Job) -> None:
    torch.cuda.set_device(job.rank)


@fault(BEFORE_STEPS, "checkpoint_without_key")
def _checkpoint_without_key(job: Job) -> None:
    path = job.scratch / f"last_{job.rank}.ckpt"
    torch.save({"state_dict": job.model.state_dict(), "epoch": 3}, path)
    checkpoint = torch.load(path)
    job.model.load_state_dict(checkpoint["model_state_dict"])


@fault(BEFORE_STEPS, "checkpoint_not_allowed")
def _checkpoint_not_allowed(job: Job) -> None:
    path = job.scratch / f"args_{job.rank}.pt"
    torch.save({"args": argparse.Namespace(lr=0.1)}, path)
    torch.load(path)


@fault(BEFORE_STEPS, "checkpoint_wrapped")
def _checkpoint_wrapped(job: Job) -> None:
    """Saved from inside DDP, loaded outside it; a frame of rich is drawn around the traceback."""
    saved = {f"module.{name}": value for name, value in job.model.state_dict().items()}
    try:
        job.model.load_state_dict(saved)
    except RuntimeError:
        Console(stderr=True, width=100, force_terminal=True).print_exception(show_locals=True)
        sys.exit(1)


@fault(BEFORE_STEPS, "einsum_sizes")
def _einsum_sizes(_job: Job) -> None:
    torch.einsum("bij,bjk->bik", torch.zeros(2, 3, 8), torch.zeros(2, 9, 4))


@fault(BEFORE_STEPS, "numpy_broadcast")
def _numpy_broadcast(_job: Job) -> None:
    print(np.ones((4, 8)) * np.ones((4, 7)))


@fault(BEFORE_STEPS, "normalized_shape")
def _normalized_shape(_job: Job) -> None:
    nn.LayerNorm(16)(torch.zeros(4, 8))


@fault(BEFORE_STEPS, "attention_heads")
def _attention_heads(_job: Job) -> None:
    nn.MultiheadAttention(embed_dim=10, num_heads=4)


@fault(BEFORE_STEPS, "tokens_not_there")
def _tokens_not_there(_job: Job) -> None:
    np.memmap("/data/corpora/pile/train.bin", dtype=np.uint16, mode="r")


@fault(BEFORE_STEPS, "missing_file_json_log")
def _missing_file_json_log(_job: Job) -> None:
    """A structured logger folds the whole traceback into one line; nothing else is written."""
    try:
        os.listdir("/data/imagenet/train")  # noqa: PTH208  # the common way to write it
    except OSError:
        row = {
            "level": "critical",
            "event": "unhandled exception",
            "exc_info": traceback.format_exc(),
        }
        print(json.dumps(row), flush=True)
        sys.exit(1)


@fault(BEFORE_GROUP, "interpreter_not_found")
def _interpreter_not_found(_job: Job) -> None:
    os.execvp("env", ["env", "pyton3.11", "train.py"])


@fault(AT_STEP, "evaluation_only_then", rank=0)
def _evaluation_directory(job: Job) -> None:
    with (job.scratch / "eval" / "results.json").open("w") as file:
        json.dump({"step": job.step}, file)


@fault(AT_STEP, "quota_exceeded", rank=0)
def _quota_exceeded(job: Job) -> None:
    logging.getLogger("checkpoint").info("saving to %s", job.scratch / "over_quota")
    torch.save(job.model.state_dict(), job.scratch / "over_quota.pt")
