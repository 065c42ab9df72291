"""What of a program stands in its stream: what computes, by whatever of torch's ways."""

import json
import linecache
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from aorta.diverge.stream import HOOK, Operation, read_streams

pytestmark = pytest.mark.xdist_group("torch-recordings")
_PROGRAM = """
    import torch
    from torch._subclasses import FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Tripled(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is torch.ops.aten.add.Tensor:
                return torch.mul(args[0], 3)  # by a mode
            return func(*args, **(kwargs or {}))

    class Wrapped(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            with torch._C._DisableTorchDispatch():
                return func(*args, **(kwargs or {}))  # of a subclass

    x = torch.arange(40.0)
    print(x)  # printed
    x.view(5, 8).t()[1:].unsqueeze(0)  # views
    with Tripled():
        x + 1  # for a mode
    with FakeTensorMode():
        fake = torch.ones(3) * 2  # fake
    x.as_subclass(Wrapped) * 2
    nested = torch.nested.nested_tensor([x[:3], x[:4]], layout=torch.jagged)
    nested * 2  # nested

    early = torch._C._dispatch_library("IMPL", "users", "CPU")
    early.impl("defined_later", "CPU", lambda a: a, False)

    @torch.library.custom_op("users::halved", mutates_args=())
    def halved(a: torch.Tensor) -> torch.Tensor:
        return a / 2  # inside of an operation

    halved(x)  # of the user's own
    torch.vmap(lambda row: row * 2)(x.view(5, 8))  # by vmap
    with torch.inference_mode():
        torch.nn.functional.linear(x, x)  # in inference
"""


def recording(program: str, folder: Path, **orders: Any) -> tuple[str, list[Operation]]:
    """What a program prints, and what of it is recorded."""
    script = folder / "program.py"
    script.write_text(textwrap.dedent(program))
    env = {
        **os.environ,
        "PYTHONPATH": str(HOOK),
        "AORTA_DIVERGE": json.dumps({"out": str(folder / "operations"), **orders}),
        "TORCHDYNAMO_DISABLE": "1",
    }
    done = subprocess.run(
        (sys.executable, script), env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (stream,) = read_streams(folder / "operations")
    return done.stdout, [*stream.operations]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[Operation]:
    printed, operations = recording(_PROGRAM, tmp_path_factory.mktemp("program"))
    assert printed.startswith("tensor([ 0.,  1.,")
    return operations


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("# printed", []),
        ("# views", []),
        ("# for a mode", []),
        ("# by a mode", [("aten::mul", 2340.0)]),
        ("# of a subclass", [("aten::mul", 1560.0)]),
        ("# nested", [("aten::mul", 18.0)]),
        ("# inside of an operation", []),
        ("# of the user's own", [("users::halved", 390.0)]),
        ("# by vmap", [("aten::mul", 1560.0)]),
        ("# in inference", [("aten::linear", 20540.0)]),
    ],
)
def test_what_computes_is_recorded_once_with_its_numbers(
    line: str, found: list[tuple[str, float]], recorded: list[Operation]
) -> None:
    there = [o for o in recorded if line in linecache.getline(o.file, o.line)]
    assert [(o.op, o.outputs[0].total) for o in there] == found


def test_what_has_no_numbers_gives_none(recorded: list[Operation]) -> None:
    fake = [o for o in recorded if "# fake" in linecache.getline(o.file, o.line)]
    assert {d.device for o in fake for d in o.outputs} <= {"meta"}
    assert not any(d.values for o in fake for d in o.outputs)


_ATTENTION = """
    import torch

    x = torch.randn(2, 4, 16, 8)
    torch.nn.functional.scaled_dot_product_attention(x, x, x)
"""


@pytest.mark.parametrize(("orders", "is_fused"), [({}, True), ({"same_random": True}, False)])
def test_attention_is_written_out_where_both_sides_draw_alike(
    orders: dict[str, Any], is_fused: bool, tmp_path: Path
) -> None:
    _, operations = recording(_ATTENTION, tmp_path, **orders)
    assert any("dot_product" in o.op for o in operations) is is_fused
    assert any("softmax" in o.op for o in operations) is not is_fused


_IN_PARTS = """
    import torch

    whole = torch.empty(8)
    torch._foreach_copy_([whole[:4], whole[4:]], [torch.ones(4), torch.zeros(4)])
"""


def test_what_a_list_is_written_over_with_is_all_that_is_read(tmp_path: Path) -> None:
    _, operations = recording(_IN_PARTS, tmp_path)
    by_index = {o.index: o.op for o in operations}
    copied = [o for o in operations if o.op == "aten::_foreach_copy_"]
    read = [by_index[index] for o in copied for writers in o.inputs for index, _ in writers]
    assert read == ["aten::ones", "aten::zeros"]
