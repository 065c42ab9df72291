"""Numbers that are no sizes, by their names: a seed, a port, a period. Made smaller they make a run
another one, or a slower one, and nothing smaller.
"""

import re

_WORDS = (
    *("seed", "port", "rank", "node", "nodes", "nnodes", "nproc", "per_node", "device", "devices"),
    *("gpu", "gpus", "id", "version", "schema", "verbose", "restarts", "every", "interval"),
    *("intervals", "freq", "frequency", "period", "cycle", "patience", "timeout", "retries"),
    *("world_size", "year", "hash"),
)
_NO_SIZE = re.compile(
    rf"(?:^|_)(?:{'|'.join(_WORDS)})(?:_|$)"
    # What is done once in so many steps: `logging_steps`, `save_steps`.
    r"|(?:^|_)(?:log|logging|save|saving|eval|checkpoint|print)_(?:steps|iters|batches|epochs)$"
    r"|^(?:OMP|MKL|CUDA|HIP|NCCL|RCCL|TORCH|PET|MASTER|AORTA|WORLD|LOCAL|PYTHON)_",
    re.IGNORECASE,
)


def is_no_size(name: str) -> bool:
    """Whether a number of this name is to be left alone.

    >>> [is_no_size(name) for name in ("max_steps", "eval_every", "save-steps", "maxSeed")]
    [False, True, True, True]
    """
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
    return _NO_SIZE.search(re.sub(r"\W", "_", snake)) is not None
