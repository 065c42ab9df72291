"""What a user can get wrong before the first step."""

import os
import sys

import torch
from torch import nn

from benchmarks.faults.injected import AT_STEP, BEFORE_GROUP, BEFORE_STEPS, Job, fault


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
