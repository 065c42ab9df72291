"""A small two-rank training job (gloo, CPU) that breaks in the way `--fault` names.

Every failure is the real one: the exception, the signal or the hang happens, nothing is printed in
its place. The job knows nothing about attribution; `make_corpus.py` runs it and keeps what it
leaves behind.
"""

import argparse
import logging
import os
import signal
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from benchmarks.faults.injected import (
    AT_STEP,
    BEFORE_GROUP,
    BEFORE_STEPS,
    Job,
    code_and_data,
    communication,
    later,
    machine,
    unseen,
    user_errors,
)

SORTS = (
    user_errors,
    machine,
    communication,
    code_and_data,
    later,
    unseen,
)  # importing them registers them
LAST_STEP = 40
FAULT_STEP = 6


def train(job: Job, name: str, steps: int) -> None:
    data = torch.randn(4, 8)
    for job.step in range(1, steps + 1):
        if job.step == FAULT_STEP and name in AT_STEP:
            AT_STEP[name](job)
        loss = job.model(data).square().mean()
        torch.autograd.backward(loss)
        for parameter in job.model.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)
        print(f"step {job.step} loss {loss.item():.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="train.py")
    parser.add_argument("--fault", required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=LAST_STEP)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    arguments = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level="INFO")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may hand these down ignored
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    name, rank = arguments.fault, int(os.environ["RANK"])
    torch.set_num_threads(1)
    job = Job(rank, arguments.scratch, nn.Linear(8, 8))
    if name in BEFORE_GROUP:
        BEFORE_GROUP[name](job)
    dist.init_process_group("gloo", timeout=timedelta(seconds=8))
    if name in BEFORE_STEPS:
        BEFORE_STEPS[name](job)
    train(job, name, arguments.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
