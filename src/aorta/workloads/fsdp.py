"""A small real training step under FSDP2, in ranks that it starts itself: gloo on two CPUs, NCCL or
RCCL on up to `ranks` GPUs. Needs torch alone (the extra `launch`); a loss of NaN is its failure.
"""

import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aorta.workloads.base import RESERVED_PREFIX, Workload, WorkloadResult

_DEFAULTS = {"ranks": 2, "layers": 2, "hidden": 64, "batch": 8, "learning_rate": 0.01, "seed": 0}


class Fsdp(Workload):
    """`workload_config`: ranks, layers, hidden, batch, learning_rate, seed."""

    def setup(self) -> None:
        given = {k: v for k, v in self.config.items() if not k.startswith(RESERVED_PREFIX)}
        self.steps = int(given.pop("steps", 10))
        unknown = sorted(set(given) - set(_DEFAULTS))
        if unknown:
            raise ValueError(f"unknown setting {unknown[0]!r}; expected {', '.join(_DEFAULTS)}")
        self.settings = {**_DEFAULTS, **given}
        # A missing torch is a set-up that failed, not the failure; and what is imported here no
        # forked rank imports again: to shard a parameter takes torch._dynamo, half a second of CPU
        # for each of them.
        import torch._dynamo
        import torch.distributed.fsdp  # noqa: F401

    def run(self) -> WorkloadResult:
        import torch
        from torch.multiprocessing.spawn import start_processes

        gpus = torch.cuda.device_count()
        ranks = min(int(self.settings["ranks"]), gpus) if gpus else int(self.settings["ranks"])
        # A forked rank has torch imported already; CUDA cannot be used after a fork.
        method = "spawn" if gpus else "fork"
        sys.stdout.flush()
        with tempfile.TemporaryDirectory(prefix="aorta-fsdp-") as folder:
            arguments = (ranks, self.steps, self.settings, folder)
            start_processes(  # type: ignore[no-untyped-call]  # torch leaves it untyped
                _train, arguments, nprocs=ranks, start_method=method
            )
            record = json.loads(Path(folder, "rank_0.json").read_text(encoding="utf-8"))
        return _result(record["losses"], record["step_times_ms"], self.steps)


def _result(losses: list[float], times: list[float], steps: int) -> WorkloadResult:
    bad = next((n for n, loss in enumerate(losses) if not math.isfinite(loss)), None)
    hint = f"loss is {losses[bad]} at step {bad}" if bad is not None else ""
    if hint:
        print(hint, flush=True)
    return WorkloadResult(
        passed=bad is None,
        failure_count=0 if bad is None else 1,
        first_failure_iteration=bad,
        failure_details=[] if bad is None else [{"hint": hint, "type": "nan", "step": bad}],
        total_iterations=len(losses),
        step_times_ms=times,
        elapsed_sec=sum(times) / 1000,
        metrics={"last_loss": losses[-1] if losses else None},
        main_work_started=True,
        executed_iterations=len(losses),
        configured_iterations=steps,
    )


def _train(rank: int, ranks: int, steps: int, settings: Mapping[str, Any], folder: str) -> None:
    """One rank. The store is a file, so that two runs on one machine never fight over a port."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    place = f"file://{Path(folder, 'store')}"
    backend = "nccl" if on_gpu else "gloo"
    dist.init_process_group(backend, init_method=place, rank=rank, world_size=ranks)
    try:
        torch.manual_seed(settings["seed"])
        width = settings["hidden"]
        blocks = [
            nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(settings["layers"])
        ]
        model = nn.Sequential(*blocks, nn.Linear(width, 1)).to(device)
        mesh = init_device_mesh(device.type, (ranks,))
        for block in model:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.SGD(model.parameters(), lr=settings["learning_rate"])
        torch.manual_seed(settings["seed"] + 1 + rank)
        losses, times = [], []
        for _ in range(steps):
            start = time.perf_counter()
            batch = torch.randn(settings["batch"], width, device=device)
            loss = (model(batch) - batch.mean(dim=1, keepdim=True)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            # One loss for all: they stop at the same step, and none leaves another waiting.
            everyones = loss.detach().clone()
            dist.all_reduce(everyones)
            losses.append(everyones.item() / ranks)  # waits for the device
            times.append(1000 * (time.perf_counter() - start))
            if not math.isfinite(losses[-1]):
                break
        if rank == 0:
            text = json.dumps({"losses": losses, "step_times_ms": times})
            Path(folder, "rank_0.json").write_text(text, encoding="utf-8")
    except BaseException:
        dist.destroy_process_group()
        raise
    # Taking down an interpreter with gloo's threads now and then ends in SIGABRT.
    sys.stdout.flush()
    os._exit(0)
