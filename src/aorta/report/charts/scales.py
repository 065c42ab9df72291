"""From values to pixels: linear and logarithmic scales with ticks at round numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_TINY = 1e-9  # nothing that is drawn is smaller and not 0


@dataclass(frozen=True)
class PixelScale:
    """`low`..`high` of the data to `start`..`end` in pixels. A logarithmic one shows 0 at the foot of its axis."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    whole: bool = False  # counts: no tick between two of them

    def __call__(self, value: float) -> float:
        low, high = self._of(self.low), self._of(self.high)
        share = (self._of(value) - low) / (high - low) if high > low else 0.5
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)

    def _of(self, value: float) -> float:
        return math.log10(max(value, self.low, _TINY / 10)) if self.log else value

    def ticks(self, most: int = 5) -> list[float]:
        return _decades(self.low, self.high, most) if self.log else _round_steps(self, most)


def log_scale(values: Sequence[float], start: float, end: float) -> PixelScale:
    """From the smallest positive value; a 0 is drawn half a decade below it."""
    positive = [value for value in values if value > _TINY] or [1.0]
    low, high = min(positive), max(positive)
    if min(values, default=1.0) <= _TINY:
        low /= 3
    if high <= low:
        low, high = low / 2, high * 2
    return PixelScale(low, high, start, end, log=True)


def linear_scale(values: Sequence[float], start: float, end: float) -> PixelScale:
    """From 0, so that lengths can be compared."""
    high = max(values, default=1.0)
    return PixelScale(min((0.0, *values)), high if high > _TINY else 1.0, start, end)


def short(value: float) -> str:
    """`5000`, `12k`, `0.4`, `1.2M`: as few characters as tell it."""
    size = abs(value)
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= limit:
            divisor = 1e3 if unit == "k" else limit
            return f"{value / divisor:.3g}{unit}"
    return f"{value:.0f}" if size >= 100 else f"{value:.3g}"


def _decades(low: float, high: float, most: int) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    stride = max(1, math.ceil((last - first) / most))
    found = [10.0**power for power in range(first, last + 1, stride) if low <= 10.0**power <= high]
    if len(found) < 2:
        found = sorted({low, high})
    return found


def _round_steps(scale: PixelScale, most: int) -> list[float]:
    span = scale.high - scale.low
    if span <= 0:
        return [scale.low]
    raw = span / most
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= raw * 0.999)
    if scale.whole:
        step = max(1.0, math.ceil(step))
    first = math.ceil(scale.low / step)
    count = int((scale.high - first * step) / step + 1e-9)
    return [(first + index) * step for index in range(count + 1)]
