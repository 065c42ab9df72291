"""The job behind `gpu_faults.py`: steps of a small model on a CUDA device, and at the right moment
the fault.
"""

import argparse
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

FAULT_STEP = 6
NCCL_TIMEOUT = timedelta(seconds=6)
GLOO_TIMEOUT = timedelta(seconds=20)
TOO_MUCH = 1 << 42  # bytes: more than any device has
BUSY_PRODUCTS = 500  # of 16384 x 16384 matrices: about a minute of work, queued in a moment


def out_of_memory() -> None:
    torch.empty(TOO_MUCH, dtype=torch.uint8, device="cuda")


def device_assert() -> None:
    table = torch.nn.Embedding(10, 4, device="cuda")
    table(torch.tensor([3, 11], device="cuda"))
    torch.cuda.synchronize()


def illegal_access() -> None:
    """A kernel that writes a terabyte behind the 64 bytes it was given."""
    source = "__global__ void stray(float* here) { here[1ull << 38] = 1.0f; }"
    memory = torch.zeros(16, device="cuda")
    kernel = torch.cuda._compile_kernel(source, "stray")  # noqa: SLF001 - no public way compiles one
    kernel((1, 1, 1), (1, 1, 1), (memory,))
    torch.cuda.synchronize()


def not_a_number() -> None:
    loss = torch.log(torch.tensor(-1.0, device="cuda"))
    if not torch.isfinite(loss):
        raise FloatingPointError(f"loss is {loss.item()} at step {FAULT_STEP}")


def keep_the_stream_busy() -> None:
    square = torch.randn(16384, 16384, device="cuda")
    for _ in range(BUSY_PRODUCTS):
        torch.mm(square, square)


def fragmented() -> None:
    """Holes between what is kept: enough memory is reserved, none of it in one piece."""
    torch.cuda.set_per_process_memory_fraction(0.03)
    pieces = [torch.empty(8 << 20, dtype=torch.uint8, device="cuda") for _ in range(400)]
    del pieces[::2]
    pieces.append(torch.empty(3 << 30, dtype=torch.uint8, device="cuda"))


def misaligned() -> None:
    source = "__global__ void wide(char* here) { *(double*)(here + 1) = 1.0; }"
    memory = torch.zeros(64, dtype=torch.uint8, device="cuda")
    torch.cuda._compile_kernel(source, "wide")((1, 1, 1), (1, 1, 1), (memory,))  # noqa: SLF001
    torch.cuda.synchronize()


def illegal_and_late() -> None:
    """Nobody waits for the kernel: whatever touches the device next reports it."""
    source = "__global__ void stray(float* here) { here[1ull << 38] = 1.0f; }"
    memory = torch.zeros(16, device="cuda")
    torch.cuda._compile_kernel(source, "stray")((1, 1, 1), (1, 1, 1), (memory,))  # noqa: SLF001


def scatter_outside() -> None:
    torch.zeros(4, device="cuda").scatter_(0, torch.tensor([9], device="cuda"), 1.0)
    torch.cuda.synchronize()


def label_outside() -> None:
    logits = torch.randn(4, 10, device="cuda")
    print(
        torch.nn.functional.cross_entropy(logits, torch.tensor([1, 2, 3, 77], device="cuda")).item()
    )


def no_room_for_cublas() -> None:
    free, _ = torch.cuda.mem_get_info()
    kept = torch.empty(free - (64 << 20), dtype=torch.uint8, device="cuda")
    small = torch.empty(64, 64, device="cuda")
    print((small @ small).sum().item(), len(kept))


def another_architecture() -> None:
    source = "__global__ void one(float* here) { here[0] = 1.0f; }"
    torch.cuda._compile_kernel(source, "one", compute_capability="120")  # noqa: SLF001


def two_devices() -> None:
    print(torch.ones(3, device="cuda") + torch.ones(3))


BEFORE_STEPS = {
    "gpu_oom_startup": out_of_memory,
    "gpu_no_room_for_cublas": no_room_for_cublas,
    "gpu_another_architecture": another_architecture,
    "gpu_two_devices": two_devices,
}
AT_STEP = {
    ("gpu_fragmented", 1): fragmented,
    ("gpu_misaligned", 0): misaligned,
    ("gpu_illegal_and_late", 1): illegal_and_late,
    ("gpu_scatter_outside", 0): scatter_outside,
    ("gpu_label_outside", 1): label_outside,
    ("gpu_oom_late", 1): out_of_memory,
    ("gpu_device_assert", 1): device_assert,
    ("gpu_illegal_access", 0): illegal_access,
    ("gpu_nan", 1): not_a_number,
    ("gpu_nccl_timeout", 0): keep_the_stream_busy,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="train.py")
    parser.add_argument("--fault", required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    arguments = parser.parse_args()
    name, rank = arguments.fault, int(os.environ["RANK"])
    _record_flights(arguments.scratch)
    torch.cuda.set_device(97 if name == "gpu_invalid_device" else 0)
    over_nccl = "nccl" in name
    dist.init_process_group(
        "nccl" if over_nccl else "gloo", timeout=NCCL_TIMEOUT if over_nccl else GLOO_TIMEOUT
    )
    model = torch.nn.Linear(64, 64, device="cuda")
    BEFORE_STEPS.get(name, lambda: None)()
    train(model, AT_STEP.get((name, rank), lambda: None))
    dist.destroy_process_group()


def train(model: torch.nn.Linear, break_it: Callable[[], None]) -> None:
    for step in range(1, 41):
        if step == FAULT_STEP:
            break_it()
        loss = model(torch.randn(8, 64, device="cuda")).square().mean()
        torch.autograd.backward(loss)
        for parameter in model.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)
        print(f"step {step} loss {loss.item():.4f}", flush=True)


def _record_flights(directory: Path) -> None:
    os.environ["TORCH_NCCL_DUMP_ON_TIMEOUT"] = "1"
    for variable in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"):
        os.environ[variable] = "2000"
    for variable in ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"):
        os.environ[variable] = str(directory / "nccl_trace_rank_")


if __name__ == "__main__":
    main()
