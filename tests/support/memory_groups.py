"""A control group of the kernel with little memory, so that a program can run out of it for
certain.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from support.waiting import wait_until

_ROOT = Path("/sys/fs/cgroup")


@contextmanager
def memory_group(size: int) -> Iterator[Path]:
    """Its file `cgroup.procs` takes the processes; they must be gone at the end."""
    older = (_ROOT / "memory").is_dir()
    if not older:
        (_ROOT / "cgroup.subtree_control").write_text("+memory")
    group = (_ROOT / "memory" if older else _ROOT) / f"aorta-test-{uuid4().hex[:8]}"
    group.mkdir()
    try:
        (group / ("memory.limit_in_bytes" if older else "memory.max")).write_text(str(size))
        yield group
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text(), "the group's last process")
        os.rmdir(group)  # noqa: PTH106 - its files are the kernel's
