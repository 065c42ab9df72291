"""A last set: mistakes, look-alikes and endings, written when the rules had been generalised
twice.
"""

import asyncio
import configparser
import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.distributed as dist
from pydantic import BaseModel
from torch import nn
from torch.utils.data import DataLoader, Dataset

from benchmarks.faults.injected import AT_STEP, BEFORE_GROUP, BEFORE_STEPS, Job, fault


@fault(BEFORE_STEPS, "path_through_a_file")
def _path_through_a_file(_job: Job) -> None:
    Path("/etc/hostname/tokenizer.json").read_text()


@fault(BEFORE_GROUP, "extension_symbol")
def _extension_symbol(job: Job) -> None:
    source = job.scratch / f"fused_{job.rank}.c"
    source.write_text(
        f"int missing_kernel(void);\nint PyInit_fused_{job.rank}(void) {{ return "
        f"missing_kernel(); }}\n"
    )
    library = job.scratch / f"fused_{job.rank}{sysconfig.get_config_var('EXT_SUFFIX')}"
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", library, source], check=True)
    sys.path.insert(0, str(job.scratch))
    importlib.import_module(f"fused_{job.rank}")


@fault(BEFORE_GROUP, "version_too_old")
def _version_too_old(_job: Job) -> None:
    found = "2.3.6"
    if found < "2.5":
        raise ImportError(f"flash-attn>=2.5 is required for sliding windows, found {found}")


@fault(BEFORE_GROUP, "literal_choice")
def _literal_choice(_job: Job) -> None:
    class Recipe(BaseModel):
        precision: Literal["fp32", "bf16"]

    Recipe.model_validate_json('{"precision": "int4"}')


@fault(BEFORE_GROUP, "ini_option")
def _ini_option(_job: Job) -> None:
    parser = configparser.ConfigParser()
    parser.read_string("[train]\nsteps = 10\n")
    print(parser.getfloat("train", "learning_rate"))


@fault(BEFORE_STEPS, "norm_of_images")
def _norm_of_images(_job: Job) -> None:
    nn.BatchNorm1d(8)(torch.zeros(2, 8, 4, 4))


@fault(BEFORE_STEPS, "vertical_stack")
def _vertical_stack(_job: Job) -> None:
    np.vstack([np.zeros((2, 8)), np.zeros((2, 7))])


@fault(BEFORE_STEPS, "another_width")
def _another_width(_job: Job) -> None:
    saved, ours = {"hidden_size": 768}, {"hidden_size": 1024}
    if saved != ours:
        raise ValueError(f"checkpoint and model do not match: checkpoint {saved}, model {ours}")


@fault(BEFORE_STEPS, "somebody_elses_file")
def _somebody_elses_file(job: Job) -> None:
    secret = job.scratch / f"weights_{job.rank}.bin"
    secret.touch(mode=0o600)
    os.setuid(65534)
    secret.read_bytes()


@fault(BEFORE_STEPS, "needs_eight_ranks")
def _needs_eight_ranks(_job: Job) -> None:
    assert dist.get_world_size() == 8, f"this recipe needs 8 ranks, got {dist.get_world_size()}"


@fault(BEFORE_GROUP, "odd_character")
def _odd_character(job: Job) -> None:
    module = job.scratch / "pasted.py"
    module.write_text("width\u00a0= 512\n")
    sys.path.insert(0, str(job.scratch))
    importlib.import_module("pasted")


@fault(BEFORE_GROUP, "not_a_float")
def _not_a_float(_job: Job) -> None:
    import argparse

    parser = argparse.ArgumentParser(prog="sft.py")
    parser.add_argument("--lr", type=float)
    parser.parse_args(["--lr", "1e-3x"])


# ---- what looks like a mistake


@fault(AT_STEP, "lock_removed_twice")
def _lock_removed_twice(job: Job) -> None:
    lock = job.scratch / "cache.lock"
    lock.touch()
    time.sleep(1 + job.rank)
    os.unlink(lock)  # noqa: PTH108  # the common way to write it


@fault(AT_STEP, "curriculum_lookup", rank=1)
def _curriculum_lookup(job: Job) -> None:
    config = {"stages": {1: "short", 2: "long"}}
    print(config["stages"][job.step])


@fault(BEFORE_STEPS, "hub_unreachable")
def _hub_unreachable(_job: Job) -> None:
    raise OSError(
        "We couldn't connect to 'https://hub.invalid' to load the files, and couldn't find them "
        "in the cached files.\n"
        "Check your internet connection or see how to run the library in offline mode."
    )


@fault(BEFORE_STEPS, "settings_service_down")
def _settings_service_down(_job: Job) -> None:
    response = "<html><head><title>502 Bad Gateway</title></head></html>"
    config = json.loads(response)
    print(config["lr"])


@fault(BEFORE_STEPS, "index_not_visible_yet")
def _index_not_visible_yet(job: Job) -> None:
    """Rank 0 has built the index; the other ranks' file system does not show it yet."""
    index = job.scratch / f"doc_idx_{min(job.rank, 1)}.npy"
    if job.rank == 0:
        np.save(index, np.zeros(4))
    dist.barrier()
    np.load(index)


@fault(AT_STEP, "optional_module_then_crash", rank=0)
def _optional_module_then_crash(_job: Job) -> None:
    result = subprocess.run([sys.executable, "-c", "import tensorrt_of_tomorrow"], check=False)
    print("export skipped, exit code", result.returncode, flush=True)
    ctypes.string_at(0)


@fault(AT_STEP, "tasks_nobody_awaits", rank=1)
def _tasks_nobody_awaits(_job: Job) -> None:
    async def upload() -> None:
        raise PermissionError(13, "Permission denied", "/bucket/metrics")

    async def main() -> None:
        task = asyncio.create_task(upload())
        await asyncio.sleep(0.1)
        del task

    asyncio.run(main())
    os.kill(os.getpid(), signal.SIGKILL)


# ---- how else jobs end


@fault(AT_STEP, "native_throw", rank=1)
def _native_throw(job: Job) -> None:
    source = job.scratch / "ring.cpp"
    source.write_text('#include <stdexcept>\nextern "C" void run() noexcept { throw '
                      'std::runtime_error("ring buffer overflow"); }\n')  # fmt: skip
    library = job.scratch / "ring.so"
    subprocess.run(["g++", "-shared", "-fPIC", "-w", "-o", library, source], check=True)
    ctypes.CDLL(str(library)).run()


class _Dying(Dataset[int]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if index == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return index


@fault(AT_STEP, "worker_killed", rank=1)
def _worker_killed(_job: Job) -> None:
    for _ in DataLoader(_Dying(), num_workers=1):
        pass


@fault(AT_STEP, "first_of_four_crashes", rank=0)
def _first_of_four_crashes(_job: Job) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


@fault(AT_STEP, "long_save", rank=0)
def _long_save(_job: Job) -> None:
    time.sleep(30)


class _Untidy:
    def __del__(self) -> None:
        raise OSError(28, "No space left on device")


@fault(AT_STEP, "noise_of_destructors", rank=1)
def _noise_of_destructors(job: Job) -> None:
    job.model.untidy = _Untidy()  # type: ignore[assignment]  # destroyed after the exception was printed
    raise RuntimeError(f"bucket {job.step} lost its gradient hook")
