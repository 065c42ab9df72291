"""How far two results of one operation may part by rounding alone, given how far its inputs had
parted already.

A difference is relative: the largest parting of an element, over the larger of that element and the
tensor's root mean square. What rounding explains follows from the precision, from the length of the
sums in the operation, and from cancellation: a small result of large inputs has large relative
errors, and passes on larger ones than it got.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from aorta.diverge.stream import Digest, Operation

EPSILON = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "complex64": 2.0**-24,
    "complex128": 2.0**-53,
}
# Between what is typical and what is too much: sixteen samples see up to three deviations.
_SLACK = 8.0
_PRODUCTS = frozenset(
    ["mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "vdot", "matmul", "linear"]
)
_CONVOLUTIONS = (
    "convolution",
    "conv",
    "cudnn_convolution",
    "mkldnn_convolution",
    "miopen_convolution",
)
_STEEP = frozenset(
    [
        "exp",
        "exp2",
        "expm1",
        "_softmax",
        "_log_softmax",
        "softmax",
        "log_softmax",
        "pow",
        "sinh",
        "cosh",
        "sin",
        "cos",
        "tan",
    ]
)
_NORMALISING = ("norm", "std", "var", "rsqrt", "log")
_DISCRETE_DTYPES = ("int", "uint", "bool")
_DISCRETE = frozenset(
    [
        "round",
        "floor",
        "ceil",
        "trunc",
        "sign",
        "where",
        "topk",
        "sort",
        "argmax",
        "argmin",
        "max",
        "min",
        "threshold_backward",
    ]
)


def difference(a: Digest, b: Digest) -> float:
    """How far two tensors part: 0 if they are the same, infinity if they cannot be compared."""
    if a.size != b.size or len(a.values) != len(b.values):
        return math.inf
    scale = max(_finite(a.rms), _finite(b.rms))
    worst = max(map(lambda x, y: _parting(x, y, scale), a.values, b.values), default=0.0)
    worst = max(worst, _parting(a.low, b.low, scale), _parting(a.high, b.high, scale))
    if worst > 0 or scale == 0:
        return worst
    # The samples are alike, so few elements differ: the sum tells by how much.
    few = max(abs(a.total - b.total), abs(a.norm - b.norm)) / scale
    if few == 0 and a.dtype == b.dtype and a.device == b.device and a.hash != b.hash:
        return EPSILON.get(a.dtype, 1.0)  # some bits differ, and no number shows it
    return few if math.isfinite(few) else math.inf


def _parting(x: float, y: float, scale: float) -> float:
    if x == y or (math.isnan(x) and math.isnan(y)):
        return 0.0
    if not (math.isfinite(x) and math.isfinite(y)):
        return math.inf
    return abs(x - y) / max(scale, abs(x), abs(y))


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0


@dataclass(frozen=True)
class Judged:
    """What an operation's difference is, and what is expected of it."""

    difference: float
    expected: float  # by rounding, and by what it inherited
    inherited: float  # the largest difference among its inputs

    @property
    def is_guilty(self) -> bool:
        return self.difference > self.expected

    @property
    def growth(self) -> float:
        """How much larger than what came in."""
        return self.difference / self.inherited if self.inherited > 0 else math.inf


def judge(
    bad: Operation,
    good: Operation,
    inputs: Sequence[tuple[Digest, Digest, float]],
    learned: float = 0.0,
) -> Judged:
    """`inputs`: what was read on both sides, and how far apart it was. `learned`: how far two runs
    of one side part here.
    """
    apart = max(
        (difference(a, b) for a, b in zip(bad.outputs, good.outputs, strict=False)), default=0.0
    )
    inherited = max((d for _, _, d in inputs), default=0.0)
    if _is_discrete(bad):
        # A jump turns any inherited difference into a large one; with the same inputs it must not
        # jump at all.
        return Judged(apart, math.inf if inherited > 0 else _SLACK * learned, inherited)
    rounding = _epsilon(bad, good) * math.sqrt(_sum_length(bad))
    steepness = _steepness(bad, [a for a, _, _ in inputs])
    own = _SLACK * (rounding + 2 * inherited) * steepness
    return Judged(apart, max(own, _SLACK * learned), inherited)


def _epsilon(bad: Operation, good: Operation) -> float:
    """The coarsest precision that either side computes in. Whole numbers have none."""
    names = [d.dtype for d in (*bad.outputs, *good.outputs)]
    names += [dtype for _, dtype in (*bad.input_shapes, *good.input_shapes)]
    return max((EPSILON.get(name, 0.0) for name in names), default=0.0)


def _is_discrete(operation: Operation) -> bool:
    whole = all(d.dtype.startswith(_DISCRETE_DTYPES) for d in operation.outputs)
    return whole or _short(operation) in _DISCRETE


def _short(operation: Operation) -> str:
    return operation.op.rpartition("::")[2].removesuffix("_")


def _sum_length(operation: Operation) -> int:
    """How many products or numbers go into one of the result's."""
    shapes = [shape for shape, _ in operation.input_shapes]
    name = _short(operation)
    if name in _PRODUCTS:
        matrices = [shape for shape in shapes if len(shape) >= 2][-2:]
        return (
            max(1, matrices[0][-1]) if matrices else max((math.prod(s) for s in shapes), default=1)
        )
    if name.startswith(_CONVOLUTIONS) and len(shapes) >= 2:
        return max(1, *(math.prod(shape[1:]) for shape in shapes[1:3] if len(shape) > 2), 1)
    written = max((d.size for d in operation.outputs), default=1) or 1
    read = max((math.prod(shape) for shape in shapes), default=1)
    rows = max((shape[-1] for shape in shapes if shape), default=1)
    return max(1, read // written, rows)


def _steepness(operation: Operation, inputs: Sequence[Digest]) -> float:
    """How much larger than a relative error of the inputs that of the result may be."""
    out = max((_finite(d.rms) for d in operation.outputs), default=0.0)
    if not inputs or out == 0:
        return 1.0
    largest = max(_finite(d.rms) for d in inputs)
    name = _short(operation)
    if name in _PRODUCTS:
        sizes = sorted((_finite(d.rms) for d in inputs if len(d.shape) >= 1), reverse=True)[:2]
        return max(1.0, math.prod(sizes) * math.sqrt(_sum_length(operation)) / out)
    if name in _STEEP:
        return max(1.0, *(max(abs(_finite(d.low)), abs(_finite(d.high))) for d in inputs))
    if any(word in name for word in _NORMALISING):
        return max(1.0, _spread_inverse(inputs[0]))  # the others are weights
    if name in {"sum", "mean", "cumsum"}:
        return max(1.0, largest * math.sqrt(_sum_length(operation)) / out)
    if name in {"add", "sub", "rsub", "addcmul", "addcdiv", "lerp"}:
        return max(1.0, largest / out)
    return max(1.0, min(largest / out, 1e3))


def _spread_inverse(digest: Digest) -> float:
    """How large a tensor's values are beside their spread: what subtracting the mean costs."""
    if not digest.size or digest.rms == 0 or not digest.is_finite:
        return 1.0
    mean = digest.total / digest.size
    variance = max(digest.rms**2 - mean**2, (digest.rms * 1e-8) ** 2)
    return digest.rms / math.sqrt(variance)
