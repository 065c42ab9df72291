"""A small two-rank training job (gloo, CPU) that breaks in the way `--fault` names.

Every failure is the real one: the exception, the signal or the hang happens, nothing is printed in its place. The
script knows nothing about attribution; `make_corpus.py` runs it and keeps what it leaves behind.
"""

import argparse
import ctypes
import faulthandler
import json
import logging
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

LAST_STEP = 40
FAULT_STEP = 6


@dataclass
class Job:
    rank: int
    scratch: Path
    model: nn.Linear
    step: int = 0


Fault = Callable[[Job], None]
BEFORE_GROUP: dict[str, Fault] = {}
BEFORE_STEPS: dict[str, Fault] = {}
AT_STEP: dict[str, Fault] = {}


def fault(
    table: dict[str, Fault], name: str, *, rank: int | None = None
) -> Callable[[Fault], Fault]:
    """Register a fault; with `rank`, only that rank breaks on its own account."""

    def register(function: Fault) -> Fault:
        def on_its_rank(job: Job) -> None:
            if rank is None or job.rank == rank:
                function(job)

        table[name] = on_its_rank
        return function

    return register


# ---- what a user can get wrong -------------------------------------------------------------------------------


@fault(BEFORE_GROUP, "import_error")
def _missing_module(_job: Job) -> None:
    import flash_attention_kernels  # type: ignore[import-not-found]  # it is missing on purpose

    print(flash_attention_kernels)


@fault(BEFORE_GROUP, "import_name")
def _missing_name(_job: Job) -> None:
    exec(
        "from torch.nn import FusedRotaryEmbedding"
    )  # spelled so that no type checker finds it first


@fault(BEFORE_GROUP, "syntax_error")
def _syntax_error(job: Job) -> None:
    module = job.scratch / f"model_config_{job.rank}.py"
    module.write_text("hidden = 512\nlayers = [1, 2\nheads = 8\n")
    sys.path.insert(0, str(job.scratch))
    __import__(module.stem)


@fault(BEFORE_GROUP, "environment_variable")
def _environment_variable(_job: Job) -> None:
    print("data in", os.environ["TRAINING_DATA_ROOT"])


@fault(BEFORE_GROUP, "config_validation")
def _config_validation(_job: Job) -> None:
    from pydantic import BaseModel

    class TrainConfig(BaseModel):
        micro_batch: int
        precision: str

    TrainConfig.model_validate({"micro_batch": "many"})


@fault(BEFORE_GROUP, "config_syntax")
def _config_syntax(job: Job) -> None:
    import yaml

    path = job.scratch / f"config_{job.rank}.yaml"
    path.write_text("model:\n  hidden: 512\n layers: [1, 2\n")
    yaml.safe_load(path.read_text())


@fault(BEFORE_GROUP, "no_cuda_build")
def _no_cuda_build(_job: Job) -> None:
    torch.zeros(4, device="cuda")


@fault(BEFORE_STEPS, "shape_matmul")
def _shape_matmul(job: Job) -> None:
    job.model(torch.randn(4, 9))


@fault(BEFORE_STEPS, "shape_broadcast")
def _shape_broadcast(job: Job) -> None:
    print(job.model(torch.randn(4, 8)) + torch.randn(4, 3))


@fault(BEFORE_STEPS, "checkpoint_shape")
def _checkpoint_shape(job: Job) -> None:
    path = job.scratch / f"step_100_rank{job.rank}.pt"
    torch.save(nn.Linear(16, 8).state_dict(), path)
    job.model.load_state_dict(torch.load(path))


@fault(BEFORE_STEPS, "checkpoint_keys")
def _checkpoint_keys(job: Job) -> None:
    job.model.load_state_dict({"decoder.weight": torch.zeros(8, 8)})


@fault(BEFORE_STEPS, "checkpoint_truncated")
def _checkpoint_truncated(job: Job) -> None:
    path = job.scratch / f"step_200_rank{job.rank}.pt"
    torch.save({"weight": torch.zeros(4000)}, path)
    path.write_bytes(path.read_bytes()[:9000])
    torch.load(path)


@fault(BEFORE_STEPS, "checkpoint_garbage")
def _checkpoint_garbage(job: Job) -> None:
    path = job.scratch / f"step_300_rank{job.rank}.pt"
    path.write_bytes(b"\x07not a checkpoint" * 50)
    torch.load(path)


@fault(BEFORE_STEPS, "missing_file")
def _missing_file(job: Job) -> None:
    (job.scratch / "shards" / "train-00017.bin").open("rb")


@fault(BEFORE_STEPS, "missing_file_locale")
def _missing_file_locale(job: Job) -> None:
    import locale

    locale.setlocale(locale.LC_ALL, "de_DE.UTF-8")
    (job.scratch / "daten" / "vokabular.json").read_text()


@fault(BEFORE_STEPS, "missing_file_chained")
def _missing_file_chained(job: Job) -> None:
    try:
        (job.scratch / "tokenizer.model").read_bytes()
    except OSError as wrong:
        raise RuntimeError("could not build the tokenizer") from wrong


@fault(AT_STEP, "missing_output_dir", rank=0)
def _missing_output_dir(job: Job) -> None:
    torch.save(job.model.state_dict(), job.scratch / "no" / "such" / "dir" / "step_6.pt")


@fault(BEFORE_STEPS, "permission_denied")
def _permission_denied(job: Job) -> None:
    path = job.scratch / f"private_{job.rank}.bin"
    path.write_bytes(b"x")
    path.chmod(0o600)
    os.setuid(65534)
    path.open("rb")


@fault(AT_STEP, "read_only_output", rank=0)
def _read_only_output(job: Job) -> None:
    os.setuid(65534)
    torch.save(job.model.state_dict(), "/usr/lib/step_6.pt")


# ---- disk, memory, ports -----------------------------------------------------------------------------------------


@fault(AT_STEP, "disk_full_checkpoint", rank=0)
def _disk_full_checkpoint(job: Job) -> None:
    torch.save({"weight": torch.zeros(2_000_000)}, job.scratch / "small" / "step_6.pt")


@fault(AT_STEP, "disk_full_write", rank=1)
def _disk_full_write(job: Job) -> None:
    with (job.scratch / "small" / "metrics.jsonl").open("w") as metrics:
        for number in range(400_000):
            metrics.write(json.dumps({"step": number}) + "\n")


@fault(AT_STEP, "host_oom_killed", rank=1)
def _host_oom_killed(_job: Job) -> None:
    kept = []
    while True:
        kept.append(bytearray(os.urandom(1 << 20)) * 16)


@fault(AT_STEP, "host_oom_allocation", rank=1)
def _host_oom_allocation(_job: Job) -> None:
    torch.zeros(1 << 45)


@fault(AT_STEP, "host_oom_python", rank=0)
def _host_oom_python(_job: Job) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    print(len(bytearray(16 << 30)))


@fault(AT_STEP, "too_many_files", rank=1)
def _too_many_files(_job: Job) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    print(len([os.dup(0) for _ in range(100)]))


# ---- signals -----------------------------------------------------------------------------------------------------


@fault(AT_STEP, "sigkill", rank=1)
def _sigkill(_job: Job) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@fault(AT_STEP, "sigterm", rank=0)
def _sigterm(_job: Job) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)


@fault(AT_STEP, "sigint_everywhere")
def _sigint_everywhere(_job: Job) -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)


@fault(AT_STEP, "segfault", rank=1)
def _segfault(_job: Job) -> None:
    faulthandler.enable()
    ctypes.string_at(8)


@fault(AT_STEP, "segfault_silent", rank=0)
def _segfault_silent(_job: Job) -> None:
    ctypes.string_at(8)


@fault(AT_STEP, "bus_error", rank=1)
def _bus_error(job: Job) -> None:
    import mmap

    path = job.scratch / "shard.bin"
    path.write_bytes(b"x" * 8192)
    with path.open("r+b") as file:
        view = mmap.mmap(file.fileno(), 8192)
        file.truncate(0)
        print(view[5000])


@fault(AT_STEP, "abort", rank=1)
def _abort(_job: Job) -> None:
    faulthandler.enable()
    os.abort()


@fault(AT_STEP, "heap_corruption", rank=0)
def _heap_corruption(_job: Job) -> None:
    libc = ctypes.CDLL("libc.so.6")
    libc.malloc.restype = ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    block = libc.malloc(4000)
    libc.free(block + 16)


@fault(AT_STEP, "quiet_exit", rank=1)
def _quiet_exit(_job: Job) -> None:
    os._exit(7)


# ---- communication -----------------------------------------------------------------------------------------------


@fault(AT_STEP, "hang_in_collective", rank=1)
def _hang_in_collective(_job: Job) -> None:
    time.sleep(120)


@fault(AT_STEP, "slow_rank", rank=0)
def _slow_rank(job: Job) -> None:
    for part in range(20):
        print(f"rank {job.rank}: shard {part} read in 4.1 s", flush=True)
        time.sleep(4)


@fault(AT_STEP, "deadlock")
def _deadlock(job: Job) -> None:
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    lock = threading.Lock()
    lock.acquire()
    print(f"rank {job.rank}: waiting for the optimizer lock", flush=True)
    lock.acquire()


@fault(AT_STEP, "peer_leaves", rank=1)
def _peer_leaves(_job: Job) -> None:
    dist.destroy_process_group()
    os._exit(0)


@fault(AT_STEP, "collective_sizes")
def _collective_sizes(job: Job) -> None:
    dist.all_reduce(torch.zeros(1_000_000 if job.rank else 10))


@fault(BEFORE_GROUP, "late_peer", rank=1)
def _late_peer(_job: Job) -> None:
    time.sleep(120)


@fault(BEFORE_GROUP, "wrong_master_port", rank=1)
def _wrong_master_port(_job: Job) -> None:
    os.environ["MASTER_PORT"] = "1"


@fault(BEFORE_GROUP, "unknown_master", rank=1)
def _unknown_master(_job: Job) -> None:
    os.environ["MASTER_ADDR"] = "node-417.invalid"


# ---- code and data -----------------------------------------------------------------------------------------------


@fault(AT_STEP, "nan_check", rank=1)
def _nan_check(job: Job) -> None:
    loss = torch.tensor(float("nan"))
    if not torch.isfinite(loss):
        raise FloatingPointError(f"loss is nan at step {job.step}, skipping is off")


@fault(AT_STEP, "nan_anomaly", rank=0)
def _nan_anomaly(_job: Job) -> None:
    with torch.autograd.set_detect_anomaly(True):
        weight = torch.zeros(3, requires_grad=True)
        torch.autograd.backward((weight / weight).sum().sqrt())


@fault(AT_STEP, "assertion", rank=1)
def _assertion(job: Job) -> None:
    tokens = torch.arange(5)
    assert tokens.max() < 3, f"token {int(tokens.max())} outside the vocabulary at step {job.step}"


@fault(AT_STEP, "assertion_rich", rank=0)
def _assertion_rich(job: Job) -> None:
    from rich.console import Console
    from rich.traceback import install

    install(console=Console(stderr=True, force_terminal=True, width=120))
    assert job.step > 100, "gradient bucket was not ready"


@fault(AT_STEP, "value_error", rank=1)
def _value_error(job: Job) -> None:
    raise ValueError(f"bucket {job.step} has no gradients")


@fault(AT_STEP, "key_error", rank=0)
def _key_error(_job: Job) -> None:
    print({"input_ids": 1}["attention_mask"])


@fault(AT_STEP, "index_error_progress_bar", rank=1)
def _index_error_progress_bar(job: Job) -> None:
    for done in range(50):
        print(f"\rpacking: {done * 2:3d}%|{'#' * (done // 5):<10}| {done}/50", end="", flush=True)
        time.sleep(0.01)
    print([1, 2, 3][job.step])


@fault(AT_STEP, "recursion", rank=0)
def _recursion(job: Job) -> None:
    _recursion(job)


@fault(AT_STEP, "unpicklable")
def _unpicklable(_job: Job) -> None:
    data = Numbers(transform=lambda value: value)
    next(iter(DataLoader(data, num_workers=1, multiprocessing_context="spawn")))


@fault(AT_STEP, "loader_exception", rank=1)
def _loader_exception(_job: Job) -> None:
    next(iter(DataLoader(Numbers(transform=_refuse), num_workers=1)))


@fault(AT_STEP, "loader_killed", rank=0)
def _loader_killed(_job: Job) -> None:
    next(iter(DataLoader(Numbers(transform=_die), num_workers=1)))


@fault(AT_STEP, "bad_encoding", rank=1)
def _bad_encoding(job: Job) -> None:
    path = job.scratch / "corpus.txt"
    path.write_bytes(b"caf\xe9 au lait")
    path.read_text(encoding="utf-8")


@fault(AT_STEP, "bad_json_record", rank=0)
def _bad_json_record(_job: Job) -> None:
    json.loads('{"text": "half a rec')


@fault(AT_STEP, "harmless_errors_then_kill", rank=1)
def _harmless_errors_then_kill(job: Job) -> None:
    log = logging.getLogger("storage")
    for attempt in range(3):
        try:
            _upload()
        except ConnectionResetError:
            log.exception("upload failed, error ignored, attempt %d of 3", attempt)
    for step in range(job.step, job.step + 5):
        print(f"step {step} loss 0.5 error_rate 0.0 failed_samples 0 nan_count 0", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


@fault(AT_STEP, "long_line_then_value_error", rank=0)
def _long_line_then_value_error(_job: Job) -> None:
    print("batch ids " + ",".join(str(number) for number in range(12_000)), flush=True)
    raise ValueError("sequence longer than the position table")


@fault(AT_STEP, "thread_error_then_type_error", rank=1)
def _thread_error_then_type_error(job: Job) -> None:
    worker = threading.Thread(target=lambda: 1 / 0, name="metrics-uploader")
    worker.start()
    worker.join()
    for step in range(job.step, job.step + 5):
        print(f"step {step} loss 0.5", flush=True)
    print(len(job.step))  # type: ignore[arg-type]  # the mistake is the point


def _upload() -> None:
    raise ConnectionResetError(104, "Connection reset by peer")


class Numbers(Dataset[int]):
    def __init__(self, transform: Callable[[int], int]) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return self.transform(index)


def _refuse(value: int) -> int:
    raise ValueError(f"record {value} of shard train-00003 has a negative length")


def _die(_value: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def train(job: Job, name: str) -> None:
    data = torch.randn(4, 8)
    for job.step in range(1, LAST_STEP + 1):
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
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    arguments = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level="INFO")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may hand it down ignored
    name, rank = arguments.fault, int(os.environ["RANK"])
    torch.set_num_threads(1)
    job = Job(rank, arguments.scratch, nn.Linear(8, 8))
    if name in BEFORE_GROUP:
        BEFORE_GROUP[name](job)
    dist.init_process_group("gloo", timeout=timedelta(seconds=8))
    if name in BEFORE_STEPS:
        BEFORE_STEPS[name](job)
    train(job, name)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
