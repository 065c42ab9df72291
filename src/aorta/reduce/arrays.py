"""Arrays that NumPy (`.npy`, `.npz`) or torch (`.pt`) wrote, as rows along their first dimension.
The Python that runs the trials reads and writes them: it has the library that its program needs.
"""

import json
import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

ARRAYS = (".npy", ".npz", ".pt")
_SERVER = """
import io, json, sys
path = sys.argv[1]
if path.endswith(".pt"):
    import torch
    data, save = torch.load(path, map_location="cpu", weights_only=True), torch.save
else:
    import numpy
    data = numpy.load(path)
    data = dict(data) if path.endswith(".npz") else data
    def save(data, out):
        numpy.savez(out, **data) if isinstance(data, dict) else numpy.save(out, data)
def is_array(part):
    return getattr(part, "ndim", 0) > 0
parts = [] if is_array(data) else list(data.values() if isinstance(data, dict) else data)
lengths = [len(part) for part in parts if is_array(part)]
# A checkpoint of torch has tensors of many lengths, and no rows.
alike = len(lengths) == len(parts) and len({*lengths}) == 1
columns = bool(lengths) and (alike or path.endswith(".npz"))
length = 0 if isinstance(data, dict) else len(data)
if columns:
    length = max(lengths, key=lambda n: (lengths.count(n), n))
def select(part, kept):
    if columns and not (is_array(part) and len(part) == length):
        return part
    if is_array(part):
        return part[kept].clone() if hasattr(part, "clone") else part[kept]
    return type(part)(part[i] for i in kept)
def only(kept):
    if not columns:
        return select(data, kept)
    if isinstance(data, dict):
        return {key: select(part, kept) for key, part in data.items()}
    return type(data)(select(part, kept) for part in data)
print(length, flush=True)
for line in sys.stdin:
    out = io.BytesIO()
    save(only(json.loads(line)), out)
    sys.stdout.buffer.write(b"%d\\n" % out.tell() + out.getvalue())
    sys.stdout.buffer.flush()
"""


@dataclass(frozen=True)
class ArrayRows:
    """The rows of an array, of arrays of one length beside each other, or the elements of a list. A
    process of that interpreter holds them, and ends with this one.
    """

    process: "subprocess.Popen[bytes]"
    length: int

    @property
    def items(self) -> tuple[str, ...]:
        return tuple(f"row {number}" for number in range(self.length))

    def without_all_but(self, kept: Collection[int]) -> bytes:
        """The file with only these rows."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(sorted(kept)).encode() + b"\n")
        stdin.flush()
        return stdout.read(int(stdout.readline()))


@lru_cache(8)
def array_rows(python: str | None, path: Path) -> ArrayRows | None:
    """None where that Python lacks the library, or the file has nothing along a first dimension."""
    if python is None:
        return None
    process = subprocess.Popen(
        (python, "-c", _SERVER, str(path)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    said = process.stdout.readline().strip()
    if said.isdigit() and int(said) > 1:
        return ArrayRows(process, int(said))
    process.kill()
    process.communicate()
    return None
