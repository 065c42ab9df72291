"""What is written down of a tensor: the same numbers, whatever else is summed up and fetched with
it.
"""

import importlib
import sys
from array import array
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aorta.diverge.stream import HOOK

if TYPE_CHECKING:  # every worker loads this file, and one of them needs torch
    import torch

_SIZES = st.sampled_from([0, 1, 32, 33, 700, 256 * 15, 256 * 16, 256 * 17, 5001, 9000, 256 * 40])
_DTYPES = st.sampled_from(["float32", "float64", "bfloat16", "int64", "bool", "complex64"])
pytestmark = pytest.mark.xdist_group("torch-recordings")


@pytest.fixture(scope="module")
def digest() -> Any:
    globals()["torch"] = importlib.import_module("torch")
    sys.path.insert(0, str(HOOK))
    try:
        return importlib.import_module("aorta_recorder_digest")
    finally:
        sys.path.remove(str(HOOK))


def a_tensor(size: int, dtype: str, number: int) -> "torch.Tensor":
    drawn = torch.randn(
        2, size, generator=torch.Generator().manual_seed(number), dtype=torch.float64
    )
    return (3 * drawn).to(getattr(torch, dtype)).T[:, 0]  # not one behind the other in memory


class Numbering:
    """In place of a recorder: what its tensors share."""

    def __init__(self) -> None:
        self.facts: list[Any] = []
        self.held_bytes = self.most_held_bytes = 0

    def number_of(self, _key: object, facts: list[Any]) -> int:
        self.facts.append(facts)
        return len(self.facts) - 1


def numbers_of(digest: Any, groups: "list[list[torch.Tensor]]") -> list[list[list[float]]]:
    numbering = Numbering()
    digests = digest.Digests(numbering)
    taken = []
    for group in groups:
        taken.append(digests.take(group))
        for tensor in group:
            tensor.zero_()  # as a program may, before they are fetched
    widths, _, fetch = digests.launch()
    numbers = array("d", fetch())
    begins, at = {}, 0
    for lot, width in widths:
        begins[lot], at = at, at + width
    found: list[list[list[float]]] = []
    for kinds in taken:
        found.append([])
        for kind in kinds:
            count, lot = numbering.facts[kind][3:]
            begin = begins.get(lot, 0)
            begins[lot] = begin + count
            found[-1].append(list(numbers[begin : begin + count]))
    return found


def expected(tensor: "torch.Tensor") -> list[float]:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    flat = tensor.reshape(-1).to(torch.float64)
    if flat.numel() <= 32:
        return list(flat.tolist())
    stride = flat.numel() // 16
    stride -= stride > 4
    statistics = [flat.norm(), flat.sum(), flat.min(), flat.max()]
    return [float(one) for one in statistics] + flat[: 16 * stride : stride].tolist()


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.lists(st.tuples(_SIZES, _DTYPES), min_size=1, max_size=4), min_size=1, max_size=5)
)
def test_a_digest_is_of_its_own_tensor_alone(
    digest: Any, groups: list[list[tuple[int, str]]]
) -> None:
    def drawn() -> "list[list[torch.Tensor]]":
        return [[a_tensor(*one, number) for number, one in enumerate(group)] for group in groups]

    together = numbers_of(digest, drawn())
    for tensors, found in zip(drawn(), together, strict=True):
        for tensor, numbers in zip(tensors, found, strict=True):
            wanted = expected(tensor)
            assert numbers[: len(wanted)] == pytest.approx(wanted, rel=1e-9, abs=1e-9)
            ((alone,),) = numbers_of(digest, [[tensor]])
            assert array("d", alone).tobytes() == array("d", numbers).tobytes()


@pytest.mark.parametrize("size", [700, 256 * 16, 9000])
def test_one_bit_anywhere_shows(digest: Any, size: int) -> None:
    for place in (1, size // 2 + 1, size - 1):
        before = a_tensor(size, "float32", 1).contiguous()
        after = before.clone()
        after[place] = torch.nextafter(after[place], torch.tensor(10.0))
        ((one,), (other,)) = numbers_of(digest, [[before], [after]])
        assert array("d", one).tobytes() != array("d", other).tobytes()


@pytest.mark.parametrize("size", [700, 256 * 16, 9000, 9001])
def test_the_same_numbers_have_one_digest_wherever_they_begin_in_memory(
    digest: Any, size: int
) -> None:
    whole = torch.cat([torch.ones(1), a_tensor(size, "float32", 1)])
    ((one,), (other,)) = numbers_of(digest, [[whole[1:]], [whole[1:].clone()]])
    assert array("d", one).tobytes() == array("d", other).tobytes()
