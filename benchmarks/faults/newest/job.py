"""A third training job: DDP around the model, a logger's dialect for progress, and ranks that it
may spawn itself.
"""

import argparse
import importlib
import logging
import os
import signal
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.faults.injected import AT_STEP, BEFORE_GROUP, BEFORE_STEPS, Job
from benchmarks.faults.last import faults
from benchmarks.faults.newest import others, user_errors

SORTS = (user_errors, others, faults)  # importing them registers them
STEPS = 50
log = logging.getLogger("lightning")


def train(job: Job, name: str, fault_step: int, quiet: bool) -> None:
    wrapped = DistributedDataParallel(job.model)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=1e-3)
    for job.step in range(1, STEPS + 1):
        if job.step == fault_step and name in AT_STEP:
            AT_STEP[name](job)
        optimizer.zero_grad()
        loss = wrapped(torch.randn(4, 8)).square().mean()
        torch.autograd.backward(loss)
        optimizer.step()
        if not quiet:
            log.info("epoch=0 global_step=%d train/loss=%.4f lr=1e-3", job.step, loss.item())


def run(rank: int, arguments: argparse.Namespace) -> None:
    os.environ["RANK"] = str(rank)
    logging.basicConfig(format="%(levelname)s:%(name)s:%(message)s", level="INFO")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    job = Job(rank, arguments.scratch, nn.Linear(8, 8))
    name = arguments.fault
    if name in BEFORE_GROUP:
        BEFORE_GROUP[name](job)
    dist.init_process_group("gloo", timeout=timedelta(seconds=8))
    if name in BEFORE_STEPS:
        BEFORE_STEPS[name](job)
    train(job, name, arguments.fault_step, arguments.quiet)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(prog="main.py")
    parser.add_argument("--fault", required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--fault-step", type=int, default=23)
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("--spawn", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.spawn:
        os.environ["WORLD_SIZE"] = str(arguments.spawn)
        spawn = importlib.import_module("torch.multiprocessing").spawn  # which has no types
        spawn(run, args=(arguments,), nprocs=arguments.spawn)
    else:
        run(int(os.environ["RANK"]), arguments)


if __name__ == "__main__":
    main()
