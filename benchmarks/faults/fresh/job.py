"""Another training job, written as other people write theirs: it reports progress in the dialect
`--style` names.
"""

import argparse
import importlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record

from benchmarks.faults.fresh import endings, look_alikes, user_errors
from benchmarks.faults.injected import AT_STEP, BEFORE_GROUP, BEFORE_STEPS, Job

SORTS = (user_errors, look_alikes, endings)  # importing them registers them
LAST_STEP = 60


def hugging_face(step: int, loss: float) -> None:
    row = {"loss": round(loss, 4), "grad_norm": 0.71, "learning_rate": 5e-05, "epoch": step / 10}
    print(row, flush=True)


def megatron(step: int, loss: float) -> None:
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    print(
        f" [{now}] iteration {step:8d}/{LAST_STEP:8d} | consumed samples: {step * 8:12d} | "
        f"elapsed time per iteration (ms): 31.2 | lm loss: {loss:.6E} | "
        f"number of skipped iterations:   0 | number of nan iterations:   0 |",
        flush=True,
    )


def json_lines(step: int, loss: float) -> None:
    print(
        json.dumps(
            {"ts": time.time(), "level": "INFO", "msg": "train", "step": step, "loss": loss}
        ),
        flush=True,
    )


def fairseq(step: int, loss: float) -> None:
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    print(f"{now} | INFO | train_inner | epoch 001:  {step:5d} / {LAST_STEP} loss={loss:.3f}, "
          "ppl=8.1, wps=311, lr=0.0001", flush=True)  # fmt: skip


def silent(_step: int, _loss: float) -> None:
    """Many a job reports nothing between checkpoints."""


STYLES: dict[str, Callable[[int, float], None]] = {
    "hugging_face": hugging_face,
    "megatron": megatron,
    "json": json_lines,
    "fairseq": fairseq,
    "bar": silent,  # tqdm draws it
    "silent": silent,
}


def train(job: Job, name: str, style: str, fault_step: int) -> None:
    data = torch.randn(4, 8)
    steps = range(1, LAST_STEP + 1)
    tqdm = importlib.import_module("tqdm")  # by name, so that no type checker needs it installed
    shown = (
        tqdm.tqdm(steps, desc="Epoch 0", mininterval=0.0)
        if style in {"bar", "hugging_face"}
        else steps
    )
    for job.step in shown:
        if job.step == fault_step and name in AT_STEP:
            AT_STEP[name](job)
        loss = job.model(data).square().mean()
        torch.autograd.backward(loss)
        for parameter in job.model.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)
        STYLES[style](job.step, loss.item())


@record
def main() -> None:
    parser = argparse.ArgumentParser(prog="finetune.py")
    parser.add_argument("--fault", required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--style", choices=sorted(STYLES), default="hugging_face")
    parser.add_argument("--fault-step", type=int, default=17)
    parser.add_argument("--timeout", type=int, default=8)
    arguments = parser.parse_args()
    logging.basicConfig(
        format="[%(asctime)s][%(name)s][%(levelname)s] - %(message)s",
        level="INFO",
        stream=sys.stdout,
    )
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may hand it down ignored
    torch.set_num_threads(1)
    name = arguments.fault
    job = Job(int(os.environ.get("RANK", "0")), arguments.scratch, nn.Linear(8, 8))
    if name in BEFORE_GROUP:
        BEFORE_GROUP[name](job)
    dist.init_process_group("gloo", timeout=timedelta(seconds=arguments.timeout))
    if name in BEFORE_STEPS:
        BEFORE_STEPS[name](job)
    train(job, name, arguments.style, arguments.fault_step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
