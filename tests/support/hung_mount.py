"""A mount that hangs as a lost file server's does: whoever looks into it waits, and cannot be
killed while waiting.

A FUSE server that takes every question and answers none but the first greeting.
"""

import ctypes
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MNT_DETACH = 2
_GREETING = struct.Struct("<IiQIIIIHHIIHHI28x")  # fuse_out_header, fuse_init_out
_MINOR = 31


@contextmanager
def hung_mount(path: Path) -> Iterator[Path]:
    path.mkdir()
    serving = subprocess.Popen([sys.executable, __file__, str(path)], stdout=subprocess.PIPE)
    assert serving.stdout is not None
    try:
        assert serving.stdout.readline() == b"mounted\n"
        yield path
    finally:
        ctypes.CDLL(None).umount2(os.fsencode(path), _MNT_DETACH)
        serving.kill()  # closes the connection: all who wait get an error
        serving.wait()
        serving.stdout.close()


def _serve(path: str) -> None:
    device = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    if libc.mount(b"hung", os.fsencode(path), b"fuse", 0, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    question = os.read(device, 1 << 20)
    unique = struct.unpack_from("<Q", question, 8)[0]
    size = _GREETING.size
    os.write(device, _GREETING.pack(size, 0, unique, 7, _MINOR, 0, 0, 0, 0, 4096, 1, 0, 0, 0))
    print("mounted", flush=True)
    while True:
        os.read(device, 1 << 20)


if __name__ == "__main__":
    _serve(sys.argv[1])
