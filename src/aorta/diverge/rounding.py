"""How far two results of one operation may part by rounding alone, given how far its inputs parted.

A difference is the largest of an element over the larger of that element and the tensor's root mean
square. Rounding explains it by the precision of the result, the root of the length of its sums (low
precisions accumulate in float32), and cancellation: a small result of large inputs has large
relative errors, and passes on larger ones than it got.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median

from aorta.diverge.stream import Digest, Operation, Stream

EPSILON = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float8_e4m3fn": 2.0**-4,
    "float8_e4m3fnuz": 2.0**-4,
    "float8_e5m2": 2.0**-3,
    "float8_e5m2fnuz": 2.0**-3,
    "complex64": 2.0**-24,
    "complex128": 2.0**-53,
}
_TF32 = 2.0**-11
_WEIGHT = 590.0  # the root mean square of the weights of a weighed sum, 1 to 1021
# Between what is typical and what is too much: sixteen samples see up to three deviations.
_SLACK = 8.0
# The same over all elements, for another precision: measured, it was never half of that.
_TYPICAL_SLACK = 4.0
_REQUESTED = 5.0
# Measured: a product of float32 is off by up to 30 roundings of its typical size, whatever its
# length between 64 and 32,768; both sides are, and the slack comes on top.
_OF_A_SUM = 8.0
# Of half of the digits: what samples may not see of that which an operation inherited.
_UNSEEN = 0.25
_ADDED_UP = 4.0  # roundings of what is added up
_PRODUCTS = re.compile(r"(ba|a)?dd(b|)m[mv]|b?m[mv]|v?dot|matmul|linear|_(scaled|grouped)_mm")
_STEEP = re.compile(r"exp(2|m1|)|_?(log_)?softmax|pow|sinh?|cosh?|tan")
# Relative errors of factors add up, whatever their sizes.
_FACTORS = re.compile(r"mul|div|reciprocal|sqrt|neg|abs|_to_copy|copy|clone|cat|stack")
_ROW_BY_ROW = re.compile(r"softmax|norm|cumsum|attention|attn|loss|logsumexp|std|var")
_MOST_STEEP = 30.0  # of an operation that nothing else is known of
_ADDS = frozenset(["add", "sub", "rsub", "lerp", "cat", "stack", "sum", "mean"])
_CANCELS = frozenset(["sum", "mean"])
_SUMS = frozenset(["add", "sub", "rsub", "sum", "mean", "cumsum"])
# How far the factors of one step may be apart, taken from updates so many roundings large.
_ANOTHER_STEP, _WELL_KNOWN = 0.01, 500.0
_NORMALISED_UPDATES = re.compile(r"(_foreach_)?addcdiv|_fused_adamw?")
_NORMALISES = re.compile("(batch|layer|group)_norm$")  # gives the means, too
_WHOLE = ("int", "uint", "bool")
_DISCRETE = re.compile(
    r"round|floor|ceil|trunc|sign|where|topk|sort|arg(max|min)|max|min|threshold_backward"
)


def difference(a: Digest, b: Digest, *, typical: bool = False) -> float:
    """How far two tensors part: 0 if they are the same, infinity if they cannot be compared.
    `typical`: of all elements together instead of the worst, which is what another precision
    changes and what operations pass on.
    """
    if a.size != b.size or len(a.values) != len(b.values):
        return math.inf
    scale = max(_scale(a), _scale(b))
    parted = [_parting(x, y, scale) for x, y in zip(a.values, b.values, strict=True)]
    ends = [_parting(a.low, b.low, scale), _parting(a.high, b.high, scale)]
    if typical and math.inf not in (*parted, *ends):
        squares = math.fsum(part * part for part in parted)
        return max(
            math.sqrt(squares / max(1, len(parted))),
            _parting(_scale(a), _scale(b), scale),
        )
    worst = max((*parted, *ends))
    return worst if worst > 0 else in_sums(a, b)


def in_sums(a: Digest, b: Digest) -> float:
    """How far elements part that are no samples: few of them, of which the sums tell. What they
    differ by adds up as its root.
    """
    scale = max(_scale(a), _scale(b))
    if scale == 0 or not a.is_finite or a.size != b.size:
        return 0.0
    often = max(1.0, math.sqrt(a.size / 16))
    few = max(abs(a.total - b.total), abs(a.norm - b.norm)) / (scale * often)
    if a.weighed is not None and b.weighed is not None:
        few = max(few, abs(a.weighed - b.weighed) / (scale * _WEIGHT * often))
    return few if math.isfinite(few) else math.inf


def mostly_apart(a: Digest, b: Digest) -> float:
    """The difference of the typical sample: what an optimizer makes of a gradient that is zero but
    for rounding differs freely in the others.
    """
    if a.size != b.size or not a.values:
        return difference(a, b)
    scale = max(_scale(a), _scale(b))
    return median(_parting(x, y, scale) for x, y in zip(a.values, b.values, strict=True))


def _parting(x: float, y: float, scale: float) -> float:
    if x == y or (math.isnan(x) and math.isnan(y)):
        return 0.0
    if not (math.isfinite(x) and math.isfinite(y)):
        return math.inf
    return abs(x - y) / max(scale, abs(x), abs(y))


def _scale(digest: Digest) -> float:
    """The root mean square, of what is finite in it."""
    if math.isfinite(digest.rms):
        return digest.rms
    finite = [value for value in digest.values if math.isfinite(value)]
    return math.sqrt(math.fsum(v * v for v in finite) / len(finite)) if finite else 0.0


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def outputs_apart(mine: Operation, theirs: Operation) -> float:
    """The largest difference among the results of two operations."""
    pairs = zip(mine.outputs, theirs.outputs, strict=False)
    return max((difference(a, b) for a, b in pairs), default=0.0)


def types_differ(a: Digest, b: Digest) -> bool:
    """Whether one side has another precision. Whole numbers have none: what they lose shows."""
    known = [EPSILON[d.dtype] for d in (a, b) if d.dtype in EPSILON]
    return len(known) == 2 and known[0] != known[1]


def other_types(mine: Operation, theirs: Operation) -> bool:
    pairs = zip(mine.outputs, theirs.outputs, strict=False)
    return any(types_differ(a, b) for a, b in pairs)


def one_is_low(mine: Operation, theirs: Operation) -> bool:
    """Whether one side alone computes in less than single precision."""
    pairs = zip(mine.outputs, theirs.outputs, strict=False)
    low = ([EPSILON.get(d.dtype, 0.0) > EPSILON["float32"] for d in pair] for pair in pairs)
    return any(a != b for a, b in low)


@dataclass(frozen=True)
class Judged:
    """What an operation's difference is, and what is expected of it."""

    difference: float
    expected: float  # by rounding, and by what it inherited
    inherited: float  # the largest difference among its inputs
    other_type: bool = False  # the sides compute in another precision, and nobody asked for that
    results: tuple[float, ...] = ()  # the difference of each
    unknown: float = 0.0  # how much of it may be rounding alone

    @property
    def is_guilty(self) -> bool:
        return self.other_type or self.difference > self.expected


def judge(
    bad: Operation,
    good: Operation,
    inputs: Sequence[Digest | None],
    inherited: float,
    learned: float = 0.0,
    *,
    good_inputs: Sequence[Digest | None] = (),
    any_type: bool = False,
    requested: float = 0.0,
) -> Judged:
    """Two results of one operation that read the same. `inputs`: what was read on the bad side.
    `inherited`: how far that was apart. `learned`: how far two runs of one side part here.
    `any_type`: another precision was requested, so the coarser of both is what counts.
    """
    pairs = list(zip(bad.outputs, good.outputs, strict=False))
    other_type = not any_type and other_types(bad, good)
    results = tuple(difference(a, b, typical=any_type) for a, b in pairs)
    if _is_discrete(bad) and inherited > 0:
        # A jump turns any difference into a large one.
        return Judged(max(results, default=0.0), math.inf, inherited, other_type, results)
    # Of each result that may be judged: how far it parts, and how much of what it adds up cancels.
    parted = [
        (apart, _cancelled(bad, inputs, a))
        for apart, (a, _) in zip(results, pairs, strict=True)
        if inherited == 0 or not a.dtype.startswith(_WHOLE)
    ]
    apart, cancelled = max(parted, key=lambda one: one[0] / one[1], default=(0.0, 1.0))
    least = (max if any_type else min)(epsilon(bad), epsilon(good))
    own = least * roundings(bad, inputs, least) + 2 * inherited * _steepness(bad, inputs)
    own = max(own * cancelled, learned)
    slack = _TYPICAL_SLACK if any_type else _SLACK
    expected = slack * own
    if not _steps_otherwise((bad, inputs), (good, good_inputs)):
        expected = max(expected, 2 * _turned_round(bad, inputs, inherited))
    if inherited > 0:
        expected = max(expected, requested, _UNSEEN * math.sqrt(least))
    return Judged(apart, expected, inherited, other_type, results)


def led_elsewhere(
    a: Digest, b: Digest, inherited: float, learned: float, requested: float
) -> float:
    """Limit where the sides got there by other operations: half the digits of the finer one."""
    least = min(EPSILON.get(digest.dtype, 0.0) for digest in (a, b))
    return max(math.sqrt(least), _SLACK * learned, 2 * inherited, requested)


def vague(operation: Operation, inputs: Sequence[Digest | None], before: Sequence[float]) -> float:
    """How much of a result may be nothing but rounding: of a sum that cancels, and of what is made
    of such a one. `before`: how much that was of each input.
    """
    out = operation.outputs[0] if operation.outputs else None
    name = _short(operation).removeprefix("_foreach_")
    if out is None or not (inputs and inputs[0] and _finite(inputs[0].rms)):
        return 0.0
    if out.rms == 0:
        return math.inf if name in _CANCELS else 0.0
    if _NORMALISED_UPDATES.fullmatch(_short(operation)) and inputs[0].size == out.size:
        return before[0] + difference(inputs[0], out) * max(before[1:], default=0.0)
    if name in _ADDS:
        added = zip(inputs, before, strict=True)
        own = math.fsum(part * _finite(d.rms) for d, part in added if d is not None) / out.rms
    elif len(inputs) == 1 or _FACTORS.fullmatch(name.removeprefix("addc")):
        own = max(before)
    else:
        own = 0.0
    if name in _CANCELS or (name.endswith("_backward") and len(out.shape) == 1):
        first, count = inputs[0], max(1.0, inputs[0].size / out.size)
        natural = _finite(first.rms) * (count**-0.5 if name == "mean" else count**0.5) / out.rms
        own += _ADDED_UP * max(EPSILON.get(d.dtype, 0.0) for d in (first, out)) * natural
    return own


def requested_tolerance(*streams: Stream) -> float:
    """Limit behind the first difference at another precision, where few elements jump unsampled."""
    kinds = {d.dtype for stream in streams for o in stream.operations for d in o.outputs}
    return _REQUESTED * math.sqrt(max((EPSILON.get(kind, 0.0) for kind in kinds), default=0.0))


def _turned_round(operation: Operation, inputs: Sequence[Digest | None], inherited: float) -> float:
    """Limit of an update divided by its own size (Adam): near zero, what was inherited flips it."""
    if inherited == 0 or not _NORMALISED_UPDATES.fullmatch(_short(operation)):
        return 0.0
    pairs = zip(inputs, operation.outputs, strict=False)
    return max(
        (difference(a, b) for a, b in pairs if a is not None and a.size == b.size), default=0.0
    )


def amounts_apart(
    new: tuple[Digest, Digest], old: tuple[Digest | None, Digest | None]
) -> tuple[float, float] | None:
    """How far apart is what two sides added to a tensor, and how far rounding may bring it, both of
    the typical sample; None where nothing was added.
    """
    known = [digest for digest in (*new, *old) if digest is not None]
    if len(known) != 4 or len({(digest.size, len(digest.values)) for digest in known}) != 1:
        return None
    rounding = _SLACK * EPSILON.get(new[0].dtype, 1.0)
    apart = [
        (abs((x - x0) - (y - y0)) / size, rounding * max(abs(x), abs(x0)) / size)
        for x, y, x0, y0 in zip(*(digest.values for digest in known), strict=True)
        if (size := max(abs(x - x0), abs(y - y0)))
    ]
    return (median(a for a, _ in apart), median(r for _, r in apart)) if apart else None


_Side = tuple[Operation, Sequence[Digest | None]]  # an operation, and what it read


def _steps_otherwise(*sides: _Side) -> bool:
    """Whether an update is divided by its own size on both sides, but by another factor: that does
    not follow from what was inherited.
    """
    factors = [_factor_of_step(*side) for side in sides]
    if None in factors:
        return False
    mine, theirs = (one for one in factors if one is not None)
    return abs(mine - theirs) > _ANOTHER_STEP * max(abs(mine), abs(theirs))


def _factor_of_step(operation: Operation, read: Sequence[Digest | None]) -> float | None:
    """By what `addcdiv` multiplies, as far as its samples tell."""
    if not _short(operation).endswith("addcdiv") or len(read) != 3 or not operation.outputs:
        return None
    given = [operation.outputs[0], *(digest for digest in read if digest is not None)]
    if len(given) != 4 or len({(digest.size, len(digest.values)) for digest in given}) != 1:
        return None
    least = _WELL_KNOWN * epsilon(operation)
    factors = [
        (after - before) * divisor / number
        for after, before, number, divisor in zip(*(one.values for one in given), strict=True)
        if number and abs(after - before) > least * max(abs(after), abs(before))
    ]
    return median(factors) if factors else None


def epsilon(operation: Operation) -> float:
    """The precision of its results. Whole numbers have none."""
    found = max((EPSILON.get(digest.dtype, 0.0) for digest in operation.outputs), default=0.0)
    return max(found, _TF32) if operation.tf32 and found >= EPSILON["float32"] else found


def _is_discrete(operation: Operation) -> bool:
    return operation.gives_whole_numbers or _DISCRETE.fullmatch(_short(operation)) is not None


def _short(operation: Operation) -> str:
    return _short_name(operation.op)


@cache
def _short_name(op: str) -> str:
    return op.rpartition("::")[2].removesuffix("_")


def roundings(operation: Operation, inputs: Sequence[Digest | None], least: float) -> float:
    """How many roundings of precision `least` a result of exact inputs may be off."""
    length = _sum_length(operation)
    steep = _steepness(operation, inputs)
    if length <= 1:
        return steep
    # Of each product or sum one rounding more, in the precision in which it is accumulated.
    accumulated = min(1.0, EPSILON["float32"] / least) if least > 0 else 1.0
    return steep + accumulated * max(math.sqrt(length), _OF_A_SUM * steep)


def _sum_length(operation: Operation) -> int:
    """How many products or numbers go into one of the result's."""
    shapes = [shape for shape, _, _ in operation.input_shapes]
    name = _short(operation)
    if _PRODUCTS.fullmatch(name):
        matrices = [shape for shape in shapes if len(shape) >= 2][-2:]
        return (
            max(1, matrices[0][-1]) if matrices else max((math.prod(s) for s in shapes), default=1)
        )
    if name.startswith(("_foreach_", "_fused_")) and "norm" not in name:
        return 1
    sizes = [math.prod(d.shape) for d in operation.outputs if d.size and d.dtype in EPSILON]
    read = max((math.prod(shape) for shape in shapes), default=1)
    by_rows = not operation.op.startswith("aten::") or _ROW_BY_ROW.search(name)
    rows = max((shape[-1] for shape in shapes if shape), default=1) if by_rows else 1
    return max(1, read // min(sizes, default=read or 1), rows)


def _steepness(operation: Operation, inputs: Sequence[Digest | None]) -> float:
    """How much larger than a relative error of the inputs that of the result may be."""
    out = max((_finite(d.rms) for d in operation.outputs), default=0.0)
    read = [d for d in inputs if d is not None]
    name = _short(operation)
    if not read or out == 0 or name.startswith(("_foreach_", "_fused_")):
        return 1.0
    largest = max(_finite(d.rms) for d in read)
    steep = 1.0
    if _PRODUCTS.fullmatch(name):
        sizes = sorted((_finite(d.rms) for d in read if len(d.shape) >= 1), reverse=True)[:2]
        steep = math.prod(sizes) * math.sqrt(_sum_length(operation)) / out
    elif _STEEP.fullmatch(name):
        steep = max(max(abs(_finite(d.low)), abs(_finite(d.high))) for d in read)
    elif name in _SUMS:
        steep = largest / out * (math.sqrt(_sum_length(operation)) if name == "sum" else 1.0)
    elif not _FACTORS.fullmatch(name):
        steep = min(largest / out, _MOST_STEEP)
    return max(1.0, steep)


def _cancelled(operation: Operation, inputs: Sequence[Digest | None], out: Digest) -> float:
    """How much smaller a mean, or the gradient of a bias, is than what is added up for it."""
    first = inputs[0] if inputs else None
    if first is None or not out.size < first.size or not _finite(out.rms):
        return 1.0
    natural = _finite(first.rms) / out.rms
    if operation.op.endswith("_backward") and len(out.shape) == 1:
        return max(1.0, natural * math.sqrt(first.size / out.size))
    return max(1.0, natural) if _NORMALISES.search(operation.op) else 1.0
