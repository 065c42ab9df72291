"""Writes the shards of this example, byte for byte the same every time, and flips one bit in one of
them.
"""

import gzip
import io
import json
import random
import sys
from pathlib import Path

SHARDS, RECORDS, DAMAGED = 12, 40, 7


def shard_bytes(draw: random.Random) -> bytes:
    lines = [
        json.dumps({"id": draw.randrange(10**6), "label": draw.randrange(2)})
        for _ in range(RECORDS)
    ]
    packed = io.BytesIO()
    # Stored, not compressed: a flipped bit then changes a value and nothing but the checksum
    # notices.
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=0, mtime=0) as file:
        file.write("\n".join(lines).encode())
    return packed.getvalue()


def main(folder: Path) -> None:
    draw = random.Random(7)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(SHARDS):
        content = bytearray(shard_bytes(draw))
        if number == DAMAGED:
            content[content.index(b'"label": 1') + len('"label": ')] ^= 1
        (folder / f"shard-{number:02}.jsonl.gz").write_bytes(content)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
