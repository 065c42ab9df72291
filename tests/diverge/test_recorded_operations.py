"""What of a program stands in its stream: what computes, by whatever of torch's ways."""

import json
import linecache
import os
import subprocess
import sys
import textwrap

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

    @torch.library.custom_op("users::halved", mutates_args=())
    def halved(a: torch.Tensor) -> torch.Tensor:
        return a / 2  # inside of an operation

    halved(x)  # of the user's own
    torch.vmap(lambda row: row * 2)(x.view(5, 8))  # by vmap
    with torch.inference_mode():
        torch.nn.functional.linear(x, x)  # in inference
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[Operation]:
    folder = tmp_path_factory.mktemp("program")
    script = folder / "program.py"
    script.write_text(textwrap.dedent(_PROGRAM))
    env = {
        **os.environ,
        "PYTHONPATH": str(HOOK),
        "AORTA_DIVERGE": json.dumps({"out": str(folder / "operations")}),
        "TORCHDYNAMO_DISABLE": "1",
    }
    done = subprocess.run(
        (sys.executable, script), env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("tensor([ 0.,  1.,")
    (stream,) = read_streams(folder / "operations")
    return [*stream.operations]


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
