"""A small mixed-precision training run that ends in NaN, as real ones do. Plain Python, no GPU,
nothing to install.

A few linear heads learn noisy labels. Weights are kept in full precision; activations and gradients
are stored in IEEE half, whose largest number is 65504, after sums that are formed in full
precision, as matrix units do it. To save small gradients from vanishing in half, the loss is
scaled, and the scale grows every few steps. The bug: scaled gradients are summed over the batch
before they are averaged, and nobody looks whether the sums still fit into half. Once they do not,
they become infinite, the weights with them, and the next loss is NaN. When this happens depends on
the batch size, on the learning rate and on the widest head.

SEED=random makes it flaky: with MAX_LOSS_SCALE=300 about every second run fails, each at another
step, so that fewer steps fail more rarely. CHECK_OVERFLOW=1 is the repair.
"""

import math
import os
import random
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from pathlib import Path

SHAPES_FILE = Path(__file__).with_name("shapes.txt")
DISTINCT_ROWS = 4  # a batch is tiled from these, so that 2048 rows cost no more than 4
LABEL_NOISE = 0.02  # as a share of the spread of the labels, which grows with the width
FIRST_SCALE, SCALE_GROWTH, STEPS_PER_GROWTH = 1.0, 16.0, 45


@dataclass(frozen=True)
class TrainSettings:
    """What the environment may set; NAME in the environment is `name` here."""

    shapes: Mapping[str, int]  # the name and the width of each head
    num_steps: int = 5000
    batch_size: int = 2048
    learning_rate: float = 0.02
    seed: int = 0
    max_loss_scale: float = 65536.0
    check_overflow: bool = False  # skip a step that overflowed, and scale less from there on

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "TrainSettings":
        seed = env.get("SEED", str(cls.seed))
        return cls(
            shapes=read_shapes(Path(env.get("SHAPES_FILE", SHAPES_FILE))),
            num_steps=int(env.get("NUM_STEPS", cls.num_steps)),
            batch_size=int(env.get("BATCH_SIZE", cls.batch_size)),
            learning_rate=float(env.get("LEARNING_RATE", cls.learning_rate)),
            seed=random.SystemRandom().getrandbits(32) if seed == "random" else int(seed),
            max_loss_scale=float(env.get("MAX_LOSS_SCALE", cls.max_loss_scale)),
            check_overflow=env.get("CHECK_OVERFLOW", "0") == "1",
        )


def read_shapes(path: Path) -> dict[str, int]:
    """One head a line: its name and its width."""
    lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    return {words[0]: int(words[1]) for words in lines if words}


def half(values: Sequence[float]) -> tuple[float, ...]:
    """Each value rounded to the nearest IEEE half; what is too large becomes infinite."""
    layout = f"{len(values)}e"
    try:
        return struct.unpack(layout, struct.pack(layout, *values))
    except OverflowError:
        return tuple(_half_or_infinite(value) for value in values)


def _half_or_infinite(value: float) -> float:
    try:
        (rounded,) = struct.unpack("e", struct.pack("e", value))
    except OverflowError:
        return math.copysign(math.inf, value)
    return float(rounded)


def dot(left: Sequence[float], right: Sequence[float]) -> float:
    total: float = sum(map(mul, left, right))
    return total


class Head:
    """One linear head of the model, with the rows it is trained on."""

    def __init__(self, name: str, width: int, seed: int) -> None:
        # Seeded by name: a head's data must not depend on which other heads there are.
        self.draw = random.Random(f"{seed} {name}")
        gauss = self.draw.gauss
        self.rows = [half([gauss(0, 1) for _ in range(width)]) for _ in range(DISTINCT_ROWS)]
        self.columns = list(zip(*self.rows, strict=True))
        wanted = [gauss(0, 0.1) for _ in range(width)]
        self.noise = LABEL_NOISE * math.hypot(*wanted)
        self.labels = [dot(wanted, row) for row in self.rows]
        self.weights = [0.0] * width

    def errors(self) -> tuple[float, ...]:
        """The forward pass: prediction minus noisy label, for each distinct row."""
        weights = half(self.weights)
        return half(
            [
                dot(weights, row) - label - self.draw.gauss(0, self.noise)
                for row, label in zip(self.rows, self.labels, strict=True)
            ]
        )

    def gradients(self, errors: Sequence[float], scale: float, copies: float) -> tuple[float, ...]:
        """The backward pass of the scaled loss, summed over the batch."""
        upstream = [error * scale * copies for error in errors]
        return half([dot(upstream, column) for column in self.columns])

    def descend(self, gradients: Sequence[float], rate: float) -> None:
        self.weights = [w - rate * g for w, g in zip(self.weights, gradients, strict=True)]


def train(settings: TrainSettings) -> Iterator[float]:
    """The loss of each step. A training loop goes on after NaN; whoever watches it should not."""
    heads = [Head(name, width, settings.seed) for name, width in settings.shapes.items()]
    copies = settings.batch_size / DISTINCT_ROWS
    scale = FIRST_SCALE
    for step in range(1, settings.num_steps + 1):
        errors = [head.errors() for head in heads]
        yield sum(dot(e, e) for e in errors) / DISTINCT_ROWS
        gradients = [h.gradients(e, scale, copies) for h, e in zip(heads, errors, strict=True)]
        if settings.check_overflow and not all(math.isfinite(g) for gs in gradients for g in gs):
            scale /= SCALE_GROWTH
            continue
        for head, scaled in zip(heads, gradients, strict=True):
            head.descend(scaled, settings.learning_rate / scale / settings.batch_size)
        if step % STEPS_PER_GROWTH == 0:
            scale = min(scale * SCALE_GROWTH, settings.max_loss_scale)


def main() -> int:
    settings = TrainSettings.from_env(os.environ)
    print(f"training {len(settings.shapes)} heads, batch {settings.batch_size}", flush=True)
    for step, loss in enumerate(train(settings), start=1):
        if math.isnan(loss):
            print(f"NaN detected at step {step}", flush=True)
            return 1
        if step % 100 == 0:
            print(f"step {step} loss {loss:.4f}", flush=True)
    print("training finished")
    return 0


if __name__ == "__main__":
    sys.exit(main())
