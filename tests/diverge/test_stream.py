"""What the recorder writes is what is read, however much of it is there."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from aorta.diverge.stream import HOOK, read_streams

_RECORDS = 1200  # more than twice what is written at once


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The stream of a process that recorded values of its own."""
    sys.path.insert(0, str(HOOK))
    try:
        recorder_module: Any = importlib.import_module("aorta_recorder")
    finally:
        sys.path.remove(str(HOOK))
    out = tmp_path_factory.mktemp("stream")
    recorder = recorder_module.Recorder(recorder_module.RecorderSettings(out=str(out)))
    for number in range(_RECORDS):
        head = recorder.head(f"record::{number % 7}", ("f", "", "train.py", number % 5))
        recorder.emit_numbers(head, [float(number), 0.5], 2)
    recorder.close()
    (path,) = out.iterdir()
    return path.read_bytes()


def read(folder: Path, text: bytes) -> Any:
    (folder / "stream-1").write_bytes(text)
    return read_streams(folder)


def test_what_was_written_is_read(written: bytes, tmp_path: Path) -> None:
    (stream,) = read(tmp_path, written)
    assert stream.ended
    assert [o.outputs[0].values for o in stream.operations] == [
        (float(number), 0.5) for number in range(_RECORDS)
    ]


def test_of_a_process_that_was_killed_at_any_byte_the_beginning_is_read(
    written: bytes, tmp_path: Path
) -> None:
    somewhere = range(0, len(written), 1999)
    at_the_end = range(len(written) - 10, len(written))
    for length in (*somewhere, *at_the_end):
        for stream in read(tmp_path, written[:length]):
            assert not stream.ended
            assert [o.outputs[0].values[0] for o in stream.operations] == [
                float(number) for number in range(len(stream.operations))
            ]
            assert len(stream.operations) % 512 == 0 or len(stream.operations) == _RECORDS
