"""Arrays of NumPy's own file formats (`.npy`, `.npz`) as rows along their first dimension, read and
written without NumPy: the format is a short header before plain bytes. And what `torch.save` wrote
(`.pt`), read and written by the torch of the interpreter that runs the trials.
"""

import ast
import io
import json
import re
import struct
import subprocess
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

ARRAYS = (".npy", ".npz")
TENSORS = ".pt"
_MAGIC = b"\x93NUMPY"
_MOST_BYTES = 1 << 28


@dataclass(frozen=True)
class _Array:
    """One `.npy`: what its header says, the bytes of one row, and all rows."""

    about: Mapping[str, Any]
    width: int
    rows: memoryview = field(repr=False)

    @property
    def length(self) -> int:
        return int(self.about["shape"][0])

    def only(self, kept: Collection[int]) -> bytes:
        shape = (len(kept), *self.about["shape"][1:])
        header = repr({**self.about, "shape": shape}).encode()
        room = 64 - (len(_MAGIC) + 4 + len(header) + 1) % 64
        header += b" " * room + b"\n"
        width = self.width
        rows = b"".join(self.rows[i * width : (i + 1) * width] for i in sorted(kept))
        return _MAGIC + b"\1\0" + struct.pack("<H", len(header)) + header + rows


@dataclass(frozen=True)
class Arrays:
    """The arrays of a file, of which those that have the same length lose the same rows."""

    arrays: Mapping[str, _Array | bytes]
    length: int

    @property
    def items(self) -> tuple[str, ...]:
        return tuple(f"row {number}" for number in range(self.length))

    def without_all_but(self, kept: Collection[int]) -> bytes:
        """The file with only these rows."""
        parts = {
            name: array
            if isinstance(array, bytes)
            else array.only(kept if array.length == self.length else range(array.length))
            for name, array in self.arrays.items()
        }
        if "" in parts:
            return parts[""]
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for name, content in parts.items():
                archive.writestr(name, content)
        return out.getvalue()


def arrays_of(content: bytes) -> Arrays | None:
    """None where it is no such file, or none that has rows of a fixed size."""
    if len(content) > _MOST_BYTES:
        return None
    try:
        arrays = _members(content)
    except (ValueError, KeyError, SyntaxError, struct.error, zipfile.BadZipFile):
        return None
    lengths = [array.length for array in arrays.values() if isinstance(array, _Array)]
    longest = max(lengths, key=lambda n: (lengths.count(n), n), default=0)
    return Arrays(arrays, longest) if longest > 1 else None


def _members(content: bytes) -> dict[str, _Array | bytes]:
    if content.startswith(_MAGIC):
        return {"": _array(content) or content}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        read = {name: archive.read(name) for name in archive.namelist()}
    return {name: _array(data) or data for name, data in read.items()}


def _array(content: bytes) -> _Array | None:
    if not content.startswith(_MAGIC):
        return None
    wide = content[6] > 1
    (length,) = struct.unpack_from("<I" if wide else "<H", content, 8)
    begins = (12 if wide else 10) + length
    about = ast.literal_eval(content[begins - length : begins].decode("latin-1"))
    size = re.fullmatch(r"[<>|=][a-zA-Z](\d+)", str(about["descr"]))
    shape = about["shape"]
    if size is None or not shape or about["fortran_order"] or "O" in str(about["descr"]):
        return None
    width = prod(shape[1:]) * int(size[1]) * (4 if "U" in str(about["descr"]) else 1)
    rows = memoryview(content)[begins:]
    return _Array(about, width, rows) if len(rows) == width * shape[0] else None


_SERVER = """
import io, json, sys, torch
data = torch.load(sys.argv[1], map_location="cpu", weights_only=True)
parts = list(data.values()) if isinstance(data, dict) else list(data)
tensors = bool(parts) and all(torch.is_tensor(part) and part.dim() for part in parts)
columns = not torch.is_tensor(data) and tensors and len({len(part) for part in parts}) == 1
def select(part, kept):
    return part[kept].clone() if torch.is_tensor(part) else type(part)(part[i] for i in kept)
def only(kept):
    if not columns:
        return select(data, kept)
    if isinstance(data, dict):
        return {key: select(part, kept) for key, part in data.items()}
    return type(data)(select(part, kept) for part in data)
print(len(parts[0]) if columns else 0 if isinstance(data, dict) else len(data), flush=True)
for line in sys.stdin:
    out = io.BytesIO()
    torch.save(only(json.loads(line)), out)
    sys.stdout.buffer.write(b"%d\\n" % out.tell() + out.getvalue())
    sys.stdout.buffer.flush()
"""


@dataclass(frozen=True)
class TensorRows:
    """The elements of a `.pt`: of a list or tensor, or of tensors of one length beside each other.
    A process of that interpreter holds them, and ends with this one.
    """

    process: "subprocess.Popen[bytes]"
    length: int

    @property
    def items(self) -> tuple[str, ...]:
        return tuple(f"element {number}" for number in range(self.length))

    def without_all_but(self, kept: Collection[int]) -> bytes:
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(sorted(kept)).encode() + b"\n")
        stdin.flush()
        return stdout.read(int(stdout.readline()))


@lru_cache(8)
def tensor_rows(python: str | None, path: Path) -> TensorRows | None:
    """None where that Python has no torch, or the file no elements along a first dimension."""
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
        return TensorRows(process, int(said))
    process.kill()
    process.communicate()
    return None
