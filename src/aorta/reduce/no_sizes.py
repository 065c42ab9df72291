"""Numbers that are no sizes, by their names: a seed, a port, a period. Made smaller they make a run
another one, or a slower one, and nothing smaller. And numbers that another must divide.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

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


_DIVIDED = (
    (
        re.compile(r"(?i)hidden|embed|embd|(?:^|_)dim|d_?model|width|channels"),
        re.compile(r"(?i)heads?$|groups"),
    ),
    (re.compile(r"(?i)batch"), re.compile(r"(?i)micro|accum")),
)


def divided(axes: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The axes, of which one that another divides by its name and value goes in steps of that: a
    hidden size that is no multiple of the heads is another failure.

    >>> axes = [{"name": "HIDDEN", "initial": 96}, {"name": "NUM_HEADS", "initial": 12}]
    >>> divided(axes)[0]
    {'name': 'HIDDEN', 'initial': 96, 'floor': 12, 'step': 12}
    """
    return [_in_steps(axis, axes) for axis in axes]


def _in_steps(axis: Mapping[str, Any], axes: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    whole = axis.get("initial")
    for wholes, parts in _DIVIDED:
        if not isinstance(whole, int) or not wholes.search(axis["name"]):
            continue
        if parts.search(axis["name"]):
            continue
        named = [other.get("initial") for other in axes if parts.search(other["name"])]
        fitting = [n for n in named if isinstance(n, int) and 1 < n < whole and whole % n == 0]
        if fitting:
            return {**axis, "floor": max(fitting), "step": max(fitting)}
    return axis
