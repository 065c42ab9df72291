"""A data loader that dies on one bad shard, as real ones do. Plain Python, nothing to install.

SHARD_DIR holds gzip files of JSON lines. One of them was damaged on its way: a bit of its content
is flipped, so that the checksum at its end does not fit. An epoch reads SHARDS_PER_EPOCH of them (0
means all) in an order drawn from SEED. SEED=random makes it flaky: with 3 of 12 shards an epoch,
one run of four meets the bad one.
"""

import gzip
import json
import os
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SHARD_DIR = Path(__file__).with_name("shards")


@dataclass(frozen=True)
class ShardSettings:
    """What the environment may set; NAME in the environment is `name` here."""

    shard_dir: Path = SHARD_DIR
    shards_per_epoch: int = 0
    num_epochs: int = 1
    seed: int = 0

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "ShardSettings":
        seed = env.get("SEED", str(cls.seed))
        return cls(
            shard_dir=Path(env.get("SHARD_DIR", SHARD_DIR)),
            shards_per_epoch=int(env.get("SHARDS_PER_EPOCH", cls.shards_per_epoch)),
            num_epochs=int(env.get("NUM_EPOCHS", cls.num_epochs)),
            seed=random.SystemRandom().getrandbits(32) if seed == "random" else int(seed),
        )


def epochs(settings: ShardSettings) -> Iterator[list[Path]]:
    """The shards of each epoch, in the order they are read."""
    shards = sorted(settings.shard_dir.glob("*.jsonl.gz"))
    if not shards:
        raise FileNotFoundError(f"no shards (*.jsonl.gz) in {settings.shard_dir}")
    draw = random.Random(settings.seed)
    for _ in range(settings.num_epochs):
        yield draw.sample(shards, settings.shards_per_epoch or len(shards))


def read_shard(path: Path) -> list[Mapping[str, float]]:
    """The records of one shard; gzip checks the sum at its end."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def mean_label(records: Sequence[Mapping[str, float]]) -> float:
    return sum(record["label"] for record in records) / len(records)


def main() -> int:
    settings = ShardSettings.from_env(os.environ)
    for number, shards in enumerate(epochs(settings), start=1):
        for shard in shards:
            records = read_shard(shard)
            print(
                f"epoch {number}: {shard.name}: {len(records)} records, mean label "
                f"{mean_label(records):.3f}"
            )
    print("all shards were read")
    return 0


if __name__ == "__main__":
    sys.exit(main())
