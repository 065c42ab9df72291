"""How many ranks torchrun starts; the words and the Python of a command (a shell text, or words).

Where torchrun's options do not say it, or it is inside a script, its variables (`PET_...`) do.
"""

import re
import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

Command = tuple[str, ...]
PYTHON = re.compile(r"(?:.*/)?python[\d.]*")
_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_NPROC = re.compile(r"(--?nproc[-_]per[-_]node[=\s\0]+)([^\s\0]+)")
_NNODES = re.compile(r"(--?nnodes[=\s\0]+)([^\s\0]+)")


def is_launched(argv: Sequence[str]) -> bool:
    """Whether torchrun is one of the words, and not the value of an option."""
    return any(
        (Path(word).name == "torchrun" and not before.startswith("--"))
        or (before == "-m" and word in _MODULES)
        for before, word in pairwise(["", *words_of(argv)])
    )


def ranks_of(argv: Sequence[str]) -> int | None:
    """How many ranks a node the launcher starts, where the command says so in a number."""
    found = _NPROC.search("\0".join(argv)) if is_launched(argv) else None
    return int(found[2]) if found and found[2].isdecimal() else None


def with_world_size(argv: Command, ranks: int) -> Command:
    """The command with so many ranks: as few nodes as the original's ranks a node allow.

    >>> with_world_size(("torchrun --nnodes=4 --nproc-per-node=8 t.py",), 16)
    ('torchrun --nnodes=2 --nproc-per-node=8 t.py',)
    """
    if not is_launched(argv):
        return argv
    most = ranks_of(argv) or ranks
    nodes = next(n for n in range(1, ranks + 1) if ranks % n == 0 and ranks // n <= most)
    text = _NNODES.sub(rf"\g<1>{nodes}", "\0".join(argv))
    return tuple(_NPROC.sub(rf"\g<1>{ranks // nodes}", text).split("\0"))


def world_size_variables(ranks: int) -> dict[str, str]:
    """What torchrun reads where its options do not say it."""
    return {"PET_NPROC_PER_NODE": str(ranks), "NPROC_PER_NODE": str(ranks)}


def argv_of(command: str | Sequence[str]) -> Command:
    """One text for a shell, or the words, as a trial executes them."""
    return (command,) if isinstance(command, str) else tuple(command)


def words_of(command: str | Sequence[str]) -> list[str]:
    """Also those of a text that another shell reads: `bash -c 'python sum.py < rows.txt'`."""
    return re.findall(r"[^\s'\"`;&|()<>]+", " ".join(argv_of(command)))


def python_of(command: str | Sequence[str], path: str | None = None) -> str | None:
    """The Python that a command names, as this machine finds it, or in this `PATH`."""
    words = (*argv_of(command), *words_of(command))
    named = next(filter(PYTHON.fullmatch, words), None)
    return shutil.which(named, path=path) if named is not None else None
