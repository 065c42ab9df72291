"""The same failures as every usual logger, launcher and container engine writes them: one table of
formats by failures.
"""

import json
from collections.abc import Callable

from aorta.attribution import Attribution, Evidence, LogTail, attribute

Format = Callable[[int, str], str]


def _at(second: int) -> str:
    return f"05:35:{second % 60:02d}"


def _json(**fields: object) -> str:
    return json.dumps(fields)


FORMATS: dict[str, Format] = {
    "nothing": lambda i, text: text,
    "ISO time": lambda i, text: f"2026-11-15T{_at(i)}.123456Z {text}",
    "plain time": lambda i, text: f"2026-11-15 {_at(i)},123 {text}",
    "time in brackets": lambda i, text: f"[2026-11-15 {_at(i)}] {text}",
    "seconds since 1970": lambda i, text: f"1794723183.{i:03d} {text}",
    "kubectl logs --prefix": lambda i, text: f"[pod/train-worker-0/pytorch] {text}",
    "containerd": lambda i, text: f"2026-11-15T{_at(i)}.123456789Z stderr F {text}",
    "stern": lambda i, text: f"train-worker-0 pytorch {text}",
    "docker compose": lambda i, text: f"trainer-1  | {text}",
    "docker json-file": lambda i, text: _json(log=text + "\n", stream="stderr", time=f"2026-11-15T{_at(i)}Z"),
    "journald": lambda i, text: f"Nov 15 {_at(i)} gpu-node7 python[4242]: {text}",
    "syslog": lambda i, text: f"<11>1 2026-11-15T{_at(i)}Z node7 python 4242 - - {text}",
    "Ray": lambda i, text: f"\x1b[36m(RayTrainWorker pid=4242, ip=10.0.0.7)\x1b[0m {text}",
    "SkyPilot": lambda i, text: f"(worker1, rank=1, pid=2345, ip=10.0.0.1) {text}",
    "mpirun --tag-output": lambda i, text: f"[1,1]<stderr>:{text}",
    "prterun --tag-output": lambda i, text: f"[prterun-node7-4242@1,1]<stderr>: {text}",
    "SageMaker": lambda i, text: f"[1,mpirank:1,algo-2]<stderr>:{text}",
    "SageMaker, streams": lambda i, text: f"2026-11-15 {_at(i)},123 algo-2 "
                                          f"[1,mpirank:1,algo-2]<stderr>:{text}",
    "Azure ML": lambda i, text: f"[2026-11-15T{_at(i)}.123456][rank1] {text}",
    "Azure ML, rank first": lambda i, text: f"[rank1][2026-11-15 {_at(i)},123] {text}",
    "Horovod on Gloo": lambda i, text: f"[1]<stderr>:{text}",
    "Horovod with times": lambda i, text: f"Sun Nov 15 {_at(i)} 2026[1]<stderr>:{text}",
    "pdsh": lambda i, text: f"node7: {text}",
    "srun --label": lambda i, text: f"1: {text}",
    "torchrun --tee": lambda i, text: f"[default1]:{text}",
    "torchx": lambda i, text: f"trainer/1 {text}",
    "vLLM": lambda i, text: f"(EngineCore_0 pid=77) ERROR 11-15 {_at(i)} [core.py:396] {text}",
    "DeepSpeed": lambda i, text: f"[2026-11-15 {_at(i)},123] [ERROR] [engine.py:42:step] {text}",
    "NeMo": lambda i, text: f"[NeMo E 2026-11-15 {_at(i)} exp_manager:42] {text}",
    "loguru": lambda i, text: f"2026-11-15 {_at(i)}.123 | ERROR    | __main__:main:42 - {text}",
    "glog": lambda i, text: f"E1115 {_at(i)}.123456  4242 train.cc:42] {text}",
    "XLA": lambda i, text: f"2026-11-15 {_at(i)}.123456: E external/xla/pjrt.cc:42] {text}",
    "transformers": lambda i, text: f"[ERROR|trainer.py:42] 2026-11-15 {_at(i)},123 >> {text}",
    "accelerate": lambda i, text: f"11/15/2026 {_at(i)} - ERROR - __main__ - {text}",
    "hydra": lambda i, text: f"[2026-11-15 {_at(i)},123][__main__][ERROR] - {text}",
    "structlog": lambda i, text: f"2026-11-15 {_at(i)} [error    ] {text}",
    "python-json-logger": lambda i, text: _json(asctime=f"2026-11-15 {_at(i)},123", levelname="ERROR", message=text),
    "structlog JSON": lambda i, text: _json(event=text, level="error", timestamp=f"2026-11-15T{_at(i)}Z"),
    "cloud JSON": lambda i, text: _json(severity="ERROR", message=text, timestamp=f"2026-11-15T{_at(i)}Z"),
    "pod over rank": lambda i, text: f"2026-11-15T{_at(i)}Z node7: [rank1]: {text}",
    "nobody's": lambda i, text: f"@job{i % 3}~{i:03d}@ {text}",
}  # fmt: skip

_START = [
    "loading the tokenizer",
    "building the model",
    "wrapping the model",
    "reading the index of the data",
]
_STEPS = [f"step {number} loss {4 / number:.3f}" for number in range(1, 30)]
_FRAMES = ["Traceback (most recent call last):", '  File "/srv/train.py", line 91, in main', "    run(args)",
           '  File "/srv/engine.py", line 12, in run', "    work(args)"]  # fmt: skip


_WATCHDOG = (
    "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=714, "
    "OpType=ALLREDUCE, NumelIn=4, NumelOut=4, "
    "Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
)


def _raised(exception: str) -> list[str]:
    return [*_FRAMES, exception]


FAILURES: dict[str, tuple[list[str], str, str]] = {  # lines, class, action
    "import": ([*_START, *_raised("ModuleNotFoundError: No module named 'flash_attn'")], "import_error", "STOP"),
    "disk": ([*_STEPS, *_raised("OSError: [Errno 28] No space left on device: '/ckpt/step_29.pt'")], "disk_full", "STOP"),
    "device memory": ([*_STEPS, *_raised("torch.OutOfMemoryError: CUDA out of memory. Tried to "
                                         "allocate 2.00 GiB.")],
                      "device_oom", "RESTART"),
    "cut above": ([*_STEPS, "    loss.backward()", ("RuntimeError: CUDA error: an illegal memory "
                                                   "access was encountered")],
                  "illegal_access", "RESTART"),
    "state dict": ([*_START, *_raised("RuntimeError: Error(s) in loading state_dict for GPT:"),
                    ("\tsize mismatch for head.weight: copying a param with shape torch.Size([8, "
                    "4])")],
                   "checkpoint_mismatch", "STOP"),
    "value": ([*_STEPS, *_raised("ValueError: bucket 6 has no gradients")], "user_exception", "RESTART"),
    "crash": ([*_STEPS, "Fatal Python error: Segmentation fault", "", ("Current thread 0x00007f0d "
                                                                      "(most recent call first):"),
               '  File "/srv/engine.py", line 12 in run'], "segfault", "RESTART"),
    "waiting": ([*_STEPS, _WATCHDOG],
                "collective_timeout", "RESTART"),
}  # fmt: skip


def told(form: str, failure: str) -> Attribution:
    lines = FAILURES[failure][0]
    text = "\n".join(FORMATS[form](second, line) for second, line in enumerate(lines))
    return attribute(Evidence(tails=(LogTail(text + "\n"),)))


def is_right(form: str, failure: str) -> bool:
    result = told(form, failure)
    _, kind, action = FAILURES[failure]
    return (result.finding.failure_class, result.decision.action) == (kind, action)


def report() -> None:
    print(f"\n{'what stands before every line':28} " + " ".join(f"{name:>13}" for name in FAILURES))
    for form in FORMATS:
        cells = ("right" if is_right(form, failure) else "WRONG" for failure in FAILURES)
        print(f"{form:28} " + " ".join(f"{cell:>13}" for cell in cells))
